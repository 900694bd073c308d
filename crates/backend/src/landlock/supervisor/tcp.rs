//! TCP: every connection of a program is made by us, to a listener of ours, and goes on to the gateway with the address that was
//! dialled; or to a server of the sandbox's own.
//!
//! A dial and the accept that belongs to it are one step: the connection is told from those of strangers (any user of the machine can dial
//! a loopback address) by its own address, which no other socket can have meanwhile.

use super::Shared;
use super::caller::Caller;
use super::judge::{Address, Dialled, Flags, NewSocket};
use super::table::{Kept, inode};
use belljar_sys::arrivals;
use belljar_sys::net::{choose_port_at_connect, tie_to_loopback, unmapped};
use belljar_sys::notify::{Answer, Place};
use belljar_sys::rustix::event::{PollFd, PollFlags, Timespec, poll};
use belljar_sys::rustix::fd::OwnedFd;
use belljar_sys::rustix::fs::{OFlags, fcntl_getfl};
use belljar_sys::rustix::io::Errno;
use belljar_sys::rustix::net::{
    AddressFamily, SocketFlags, SocketType, accept_with, bind, connect, getsockname, listen, socket_with,
    sockopt,
};
use std::fs;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, SocketAddrV6, TcpStream};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

/// Gives the caller a socket, and keeps it too.
pub(super) fn give_socket(
    shared: &Shared,
    caller: &Caller<'_>,
    kind: NewSocket,
    flags: Flags,
) -> Result<(), Errno> {
    let (family, of) = match kind {
        NewSocket::Tcp { ipv6: false } => (AddressFamily::INET, SocketType::STREAM),
        NewSocket::Tcp { ipv6: true } => (AddressFamily::INET6, SocketType::STREAM),
        NewSocket::Unix { packets: false } => (AddressFamily::UNIX, SocketType::STREAM),
        NewSocket::Unix { packets: true } => (AddressFamily::UNIX, SocketType::SEQPACKET),
        NewSocket::Udp { .. } => return Err(Errno::PROTONOSUPPORT),
    };
    let more = if flags.non_blocking { SocketFlags::NONBLOCK } else { SocketFlags::empty() };
    let socket = socket_with(family, of, SocketFlags::CLOEXEC | more, None)?;
    if matches!(kind, NewSocket::Tcp { .. }) {
        tie_to_loopback(&socket)?;
    }
    let number = inode(&socket)?;
    let kept = Kept::new(socket, kind);
    let socket = Arc::clone(&kept.socket);
    // Before the caller has it: it may use it at once.
    shared.table.keep(number, kept)?;
    let given = caller.answer_with(&*socket, Place::Lowest, flags.close_on_exec);
    match given {
        Ok(()) => shared.table.arrived(number),
        Err(_) => drop(shared.table.take(number)),
    }
    given
}

/// connect(2) of a TCP socket.
pub(super) fn connect_to(
    shared: &Arc<Shared>,
    number: u64,
    kept: Kept,
    ipv6: bool,
    address: &Address,
) -> Outcome {
    let dialled = match address {
        Address::Inet(address) => shared.network.dial(*address),
        Address::Nothing => {
            shared.table.put_back(number, kept);
            return Outcome::Now(Answer::Value(0));
        }
        Address::Path(_) | Address::Abstract | Address::Unnamed => Dialled::Refused(Errno::AFNOSUPPORT),
    };
    let (dialled, place) = match dialled {
        Dialled::Refused(errno) => {
            shared.table.put_back(number, kept);
            return Outcome::Now(Answer::Error(errno));
        }
        Dialled::Own(port) => return to_own_server(shared, number, kept, ipv6, port),
        Dialled::Gateway(dialled) => (dialled, shared.places.connections.as_ref()),
        Dialled::Route(port) => {
            let route = shared.places.routes.iter().find(|(known, _)| *known == port);
            (SocketAddrV4::new(Ipv4Addr::LOCALHOST, port), route.map(|(_, place)| place))
        }
    };
    let done = place.ok_or(Errno::NETUNREACH).and_then(|place| {
        let (connection, answer) = dial(shared, &kept, ipv6)?;
        let _ = sockopt::set_tcp_nodelay(&connection, true);
        hand_over(place, dialled, &connection)?;
        Ok(answer)
    });
    match done {
        Ok(answer) => Outcome::Now(answer),
        Err(errno) => {
            shared.table.put_back(number, kept);
            Outcome::Now(Answer::Error(errno))
        }
    }
}

