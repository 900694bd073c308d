//! Connections from the host to what listens inside. Dialled here, in the sandbox's network, and to its loopback alone; the
//! connected socket goes to the host.

use crate::stream::{Stream, fault};
use belljar_sys::passing;
use belljar_sys::rustix::event::{PollFd, PollFlags, Timespec, poll};
use belljar_sys::rustix::fd::{AsFd, OwnedFd};
use belljar_sys::rustix::io::Errno;
use belljar_sys::rustix::net::{
    AddressFamily, SocketFlags, SocketType, connect, getpeername, getsockname, socket_with, sockopt,
};
use belljar_wire::frame::{Tag, encode};
use belljar_wire::message::{self, Catch, Caught, Intake, IntakeReport, Reply, Step};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Which ports of the loopback are not the sandbox's.
pub(crate) struct Ports {
    /// `None` where the network is not the sandbox's own.
    reserved: Option<Vec<u16>>,
}

impl Ports {
    /// What listens for the host already, before any program does.
    pub(crate) fn of(steps: &[Step], report: Option<&IntakeReport>) -> Ports {
        let mut reserved: Option<Vec<u16>> = None;
        for step in steps {
            match step {
                Step::EnterNetwork { intake } => {
                    reserved
                        .get_or_insert_default()
                        .extend(intake.iter().flat_map(|intake| listening(intake, report)));
                }
                Step::OpenIntake(intake) => {
                    reserved.get_or_insert_default().extend(listening(intake, report))
                }
                _ => {}
            }
        }
        Ports { reserved }
    }

    fn check(&self, port: u16) -> Result<(), Errno> {
        match &self.reserved {
            Some(reserved) if !reserved.contains(&port) => Ok(()),
            Some(_) | None => Err(Errno::ACCESS),
        }
    }
}

fn listening(intake: &Intake, report: Option<&IntakeReport>) -> Vec<u16> {
    let mut ports = intake.routes.clone();
    if let Some(Catch { port, ports_without_netfilter, .. }) = &intake.catch {
        ports.push(DNS);
        match report.map(|report| report.caught) {
            Some(Caught::EveryPort) => ports.push(*port),
            Some(Caught::SomePorts | Caught::Nothing) | None => ports.extend(ports_without_netfilter),
        }
    }
    ports
}

/// Connects and hands the connection over.
pub(crate) fn answer(ports: &Ports, port: u16, stream: &mut Stream) -> io::Result<()> {
    match ports.check(port).and_then(|()| dial(port, stream)) {
        Ok(socket) => {
            let mut frame = Vec::new();
            encode(Tag::Message, &message::encode(&Reply::Opened), &mut frame);
            passing::send_with(&*stream, &frame, &[socket.as_fd()])?;
            Ok(())
        }
        Err(errno) => stream.send_message(&Reply::Failed(fault(format!("connect to port {port}"), errno))),
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
    // Where nobody listens, the kernel may by chance have dialled from the very port that it dials.
    if getsockname(&socket)? == getpeername(&socket)?.ok_or(Errno::CONNREFUSED)? {
        return Err(Errno::CONNREFUSED);
    }
    Ok(socket)
}

/// Waits for the connection, but not for a host that has lost interest.
fn wait(socket: &OwnedFd, stream: &Stream) -> Result<(), Errno> {
    loop {
        let mut waiting = [PollFd::new(socket, PollFlags::OUT), PollFd::new(stream, PollFlags::RDHUP)];
        match poll(&mut waiting, Some(&PATIENCE)) {
            Ok(0) => return Err(Errno::TIMEDOUT),
            Ok(_) if !waiting[1].revents().is_empty() => return Err(Errno::CANCELED),
            Ok(_) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
}

const DNS: u16 = 53;
/// Of one address. Nothing is far away: who does not answer has more callers waiting than it takes.
const PATIENCE: Timespec = Timespec { tv_sec: 10, tv_nsec: 0 };
