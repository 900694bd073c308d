//! The sockets that a sandbox's connections arrive at: born in its network namespace, served here.

use crate::names::Families;
use belljar_spec::egress::{EgressPolicy, Mode};
use belljar_sys::net;
use belljar_sys::rustix::fd::OwnedFd;
use belljar_sys::rustix::net::sockopt;
use std::collections::BTreeSet;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use tokio::net::{TcpListener, TcpStream, UdpSocket};

/// What a guest handed over.
pub struct Intake {
    /// Where TCP connections arrive.
    pub listeners: Vec<OwnedFd>,
    /// Where names are asked.
    pub resolvers: Vec<OwnedFd>,
    /// Where the model is found.
    pub routes: Vec<OwnedFd>,
    /// Whether there is IPv6 inside.
    pub has_ipv6: bool,
}

/// The same, in an event loop.
pub(crate) struct Open {
    pub(crate) listeners: Vec<TcpListener>,
    pub(crate) resolvers: Vec<UdpSocket>,
    pub(crate) routes: Vec<TcpListener>,
}

impl Intake {
    pub(crate) fn families(&self) -> Families {
        if self.has_ipv6 { Families::Both } else { Families::Ipv4 }
    }

    /// Must be called in the event loop that will serve them.
    pub(crate) fn open(self) -> io::Result<Open> {
        let listener = |socket: OwnedFd| {
            let socket = std::net::TcpListener::from(socket);
            socket.set_nonblocking(true)?;
            // Passed down to every connection. Small writes of a program inside are not ours to delay.
            sockopt::set_tcp_nodelay(&socket, true)?;
            TcpListener::from_std(socket)
        };
        let resolver = |socket: OwnedFd| {
            let socket = std::net::UdpSocket::from(socket);
            socket.set_nonblocking(true)?;
            UdpSocket::from_std(socket)
        };
        Ok(Open {
            listeners: self.listeners.into_iter().map(listener).collect::<Result<_, _>>()?,
            resolvers: self.resolvers.into_iter().map(resolver).collect::<Result<_, _>>()?,
            routes: self.routes.into_iter().map(listener).collect::<Result<_, _>>()?,
        })
    }
}

/// What the program inside dialled: its connection has that address, wherever the kernel led it.
pub(crate) fn dialled(stream: &TcpStream) -> io::Result<SocketAddr> {
    Ok(net::unmapped(stream.local_addr()?))
}

/// The ports that a policy opens, for a kernel that cannot lead all of them to one. Ranges and the open mode have too
/// many; what they would add is not reachable there.
pub fn ports(policy: &EgressPolicy) -> Vec<u16> {
    let ranges = policy.allow.iter().flat_map(|rule| rule.openings.iter().map(|opening| opening.ports));
    let named = ranges.flat_map(|range| (range.first()..=range.last()).take(MOST_PORTS));
    let usual: &[u16] = if policy.mode == Mode::Open { &[80, 443, 22] } else { &[] };
    let ports: BTreeSet<u16> = [53].into_iter().chain(usual.iter().copied()).chain(named).collect();
    ports.into_iter().take(MOST_PORTS).collect()
}

/// The sandbox's own IPv4 address: from a range that is meant for tests of networks, and so nobody's (RFC 2544).
pub const IPV4: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 1);
/// The sandbox's own IPv6 address: from a private range (RFC 4193) that spells our name.
pub const IPV6: Ipv6Addr = Ipv6Addr::new(0xfd62, 0x656c, 0x6c6a, 0x6172, 0, 0, 0, 1);
/// Where every TCP port leads. Nobody without privilege can bind it, and nobody inside has any.
pub const PORT: u16 = 1;
/// Where names are asked, inside.
pub const DNS_ADDRESS: Ipv4Addr = Ipv4Addr::LOCALHOST;
/// Descriptors are passed in one packet, which holds 64.
const MOST_PORTS: usize = 60;