/// Gives the gateway a connection. Where too many wait there, the caller waits a while; then the connection is closed again, which its program
/// sees.
fn hand_over(place: &OwnedFd, dialled: SocketAddrV4, connection: &OwnedFd) -> Result<(), Errno> {
    match arrivals::put(place, dialled, connection) {
        Err(Errno::AGAIN) => {
            poll(&mut [PollFd::new(place, PollFlags::OUT)], Some(&ACCEPT_TIMEOUT))?;
            arrivals::put(place, dialled, connection)
        }
        other => other,
    }
}

/// What a call came to.
pub(super) enum Outcome {
    Now(Answer),
    /// It may take long, and is done by a thread of its own.
    Later(Box<dyn FnOnce() -> Answer + Send>),
}

/// Connects the socket to our own listener. Gives the other end, and what the caller is told: sockets that do not block are "in
/// progress" to it, as always.
fn dial(shared: &Shared, kept: &Kept, ipv6: bool) -> Result<(OwnedFd, Answer), Errno> {
    let _one = shared.dialling.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    prepare(shared, kept, ipv6)?;
    let answer = match connect(&*kept.socket, &own_address(shared.gate_address, ipv6)) {
        Ok(()) => Answer::Value(0),
        Err(Errno::INPROGRESS) => Answer::Error(Errno::INPROGRESS),
        Err(errno) => return Err(errno),
    };
    let ours = unmapped(SocketAddr::try_from(getsockname(&*kept.socket)?)?);
    for _ in 0..CROWD {
        let mut waiting = [PollFd::new(&shared.gate, PollFlags::IN)];
        if poll(&mut waiting, Some(&ACCEPT_TIMEOUT))? == 0 {
            return Err(Errno::TIMEDOUT);
        }
        let connection = match accept_with(&shared.gate, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
            Err(Errno::AGAIN | Errno::CONNABORTED | Errno::INTR) => continue,
            other => other?,
        };
        let peer = belljar_sys::rustix::net::getpeername(&connection)?.ok_or(Errno::CONNABORTED)?;
        if SocketAddr::try_from(peer)? == ours {
            return Ok((connection, answer));
        }
        // A stranger. With nothing left to linger for, closing sends a reset.
        let _ = sockopt::set_socket_linger(&connection, Some(Duration::ZERO));
    }
    Err(Errno::CONNREFUSED)
}

/// Has the socket come from the sandbox's own address.
fn prepare(shared: &Shared, kept: &Kept, ipv6: bool) -> Result<(), Errno> {
    if ipv6 {
        sockopt::set_ipv6_v6only(&*kept.socket, false)?;
    }
    if !kept.is_bound {
        choose_port_at_connect(&*kept.socket)?;
        match bind(&*kept.socket, &own_address(SocketAddrV4::new(shared.network.own, 0), ipv6)) {
            // By an earlier try to connect.
            Err(Errno::INVAL) => {}
            other => other?,
        }
    }
    Ok(())
}

/// An address of ours in a socket's family.
fn own_address(address: SocketAddrV4, ipv6: bool) -> SocketAddr {
    match ipv6 {
        false => address.into(),
        true => SocketAddrV6::new(address.ip().to_ipv6_mapped(), address.port(), 0, 0).into(),
    }
}

fn to_own_server(shared: &Arc<Shared>, number: u64, kept: Kept, ipv6: bool, port: u16) -> Outcome {
    if !shared.serves(port) {
        shared.table.put_back(number, kept);
        return Outcome::Now(Answer::Error(Errno::CONNREFUSED));
    }
    if let Err(errno) = prepare(shared, &kept, ipv6) {
        shared.table.put_back(number, kept);
        return Outcome::Now(Answer::Error(errno));
    }
    let address = own_address(SocketAddrV4::new(shared.network.own, port), ipv6);
    let blocks = fcntl_getfl(&*kept.socket).is_ok_and(|flags| !flags.contains(OFlags::NONBLOCK));
    let theirs = Arc::clone(shared);
    let work = move || match connect(&*kept.socket, &address) {
        Ok(()) => Answer::Value(0),
        Err(Errno::INPROGRESS) => Answer::Error(Errno::INPROGRESS),
        Err(errno) => {
            theirs.table.put_back(number, kept);
            Answer::Error(errno)
        }
    };
    // A server that accepts nothing lets its callers wait.
    if blocks { Outcome::Later(Box::new(work)) } else { Outcome::Now(work()) }
}

