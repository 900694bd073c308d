//! The sockets that a sandbox's connections arrive at: born in its network namespace, served here.

use crate::connection_limits::Arrival;
use crate::names::Addresses;
use belljar_spec::egress::{EgressPolicy, Mode, PortRange};
use belljar_sys::rustix::fd::OwnedFd;
use belljar_sys::rustix::net::sockopt;
use belljar_sys::{arrivals, net};
use std::collections::BTreeSet;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use tokio::io::Interest;
use tokio::net::{TcpListener, TcpStream, UdpSocket, UnixStream};

/// What a guest handed over.
pub struct EgressSockets {
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
    pub(crate) resolvers: Vec<ResolverSocket>,
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
pub(crate) enum ResolverSocket {
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
                    // The guest is gone. Its callers learn of that elsewhere.
                    return std::future::pending().await;
                };
                let stream = std::net::TcpStream::from(socket);
                stream.set_nonblocking(true)?;
                Ok((TcpStream::from_std(stream)?, dialled.into()))
            }
        }
    }
}

impl EgressSockets {
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
                return listener(socket).map(ResolverSocket::Relayed);
            }
            let socket = std::net::UdpSocket::from(socket);
            socket.set_nonblocking(true)?;
            UdpSocket::from_std(socket).map(ResolverSocket::Datagrams)
        };
        Ok(Open {
            listeners: self.listeners.into_iter().map(listener).collect::<Result<_, _>>()?,
            resolvers: self.resolvers.into_iter().map(resolver).collect::<Result<_, _>>()?,
            routes: self.routes.into_iter().map(listener).collect::<Result<_, _>>()?,
        })
    }
}

/// The ports that a policy opens, for a kernel that cannot lead all of them to one. There is room for few: those that a rule
/// names one by one come first, then what is usual, then wider and wider ranges from their beginning. What is left out
/// is not reachable there, and [`left_out`] says what that is.
pub fn ports(policy: &EgressPolicy) -> Vec<u16> {
    let mut ranges = named(policy);
    ranges.sort_by_key(|range| (range.last() - range.first(), *range));
    let single = ranges.iter().filter(|range| range.first() == range.last()).map(|range| range.first());
    let is_named = |port: &u16| ranges.iter().any(|range| range.contains(*port));
    let usual = USUAL.into_iter().filter(is_named);
    let open: &[u16] = if policy.mode >= Mode::Ask { &OPEN } else { &[] };
    let wide = ranges.iter().flat_map(|range| (range.first()..=range.last()).take(MAX_PORTS));
    let mut ports = BTreeSet::from([PortRange::DNS]);
    for port in open.iter().copied().chain(single).chain(usual).chain(wide) {
        if ports.len() == MAX_PORTS {
            break;
        }
        ports.insert(port);
    }
    ports.into_iter().collect()
}

/// The ports that rules name and [`ports`] has no room for.
pub fn left_out(policy: &EgressPolicy) -> Vec<PortRange> {
    let (open, ranges) = (ports(policy), named(policy));
    let is_left_out =
        |port: &u16| open.binary_search(port).is_err() && ranges.iter().any(|range| range.contains(*port));
    let mut left: Vec<PortRange> = Vec::new();
    for port in (1..=u16::MAX).filter(is_left_out) {
        match left.last_mut() {
            Some(before) if before.last() + 1 == port => {
                *before = PortRange::new(before.first(), port).unwrap_or(*before);
            }
            _ => left.extend(PortRange::only(port)),
        }
    }
    left
}

fn named(policy: &EgressPolicy) -> Vec<PortRange> {
    policy.allow.iter().flat_map(|rule| rule.openings.iter().map(|opening| opening.ports)).collect()
}

/// The sandbox's own IPv4 address: from a range for tests of networks, which no public host has (RFC 2544).
pub const IPV4: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 1);
/// The same where no address but those of the loopback device is local: names get addresses behind this one. What programs inside
/// serve to each other has lower ones. `belljar_wire::purpose` says the same to the guest.
pub const LOOPBACK: Ipv4Addr = Ipv4Addr::new(127, 128, 0, 1);
/// The sandbox's own IPv6 address: from a private range (RFC 4193) that spells our name.
pub const IPV6: Ipv6Addr = Ipv6Addr::new(0xfd62, 0x656c, 0x6c6a, 0x6172, 0, 0, 0, 1);
/// Where every TCP port leads. Binding it takes a privilege, which no process inside has.
pub const PORT: u16 = 1;
/// Where names are asked, inside.
pub const DNS_ADDRESS: Ipv4Addr = Ipv4Addr::LOCALHOST;
/// Descriptors are passed in one packet, which holds 64.
const MAX_PORTS: usize = 60;
/// Of the open mode, which has all of them.
const OPEN: [u16; 3] = [22, 80, 443];
/// What the author of a rule with a wide range is likely to mean.
const USUAL: [u16; 6] = [22, 80, 443, 5432, 8080, 8443];

#[cfg(test)]
mod tests {
    use super::*;
    use belljar_spec::egress::group;

    fn policy(rules: &[&str]) -> EgressPolicy {
        let strict = EgressPolicy::strict();
        rules.iter().fold(strict, |policy, rule| policy.allow(rule.parse().expect(rule)))
    }

    fn text(ranges: &[PortRange]) -> String {
        ranges.iter().map(PortRange::to_string).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn a_wide_range_takes_no_port_from_a_rule_that_names_it() {
        let wide =
            policy(&["a.test:1-100/tcp", "b.test:9000"]).allow_group(group("github").expect("a group"));
        let open = ports(&wide);
        assert_eq!(open.len(), MAX_PORTS);
        for port in [1, 22, 53, 80, 443, 9000] {
            assert!(open.contains(&port), "{port}: {open:?}");
        }
        assert_eq!(text(&left_out(&wide)), "58-79 81-100");
    }

    #[test]
    fn of_a_wide_range_the_usual_ports_come_first_and_of_two_the_narrower() {
        let open = ports(&policy(&["a.test:1-65535/tcp", "b.test:7000-7040"]));
        for port in [22, 80, 443, 5432, 8080, 8443, 7000, 7040] {
            assert!(open.contains(&port), "{port}: {open:?}");
        }
        assert_eq!((open.len(), open.first()), (MAX_PORTS, Some(&1)));
    }

    #[test]
    fn where_there_is_room_nothing_is_left_out() {
        let some = policy(&["a.test", "a.test:8000-8040"]);
        assert_eq!((ports(&some).len(), text(&left_out(&some))), (44, String::new()));
        let open = EgressPolicy { mode: Mode::Open, ..some };
        assert_eq!((ports(&open).len(), text(&left_out(&open))), (45, String::new()));
    }
}
