//! The sandbox's only egress: sockets in its own network namespace, opened before the first command exists and handed to
//! the host, which serves them.
//!
//! Every address is local, so every address that a program dials arrives here. nf_tables redirects every TCP port to one
//! listener, whose connections keep the address that was dialled. DNS is served at 127.0.0.1; for programs with a built-in
//! resolver, the DNS socket is bound to every address, and answers from the address that was queried. Everything else (UDP,
//! ICMP) is refused at once, so that no program waits for an answer. A kernel without nf_tables gets a listener per port
//! instead. A route, to the model or to the host's repository, is a plain listener on loopback; there may be nothing but
//! routes.

mod netlink;
pub(crate) mod relayed;
mod rules;

use belljar_sys::rustix::fd::OwnedFd;
use belljar_sys::rustix::io::Errno;
use belljar_sys::rustix::net::{
    AddressFamily, Ipv4Addr, Ipv6Addr, SocketAddrAny, SocketAddrV4, SocketAddrV6, SocketFlags, SocketType,
    bind, listen, socket_with, sockopt,
};
use belljar_sys::{datagram, net};
use belljar_wire::message::{Catch, Caught, EgressReport, EgressSetup, Families};
use std::thread::{self, JoinHandle};

/// The egress sockets, and what they are.
pub(crate) struct Opened {
    pub(crate) report: EgressReport,
    /// In the report's order: listeners first, then the DNS sockets, then those of the routes.
    pub(crate) sockets: Vec<OwnedFd>,
}

/// Opens the egress sockets in the calling thread's network namespace, whose loopback device is up.
pub(crate) fn open(egress: &EgressSetup) -> Result<Opened, Errno> {
    let mut opened = match &egress.catch {
        Some(catch) => everything(catch)?,
        None => Opened { report: nothing(), sockets: Vec::new() },
    };
    for port in &egress.routes {
        let listeners = route(Ipv4Addr::LOCALHOST, *port)?;
        opened.report.routes.push(listeners.len() as u16);
        opened.sockets.extend(listeners);
    }
    Ok(opened)
}

/// Opens the egress sockets in a network that the guest may not change, where every address of 127.0.0.0/8 is local and no
/// other: for a separate kernel, as gVisor is. Names are given addresses from that range.
pub(crate) fn open_without_powers(egress: &EgressSetup) -> Result<Opened, Errno> {
    let mut opened = Opened { report: nothing(), sockets: Vec::new() };
    if let Some(catch) = &egress.catch {
        for port in &catch.ports_without_netfilter {
            opened.sockets.push(listener(Families::Ipv4, *port)?);
        }
        opened.report.caught = Caught::SomePorts;
        opened.report.listeners = opened.sockets.len() as u16;
        opened.sockets.push(resolver(Ipv4Addr::LOCALHOST.into())?);
    }
    for port in &egress.routes {
        // Connections to a name at the same port arrive here too: the host tells them apart by the address that was dialled.
        let listeners = route(Ipv4Addr::UNSPECIFIED, *port)?;
        opened.report.routes.push(listeners.len() as u16);
        opened.sockets.extend(listeners);
    }
    Ok(opened)
}

/// Brings up the loopback device of a namespace that a container runtime made, with both of its addresses: container
/// runtimes switch IPv6 off.
pub(crate) fn make_usable() -> Result<(), Errno> {
    for device in ["all", "default", "lo"] {
        // A kernel without IPv6 has no switch for it.
        let _ = std::fs::write(format!("/proc/sys/net/ipv6/conf/{device}/disable_ipv6"), "0");
    }
    net::loopback_up()
}

fn everything(catch: &Catch) -> Result<Opened, Errno> {
    let families = rules::make_everything_local(catch)?;
    let caught = match rules::lead_to(catch.port) {
        Ok(()) => Caught::EveryPort,
        Err(Errno::PROTONOSUPPORT | Errno::OPNOTSUPP | Errno::NOENT | Errno::INVAL) => Caught::SomePorts,
        Err(errno) => return Err(errno),
    };
    let ports: &[u16] = match caught {
        Caught::EveryPort => &[catch.port],
        Caught::SomePorts | Caught::Nothing => &catch.ports_without_netfilter,
    };
    let mut sockets = Vec::new();
    for port in ports {
        sockets.push(listener(families, *port)?);
    }
    if caught == Caught::EveryPort {
        net::answer_for_any_address(&sockets[0])?;
    }
    let listeners = sockets.len() as u16;
    sockets.push(resolver(Ipv4Addr::UNSPECIFIED.into())?);
    if families == Families::Both {
        sockets.push(resolver(Ipv6Addr::UNSPECIFIED.into())?);
    }
    Ok(Opened { report: EgressReport { families, caught, listeners, routes: Vec::new() }, sockets })
}

