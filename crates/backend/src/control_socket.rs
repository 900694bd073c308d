//! The host's end of the control socket: how streams to a guest are opened, and how its egress sockets come back.

use crate::guest::{Deadline, PendingSetup, guest_gone, write_by};
use belljar_spec::{ErrorCode, SandboxError};
use belljar_sys::rustix::event::{PollFd, PollFlags, Timespec, poll};
use belljar_sys::rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use belljar_sys::rustix::io::Errno;
use belljar_sys::rustix::net::{AddressFamily, Shutdown, SocketFlags, SocketType, shutdown, socketpair};
use belljar_sys::{arrivals, passing};
use belljar_wire::frame::{self, Tag};
use belljar_wire::message::{self, EgressSetup, Setup};
use belljar_wire::mux::Side;
use belljar_wire::pump::{Hangup, Pump, tcp_pair};
use belljar_wire::purpose::Purpose;
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::{Mutex, PoisonError};

/// The host's end of the control socket.
pub(crate) enum ControlSocket {
    /// Descriptors pass it.
    Passing(OwnedFd),
    /// One connection, with streams on it. The egress sockets are known before the guest opens its own: connections may
    /// arrive as soon as it has.
    Muxed { pump: Pump, egress_sockets: Mutex<Vec<OwnedFd>> },
}

impl ControlSocket {
    /// Both ends: ours, and the guest's.
    pub(crate) fn new() -> Result<(ControlSocket, OwnedFd), SandboxError> {
        let (ours, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).map_err(
                |errno| {
                    ErrorCode::StartFailed
                        .error(format!("cannot make a socket pair: {errno}"))
                        .caused_by(errno)
                },
            )?;
        Ok((ControlSocket::Passing(ours), theirs))
    }

    /// The end that a guest connected to.
    pub(crate) fn knocked_at(ours: OwnedFd) -> ControlSocket {
        ControlSocket::Passing(ours)
    }

    /// For a guest that connected and that no descriptor can be passed to; with the egress sockets that it will have.
    pub(crate) fn muxed(connection: OwnedFd, egress: Option<&EgressSetup>) -> io::Result<ControlSocket> {
        let (places, egress_sockets) = Places::make(egress)?;
        let pump = Pump::start(
            connection,
            Side::Host,
            Box::new(move |header| places.receive(header).map(Into::into)),
        )?;
        Ok(ControlSocket::Muxed { pump, egress_sockets: Mutex::new(egress_sockets) })
    }

    /// The guest on the other side leaves, if it is not killed first.
    pub(crate) fn close(&self) {
        match self {
            ControlSocket::Passing(ours) => {
                let _ = shutdown(ours, Shutdown::Both);
            }
            ControlSocket::Muxed { pump, .. } => pump.close(),
        }
    }

    /// Whether the other side is gone.
    pub(crate) fn is_closed(&self) -> bool {
        match self {
            ControlSocket::Passing(ours) => {
                let mut waiting = [PollFd::new(ours, PollFlags::empty())];
                poll(&mut waiting, Some(&NOW)).is_ok_and(|ready| ready > 0)
            }
            ControlSocket::Muxed { pump, .. } => pump.is_over(),
        }
    }

