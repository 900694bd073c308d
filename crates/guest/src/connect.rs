//! Connections from the host to what listens inside. Dialled here, in the sandbox's network, and to its loopback alone; the
//! connected socket goes to the host.

use crate::stream::{Stream, fault};
use belljar_sys::passing;
use belljar_sys::rustix::buffer::spare_capacity;
use belljar_sys::rustix::event::{PollFd, PollFlags, Timespec, poll};
use belljar_sys::rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use belljar_sys::rustix::io::{Errno, ioctl_fionbio, read};
use belljar_sys::rustix::net::{
    AddressFamily, SendFlags, Shutdown, SocketFlags, SocketType, connect, getpeername, getsockname, send,
    shutdown, socket_with, sockopt,
};
use belljar_wire::frame::{CHUNK, Tag, encode};
use belljar_wire::message::{self, Catch, Caught, EgressReport, EgressSetup, Reply, Step};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Which ports of the loopback are not the sandbox's.
pub(crate) struct Ports {
    /// `None` where the network is not the sandbox's own.
    reserved: Option<Vec<u16>>,
}

impl Ports {
    /// What listens for the host already, before any program does.
    pub(crate) fn of(steps: &[Step], report: Option<&EgressReport>) -> Ports {
        let mut reserved: Option<Vec<u16>> = None;
        for step in steps {
            match step {
                Step::EnterNetwork { egress } => {
                    reserved
                        .get_or_insert_default()
                        .extend(egress.iter().flat_map(|egress| listening(egress, report)));
                }
                Step::OpenEgress(egress) | Step::RelayEgress(egress) => {
                    reserved.get_or_insert_default().extend(listening(egress, report))
                }
                Step::NetworkIsReady { egress, report } => {
                    let listening = egress.iter().flat_map(|egress| listening(egress, report.as_ref()));
                    reserved.get_or_insert_default().extend(listening);
                }
                _ => {}
            }
        }
        Ports { reserved }
    }

    /// Is the network the sandbox's own?
    pub(crate) fn are_own(&self) -> bool {
        self.reserved.is_some()
    }

    pub(crate) fn check(&self, port: u16) -> Result<(), Errno> {
        match &self.reserved {
            Some(reserved) if !reserved.contains(&port) => Ok(()),
            Some(_) | None => Err(Errno::ACCESS),
        }
    }
}

fn listening(egress: &EgressSetup, report: Option<&EgressReport>) -> Vec<u16> {
    let mut ports = egress.routes.clone();
    if let Some(Catch { port, ports_without_netfilter, .. }) = &egress.catch {
        ports.push(DNS);
        match report.map(|report| report.caught) {
            Some(Caught::EveryPort) => ports.push(*port),
            Some(Caught::SomePorts | Caught::Nothing) | None => ports.extend(ports_without_netfilter),
        }
    }
    ports
}

/// Connects and hands the connection over; or, where none can be handed over, lets the stream become it.
pub(crate) fn answer(ports: &Ports, port: u16, stream: &mut Stream, handover: Handover) -> io::Result<()> {
    match ports.check(port).and_then(|()| dial(port, stream)) {
        Ok(socket) if handover == Handover::Impossible => {
            stream.send_message(&Reply::Opened)?;
            join(stream.as_fd(), socket.as_fd())
        }
        Ok(socket) => {
            let mut frame = Vec::new();
            encode(Tag::Message, &message::encode(&Reply::Opened), &mut frame);
            passing::send_with(&*stream, &frame, &[socket.as_fd()])?;
            Ok(())
        }
        Err(errno) => stream.send_message(&Reply::Failed(fault(format!("connect to port {port}"), errno))),
    }
}

/// Whether the host can be given descriptors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Handover {
    Possible,
    Impossible,
}