/// bind(2) of a TCP socket: to the sandbox's own address.
pub(super) fn bind_to(shared: &Shared, kept: &mut Kept, ipv6: bool, address: &Address) -> Result<(), Errno> {
    let Address::Inet(address) = address else { return Err(Errno::INVAL) };
    if kept.is_bound {
        return Err(Errno::INVAL);
    }
    let port = shared.network.bind(*address)?;
    if ipv6 {
        sockopt::set_ipv6_v6only(&*kept.socket, false)?;
    }
    bind(&*kept.socket, &own_address(SocketAddrV4::new(shared.network.own, port), ipv6))?;
    kept.is_bound = true;
    Ok(())
}

/// listen(2) of a TCP socket: one without an address gets one first, since the kernel would take one for all the world.
pub(super) fn listen_at(
    shared: &Shared,
    number: u64,
    kept: &mut Kept,
    ipv6: bool,
    backlog: i32,
) -> Result<(), Errno> {
    if !kept.is_bound {
        bind_to(shared, kept, ipv6, &Address::Inet(SocketAddr::new(shared.network.own.into(), 0)))?;
    }
    listen(&*kept.socket, backlog)?;
    let address = SocketAddr::try_from(getsockname(&*kept.socket)?)?;
    shared.table.listens(address.port(), number);
    Ok(())
}

impl Shared {
    /// Whether a program inside listens at this port now. A server of the host that listens at every address would answer at ours too.
    fn serves(&self, port: u16) -> bool {
        let Some(number) = self.table.listener(port) else { return false };
        let is_there = ["/proc/self/net/tcp", "/proc/self/net/tcp6"].iter().any(|table| {
            let table = fs::read_to_string(table).unwrap_or_default();
            table.lines().any(|line| is_listener(line, port, number))
        });
        if !is_there {
            self.table.forget_listener(port);
        }
        is_there
    }

    /// A connection from the host to a server of the sandbox's own.
    pub(super) fn connect_from_outside(&self, port: u16) -> std::io::Result<TcpStream> {
        if !self.serves(port) {
            return Err(Errno::CONNREFUSED.into());
        }
        let address = SocketAddr::new(self.network.own.into(), port);
        TcpStream::connect_timeout(&address, CONNECT_TIMEOUT)
    }

    /// Does something that may take long, if there are not too many of that kind already.
    pub(super) fn later(
        self: &Arc<Shared>,
        id: u64,
        thread: u32,
        work: Box<dyn FnOnce() -> Answer + Send>,
    ) -> Result<(), Errno> {
        if self.waiting.fetch_add(1, Ordering::SeqCst) >= MAX_WAITING {
            self.waiting.fetch_sub(1, Ordering::SeqCst);
            return Err(Errno::AGAIN);
        }
        let shared = Arc::clone(self);
        let started = thread::Builder::new().stack_size(super::STACK).spawn(move || {
            let answer = work();
            Caller::new(&shared.listener, id, thread).answer(answer);
            shared.waiting.fetch_sub(1, Ordering::SeqCst);
        });
        started.map(drop).map_err(|_| {
            self.waiting.fetch_sub(1, Ordering::SeqCst);
            Errno::AGAIN
        })
    }
}

/// Whether a line of /proc/net/tcp is that of a socket that listens at this port: proc_pid_net(5).
fn is_listener(line: &str, port: u16, inode: u64) -> bool {
    let mut columns = line.split_ascii_whitespace();
    let (local, state) = (columns.nth(1), columns.nth(1));
    let is_port = local
        .and_then(|local| local.rsplit_once(':'))
        .is_some_and(|(_, hex)| u16::from_str_radix(hex, 16) == Ok(port));
    is_port && state == Some(LISTEN) && columns.nth(5).and_then(|text| text.parse().ok()) == Some(inode)
}

/// TCP_LISTEN of the kernel.
const LISTEN: &str = "0A";
/// The kernel hands over a connection on the loopback at once; only a machine that is out of time takes longer.
const ACCEPT_TIMEOUT: Timespec = Timespec { tv_sec: 2, tv_nsec: 0 };
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Strangers that may stand before a connection of ours.
const CROWD: usize = 4096;
/// Calls that wait for something at once.
const MAX_WAITING: usize = 512;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listener_is_known_by_its_port_its_state_and_its_inode() {
        let line = "   1: 0809097F:0BB8 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 4711 1 ffff 100 0 0 10 0";
        assert!(is_listener(line, 3000, 4711));
        assert!(!is_listener(line, 3001, 4711));
        assert!(!is_listener(line, 3000, 4712));
        assert!(!is_listener(&line.replace(" 0A ", " 01 "), 3000, 4711));
        assert!(!is_listener("  sl  local_address rem_address   st", 3000, 4711));
    }
}
