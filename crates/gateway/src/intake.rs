//! The sockets that a sandbox's connections arrive at: born in its network namespace, served here.

use crate::names::Addresses;
use crate::places::Arrival;
use belljar_spec::egress::{EgressPolicy, Mode};
use belljar_sys::rustix::fd::OwnedFd;
use belljar_sys::rustix::net::sockopt;
use belljar_sys::{arrivals, net};
use std::collections::BTreeSet;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use tokio::io::Interest;
use tokio::net::{TcpListener, TcpStream, UdpSocket, UnixStream};

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
    pub(crate) listeners: Vec<Source>,
    pub(crate) resolvers: Vec<Asked>,
    pub(crate) routes: Vec<Source>,
}

/// Where connections come from.
pub(crate) enum Source {
    /// They are accepted.
    Listener(TcpListener),
    /// They arrive, with what was dialled: accepted by the guest, and relayed.
    Arrivals(UnixStream),
}

/// Where names are asked.
pub(crate) enum Asked {
    /// In datagrams.
    Datagrams(UdpSocket),
    /// On connections of the guest's own, which pass on the datagrams that it gets.
    Relayed(Source),
}

impl Source {
    /// The next connection, and what the program inside dialled.
    pub(crate) async fn next(&self) -> io::Result<(TcpStream, SocketAddr)> {
        match self {
            Source::Listener(listener) => {
                let (stream, _) = listener.accept().await?;
                // It has that address, wherever the kernel led it.
                let dialled = net::unmapped(stream.local_addr()?);
                Ok((stream, dialled))
            }
            Source::Arrivals(place) => {
                let taken = place.async_io(Interest::READABLE, || Ok(arrivals::take(place)?)).await?;
                let Some((dialled, socket)) = taken else {
                    // The guest is gone. Whoever waits for it will hear of that elsewhere.
                    return std::future::pending().await;
                };
                let stream = std::net::TcpStream::from(socket);
                stream.set_nonblocking(true)?;
                Ok((TcpStream::from_std(stream)?, dialled.into()))
            }
        }
    }
}

impl Intake {
    /// The addresses that names get.
    pub(crate) fn addresses(&self) -> Addresses {
        match (self.listeners.iter().any(arrivals::is_place), self.has_ipv6) {
            (true, _) => Addresses::Loopback,
            (false, true) => Addresses::Both,
            (false, false) => Addresses::Ipv4,
        }
    }

    /// How connections come out of it.
    pub(crate) fn arrival(&self) -> Arrival {
        match self.listeners.iter().chain(&self.routes).any(arrivals::is_place) {
            true => Arrival::Relayed,
            false => Arrival::Accepted,
        }
    }

    /// Must be called in the event loop that will serve them.
    pub(crate) fn open(self) -> io::Result<Open> {
        let listener = |socket: OwnedFd| {
            if arrivals::is_place(&socket) {
                return UnixStream::from_std(socket.into()).map(Source::Arrivals);
            }
            let socket = std::net::TcpListener::from(socket);
            socket.set_nonblocking(true)?;
            // Passed down to every connection. Small writes of a program inside are not ours to delay.
            sockopt::set_tcp_nodelay(&socket, true)?;
            TcpListener::from_std(socket).map(Source::Listener)
        };
        let resolver = |socket: OwnedFd| {
            if arrivals::is_place(&socket) {
                return listener(socket).map(Asked::Relayed);
            }
            let socket = std::net::UdpSocket::from(socket);
            socket.set_nonblocking(true)?;
            UdpSocket::from_std(socket).map(Asked::Datagrams)
        };
        Ok(Open {
            listeners: self.listeners.into_iter().map(listener).collect::<Result<_, _>>()?,
            resolvers: self.resolvers.into_iter().map(resolver).collect::<Result<_, _>>()?,
            routes: self.routes.into_iter().map(listener).collect::<Result<_, _>>()?,
        })
    }
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
/// The same where no address but those of the loopback device is local: names get addresses behind this one. What programs inside
/// serve to each other has lower ones. `belljar_wire::purpose` says the same to the guest.
pub const LOOPBACK: Ipv4Addr = Ipv4Addr::new(127, 128, 0, 1);
/// The sandbox's own IPv6 address: from a private range (RFC 4193) that spells our name.
pub const IPV6: Ipv6Addr = Ipv6Addr::new(0xfd62, 0x656c, 0x6c6a, 0x6172, 0, 0, 0, 1);
/// Where every TCP port leads. Nobody without privilege can bind it, and nobody inside has any.
pub const PORT: u16 = 1;
/// Where names are asked, inside.
pub const DNS_ADDRESS: Ipv4Addr = Ipv4Addr::LOCALHOST;
/// Descriptors are passed in one packet, which holds 64.
const MOST_PORTS: usize = 60;