/// Moves bytes both ways until both sides have said all, or one is gone.
fn join(one: BorrowedFd<'_>, other: BorrowedFd<'_>) -> io::Result<()> {
    let mut ways = [Way::new(one, other), Way::new(other, one)];
    ioctl_fionbio(one, true)?;
    ioctl_fionbio(other, true)?;
    while ways.iter().any(|way| !way.is_over) {
        let mut waiting: Vec<PollFd<'_>> = ways.iter().map(Way::waits_for).collect();
        match poll(&mut waiting, None) {
            Err(Errno::INTR) => continue,
            other => other?,
        };
        let ready = [0, 1].map(|way| !waiting[way].revents().is_empty());
        for (way, _) in ways.iter_mut().zip(ready).filter(|(_, ready)| *ready) {
            way.advance()?;
        }
    }
    Ok(())
}

/// One direction of two sockets that are joined.
struct Way<'s> {
    from: BorrowedFd<'s>,
    to: BorrowedFd<'s>,
    waiting: Vec<u8>,
    is_over: bool,
}

impl<'s> Way<'s> {
    fn new(from: BorrowedFd<'s>, to: BorrowedFd<'s>) -> Way<'s> {
        Way { from, to, waiting: Vec::new(), is_over: false }
    }

    fn waits_for(&self) -> PollFd<'s> {
        match (self.is_over, self.waiting.is_empty()) {
            // A side that has sent everything may still receive. When it hangs up for good, what is under way to it ends.
            (true, _) => PollFd::from_borrowed_fd(self.from, PollFlags::empty()),
            (false, true) => PollFd::from_borrowed_fd(self.from, PollFlags::IN),
            (false, false) => PollFd::from_borrowed_fd(self.to, PollFlags::OUT),
        }
    }

    fn advance(&mut self) -> io::Result<()> {
        if self.is_over {
            // Nothing was waited for: it can only be gone.
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        if self.waiting.is_empty() {
            self.waiting.reserve(CHUNK);
            match read(self.from, spare_capacity(&mut self.waiting)) {
                Ok(0) => {
                    self.is_over = true;
                    return Ok(shutdown(self.to, Shutdown::Write)?);
                }
                Ok(_) => {}
                Err(Errno::AGAIN | Errno::INTR) => return Ok(()),
                Err(errno) => return Err(errno.into()),
            }
        }
        match send(self.to, &self.waiting, SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
            Ok(length) => drop(self.waiting.drain(..length)),
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        Ok(())
    }
}

/// Both addresses of the loopback; the first refusal is what counts.
fn dial(port: u16, stream: &Stream) -> Result<OwnedFd, Errno> {
    dial_at(Ipv4Addr::LOCALHOST.into(), port, stream)
        .or_else(|errno| dial_at(Ipv6Addr::LOCALHOST.into(), port, stream).map_err(|_| errno))
}

fn dial_at(address: IpAddr, port: u16, stream: &Stream) -> Result<OwnedFd, Errno> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(family, SocketType::STREAM, flags, None)?;
    match connect(&socket, &SocketAddr::new(address, port)) {
        Ok(()) => {}
        Err(Errno::INPROGRESS) => wait(&socket, stream)?,
        Err(errno) => return Err(errno),
    }
    sockopt::socket_error(&socket)??;
    // Without a listener, the kernel may by chance have dialled from the very port that it dials (a self-connect).
    if getsockname(&socket)? == getpeername(&socket)?.ok_or(Errno::CONNREFUSED)? {
        return Err(Errno::CONNREFUSED);
    }
    Ok(socket)
}

/// Waits for the connection, but not for a host that has lost interest.
fn wait(socket: &OwnedFd, stream: &Stream) -> Result<(), Errno> {
    loop {
        let mut waiting = [PollFd::new(socket, PollFlags::OUT), PollFd::new(stream, PollFlags::RDHUP)];
        match poll(&mut waiting, Some(&CONNECT_TIMEOUT)) {
            Ok(0) => return Err(Errno::TIMEDOUT),
            Ok(_) if !waiting[1].revents().is_empty() => return Err(Errno::CANCELED),
            Ok(_) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
}

const DNS: u16 = 53;
/// Of one address. Nothing is far away: a listener that does not answer has more callers waiting than it takes.
const CONNECT_TIMEOUT: Timespec = Timespec { tv_sec: 10, tv_nsec: 0 };
