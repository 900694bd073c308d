//! Connections from outside to what listens inside. The guest dials, in the sandbox's own network and to its loopback alone,
//! and hands the connected socket over: no byte passes through a third hand.

use crate::Sandbox;
use crate::faults::guest_gone;
use belljar_spec::{ErrorCode, SandboxError, Term, hint};
use belljar_sys::rustix::fd::OwnedFd;
use belljar_sys::rustix::io::Errno;
use belljar_sys::rustix::net::{SocketAddrAny, SocketType, getpeername, sockopt};
use belljar_sys::{errno, passing};
use belljar_wire::frame::{Frame, FrameReader, Tag, encode};
use belljar_wire::message::{self, Fault, Reply, Request};
use std::io;
use std::net::SocketAddr;
use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest};
use tokio::net::{TcpStream, UnixStream};

impl Sandbox {
    /// Connects to a port that something listens at inside: at `127.0.0.1`, else at `::1`. What belljar itself serves to the
    /// sandbox (names, routes, egress) cannot be reached like this.
    pub async fn connect(&self, port: u16) -> Result<TcpStream, SandboxError> {
        if !self.assurance().isolates() {
            let message = format!("the backend {} has no network of its own that had ports", self.backend());
            return Err(ErrorCode::NotSupported
                .error(message)
                .hint(hint!("use {}, or connect to the port on this machine", Term::Backend.to("native"))));
        }
        if let Some(dial) = self.guest().dial()? {
            let dialled = tokio::task::spawn_blocking(move || dial(port)).await;
            let stream = dialled.map_err(|_| guest_gone())?.map_err(|error| {
                let errno = Errno::from_io_error(&error).unwrap_or(Errno::IO).raw_os_error();
                not_connected(port, &Fault { doing: format!("connect to port {port}"), errno })
            })?;
            return usable(stream);
        }
        if let Some(stream) = self.guest().open_connection()? {
            let mut stream = usable(stream)?;
            let answer = async { ask_first(&mut stream, port).await.map_err(|_| guest_gone()) };
            return match self.reply_or_dead(answer).await? {
                Reply::Opened => Ok(stream),
                Reply::Failed(fault) => Err(not_connected(port, &fault)),
                _ => Err(guest_gone()),
            };
        }
        let stream = self.guest().open_stream()?;
        let answer = async { ask(stream, port).await.map_err(|_| guest_gone()) };
        let (reply, socket) = self.reply_or_dead(answer).await?;
        match (reply, socket) {
            (Reply::Opened, Some(socket)) => checked(socket, port),
            (Reply::Failed(fault), _) => Err(not_connected(port, &fault)),
            _ => Err(guest_gone()),
        }
    }
}

/// The answer, and the socket that came with it.
async fn ask(stream: std::os::unix::net::UnixStream, port: u16) -> io::Result<(Reply, Option<OwnedFd>)> {
    stream.set_nonblocking(true)?;
    let mut stream = UnixStream::from_std(stream)?;
    let mut frame = Vec::new();
    encode(Tag::Message, &message::encode(&Request::Connect { port }), &mut frame);
    stream.write_all(&frame).await?;
    let (mut reader, mut socket) = (FrameReader::default(), None);
    loop {
        if let Some(Frame { tag: Tag::Message, payload }) = reader.next_frame().map_err(io::Error::other)? {
            let reply = message::decode(&payload).ok_or(io::ErrorKind::InvalidData)?;
            return Ok((reply, socket));
        }
        let mut buffer = [0; 1024];
        let take = || Ok(passing::receive_with(&stream, &mut buffer)?);
        let (length, descriptors) = stream.async_io(Interest::READABLE, take).await?;
        if length == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        reader.push(&buffer[..length]);
        socket = socket.or(descriptors.into_iter().next());
    }
}

/// The answer on a stream that is a connection behind it: not a byte more is read.
async fn ask_first(stream: &mut TcpStream, port: u16) -> io::Result<Reply> {
    let mut frame = Vec::new();
    encode(Tag::Message, &message::encode(&Request::Connect { port }), &mut frame);
    stream.write_all(&frame).await?;
    let mut reader = FrameReader::default();
    for _ in 0..MAX_REPLY_BYTES {
        reader.push(&[stream.read_u8().await?]);
        if let Some(Frame { tag: Tag::Message, payload }) = reader.next_frame().map_err(io::Error::other)? {
            return message::decode(&payload).ok_or(io::ErrorKind::InvalidData.into());
        }
    }
    Err(io::ErrorKind::InvalidData.into())
}

/// What the guest hands over is what was asked for, or nothing.
fn checked(socket: OwnedFd, port: u16) -> Result<TcpStream, SandboxError> {
    let peer = peer(&socket).map_err(|_| guest_gone())?;
    if !peer.ip().is_loopback() || peer.port() != port {
        return Err(guest_gone());
    }
    usable(std::net::TcpStream::from(socket))
}

fn usable(stream: std::net::TcpStream) -> Result<TcpStream, SandboxError> {
    let usable = || {
        stream.set_nonblocking(true)?;
        let stream = TcpStream::from_std(stream)?;
        stream.set_nodelay(true)?;
        Ok(stream)
    };
    usable().map_err(|error: io::Error| {
        ErrorCode::GuestStream.error(format!("cannot use a connection: {error}")).caused_by(error)
    })
}

fn peer(socket: &OwnedFd) -> Result<SocketAddr, Errno> {
    if sockopt::socket_type(socket)? != SocketType::STREAM {
        return Err(Errno::PROTOTYPE);
    }
    let peer: SocketAddrAny = getpeername(socket)?.ok_or(Errno::NOTCONN)?;
    SocketAddr::try_from(peer)
}

fn not_connected(port: u16, fault: &Fault) -> SandboxError {
    match errno::parse(fault.errno).unwrap_or(Errno::IO) {
        Errno::ACCESS => ErrorCode::PermissionDenied
            .error(format!("port {port} inside is belljar's own: nothing of the sandbox listens there")),
        Errno::CONNREFUSED => ErrorCode::ConnectionFailed
            .error(format!("nothing listens at port {port} inside"))
            .hint("start something that listens at 127.0.0.1, and say which port"),
        other => {
            ErrorCode::ConnectionFailed.error(format!("port {port} inside cannot be connected to: {other}"))
        }
    }
}

/// A refusal has a few words.
const MAX_REPLY_BYTES: usize = 1024;