    /// Opens a stream for one request. `more` descriptors only pass where any do.
    pub(crate) fn open_stream(&self, more: &[BorrowedFd<'_>]) -> Result<UnixStream, Errno> {
        let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        match self {
            ControlSocket::Passing(control_socket) => {
                let descriptors: Vec<_> =
                    std::iter::once(theirs.as_fd()).chain(more.iter().copied()).collect();
                passing::send(control_socket, &descriptors)?;
            }
            ControlSocket::Muxed { pump, .. } if more.is_empty() => {
                pump.open(&Purpose::Request.encode(), theirs.as_fd(), Hangup::Cuts)?;
            }
            ControlSocket::Muxed { .. } => return Err(Errno::OPNOTSUPP),
        }
        Ok(UnixStream::from(ours))
    }

    /// A stream that can become a connection; `None` where connections are handed over.
    pub(crate) fn open_connection(&self) -> io::Result<Option<TcpStream>> {
        let ControlSocket::Muxed { pump, .. } = self else { return Ok(None) };
        let (ours, theirs) = tcp_pair()?;
        pump.open(&Purpose::Request.encode(), theirs.as_fd(), Hangup::Waits)?;
        Ok(Some(TcpStream::from(ours)))
    }

    /// The egress sockets, which the guest sent before it answered; or those where what it relays arrives.
    pub(crate) fn take_egress(&self) -> Option<Vec<OwnedFd>> {
        match self {
            ControlSocket::Passing(control_socket) => passing::receive(control_socket).ok().flatten(),
            ControlSocket::Muxed { egress_sockets, .. } => {
                Some(std::mem::take(&mut *egress_sockets.lock().unwrap_or_else(PoisonError::into_inner)))
            }
        }
    }

    /// Sends what the network of the sandbox will have, before the setup: the guest begins with it.
    pub(crate) fn send_network(&self, egress: Option<&EgressSetup>) -> Result<(), SandboxError> {
        let mut bytes = Vec::new();
        frame::encode(Tag::Message, &message::encode(&egress), &mut bytes);
        let stream = self.open_stream(&[]).map_err(|_| guest_gone())?;
        write_by(&stream, &bytes, &Deadline::usual())
    }

    /// Sends the setup, with the mounts that belong to it; the answer is fetched from the result.
    pub(crate) fn send_setup(
        &self,
        setup: &Setup,
        mounts: &[BorrowedFd<'_>],
    ) -> Result<PendingSetup, SandboxError> {
        let mut bytes = Vec::new();
        frame::encode(Tag::Message, &message::encode(setup), &mut bytes);
        let stream = self.open_stream(mounts).map_err(|_| guest_gone())?;
        write_by(&stream, &bytes, &Deadline::usual())?;
        Ok(PendingSetup::sent(stream))
    }
}

/// Why there is no stream, as a person is told. That there are too many does not mean that the guest is gone.
pub(crate) fn not_opened(errno: Errno) -> SandboxError {
    let failed =
        |why: String| ErrorCode::GuestStream.error(format!("cannot open a stream to the guest: {why}"));
    match errno {
        Errno::PIPE | Errno::CONNRESET | Errno::NOTCONN => guest_gone(),
        Errno::MFILE => failed("as many are open as there can be".into()).hint(
            "each command, watch and connection has one: let some of them end; where there are few, `ulimit -n` says how many \
             files belljar may have open",
        ),
        other => failed(other.to_string()),
    }
}

/// Where what a guest relays is put in.
struct Places {
    /// Connections, and questions for names.
    caught: Option<(OwnedFd, OwnedFd)>,
    /// By their ports.
    routes: Vec<(u16, OwnedFd)>,
}

impl Places {
    /// The other ends are in the order of a report: connections, names, each of the routes.
    fn make(egress: Option<&EgressSetup>) -> io::Result<(Places, Vec<OwnedFd>)> {
        let mut places = Places { caught: None, routes: Vec::new() };
        let mut ends = Vec::new();
        let Some(egress) = egress else { return Ok((places, ends)) };
        if egress.catch.is_some() {
            let ((connections, one), (names, other)) = (arrivals::pair()?, arrivals::pair()?);
            places.caught = Some((connections, names));
            ends.extend([one, other]);
        }
        for port in &egress.routes {
            let (place, end) = arrivals::pair()?;
            places.routes.push((*port, place));
            ends.push(end);
        }
        Ok((places, ends))
    }

    /// The socket of a stream that the guest opens, whose other end has been put where it belongs. Whatever cannot be is refused.
    fn receive(&self, header: &[u8]) -> Option<OwnedFd> {
        let purpose = Purpose::decode(header)?;
        let place = match (purpose, &self.caught) {
            (Purpose::Caught { .. }, Some((connections, _))) => connections,
            (Purpose::Names, Some((_, names))) => names,
            (Purpose::Route { port }, _) => &self.routes.iter().find(|(known, _)| *known == port)?.1,
            (Purpose::Request | Purpose::Caught { .. } | Purpose::Names, _) => return None,
        };
        let dialled = purpose.dialled().unwrap_or(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0));
        let (ours, theirs) = tcp_pair().ok()?;
        arrivals::put(place, dialled, &theirs).ok()?;
        Some(ours)
    }
}

const NOW: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

#[cfg(test)]
mod tests {
    use super::*;
    use belljar_sys::rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    use belljar_wire::mux::MAX_STREAMS;
    use std::io::Read;
    use std::thread;

    #[test]
    fn a_guest_with_as_many_streams_as_there_can_be_is_not_gone() {
        let limit = getrlimit(Resource::Nofile);
        setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).expect("as many as may be");
        let (connection, theirs) = UnixStream::pair().expect("a connection");
        let mut guest = theirs.try_clone().expect("a copy");
        thread::spawn(move || while guest.read(&mut [0; 4096]).is_ok_and(|length| length > 0) {});
        let control_socket = ControlSocket::muxed(connection.into(), None).expect("a socket");
        let held: Vec<UnixStream> =
            (0..MAX_STREAMS).map(|_| control_socket.open_stream(&[]).expect("there is room")).collect();
        let too_many = [
            control_socket.open_stream(&[]).map(drop),
            control_socket
                .open_connection()
                .map(drop)
                .map_err(|error| Errno::from_io_error(&error).expect("of the kernel")),
        ];
        for one in too_many {
            let error = not_opened(one.expect_err("there is none"));
            assert_eq!(error.code, ErrorCode::GuestStream, "{error}");
            assert!(error.hint.is_some(), "{error}");
        }
        assert!(!control_socket.is_closed());
        drop(held);
        theirs.shutdown(std::net::Shutdown::Both).expect("the end");
        while !control_socket.is_closed() {
            thread::yield_now();
        }
    }

    #[test]
    fn a_control_socket_is_closed_when_its_other_end_is() {
        let (control_socket, theirs) = ControlSocket::new().expect("a socket");
        assert!(!control_socket.is_closed());
        drop(theirs);
        assert!(control_socket.is_closed());
    }
}