/// A network namespace of the guest's own. Making it takes long, and so does opening its sockets, so both are begun before the setup
/// arrives, and a thread does the second beside the setup.
pub(crate) struct Network {
    entered: Result<(), Errno>,
    egress: Option<EgressSetup>,
    opening: Option<JoinHandle<Result<Opened, Errno>>>,
}

impl Network {
    /// Enters a new one.
    pub(crate) fn enter() -> Network {
        Network { entered: net::enter_new_namespace(), egress: None, opening: None }
    }

    /// Begins to open its sockets.
    pub(crate) fn begin(mut self, egress: Option<EgressSetup>) -> Network {
        self.egress.clone_from(&egress);
        if let (Ok(()), Some(egress)) = (self.entered, egress) {
            let opening = thread::Builder::new().stack_size(STACK).spawn(move || open(&egress));
            self.entered = opening.map(|thread| self.opening = Some(thread)).map_err(|_| Errno::AGAIN);
        }
        self
    }

    /// Its sockets, if it was to have any. They have to be those that the setup names.
    pub(crate) fn finish(self, named: Option<&EgressSetup>) -> Result<Option<Opened>, Errno> {
        self.entered?;
        if self.egress.as_ref() != named {
            return Err(Errno::INVAL);
        }
        self.opening.map(|thread| thread.join().unwrap_or(Err(Errno::IO))).transpose()
    }
}

/// Takes connections to this port, whichever address was dialled.
fn listener(families: Families, port: u16) -> Result<OwnedFd, Errno> {
    let (family, address) = match families {
        Families::Both => {
            (AddressFamily::INET6, SocketAddrAny::from(SocketAddrV6::new(Ipv6Addr::UNSPECIFIED, port, 0, 0)))
        }
        Families::Ipv4 => {
            (AddressFamily::INET, SocketAddrAny::from(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, port)))
        }
    };
    let socket = socket_with(family, SocketType::STREAM, FLAGS, None)?;
    if families == Families::Both {
        sockopt::set_ipv6_v6only(&socket, false)?;
    }
    bind(&socket, &address)?;
    listen(&socket, BACKLOG)?;
    Ok(socket)
}

/// Where programs find what the host serves to them: at both loopback addresses, before any program is there to take the port. What goes
/// to loopback is not led anywhere else by the rules.
fn route(ipv4: Ipv4Addr, port: u16) -> Result<Vec<OwnedFd>, Errno> {
    let at = |family: AddressFamily, address: std::net::SocketAddr| {
        let socket = socket_with(family, SocketType::STREAM, FLAGS, None)?;
        if family == AddressFamily::INET6 {
            sockopt::set_ipv6_v6only(&socket, true)?;
        }
        bind(&socket, &address)?;
        listen(&socket, BACKLOG)?;
        Ok(socket)
    };
    let mut sockets = vec![at(AddressFamily::INET, (ipv4, port).into())?];
    match at(AddressFamily::INET6, (Ipv6Addr::LOCALHOST, port).into()) {
        Ok(socket) => sockets.push(socket),
        // IPv6 is switched off.
        Err(Errno::AFNOSUPPORT | Errno::ADDRNOTAVAIL) => {}
        Err(errno) => return Err(errno),
    }
    Ok(sockets)
}

/// Without names there is nothing to be caught.
fn nothing() -> EgressReport {
    EgressReport { families: Families::Ipv4, caught: Caught::Nothing, listeners: 0, routes: Vec::new() }
}

/// The DNS socket. A client ignores an answer from an address that it did not query: a socket for all addresses has to be
/// told which one was queried, and to be allowed to answer from it.
fn resolver(address: std::net::IpAddr) -> Result<OwnedFd, Errno> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = socket_with(family, SocketType::DGRAM, FLAGS, None)?;
    if address.is_unspecified() {
        datagram::tell_destinations(&socket)?;
        net::answer_for_any_address(&socket)?;
    }
    if family == AddressFamily::INET6 {
        sockopt::set_ipv6_v6only(&socket, true)?;
    }
    bind(&socket, &std::net::SocketAddr::new(address, DNS))?;
    Ok(socket)
}

/// The host serves them from an event loop.
const FLAGS: SocketFlags = SocketFlags::CLOEXEC.union(SocketFlags::NONBLOCK);
/// As many as the kernel lets wait by default (net.core.somaxconn).
const BACKLOG: i32 = 4096;
const DNS: u16 = 53;
const STACK: usize = 64 * 1024;
