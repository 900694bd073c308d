//! Connecting to where a permit says, and nowhere else.

use crate::decide::{Permit, reserved};
use crate::record::NotRecorded;
use crate::upstream_proxy::{Proxy, Target};
use belljar_spec::egress::{EgressPolicy, ProxyAddress, Reason, Refusal, is_this_machine};
use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

/// How a connection is made: at which address first, and through which proxy.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Way<'p> {
    /// None where the proxy looks the name up.
    pub(crate) address: Option<IpAddr>,
    pub(crate) proxy: Option<&'p ProxyAddress>,
}

/// Why there is no connection.
#[derive(Debug)]
pub(crate) enum Undialled {
    /// The next address to dial is one of this machine's.
    Own(IpAddr),
    /// The audit log takes no more lines.
    NotRecorded,
    Failed(io::Error),
}

impl Undialled {
    /// For the sandbox that wanted the connection.
    pub(crate) fn refusal(&self, permit: &Permit) -> Refusal {
        let refused = |reason: Reason, detail: &str| {
            Refusal::new(permit.name(), Some(permit.port()), reason)
                .protocol(permit.protocol())
                .detail(detail)
        };
        match self {
            Undialled::Own(address) => {
                refused(Reason::PrivateAddress, &format!("{address}: this machine")).lift((*address).into())
            }
            Undialled::NotRecorded => refused(Reason::NotRecorded, "the audit log cannot be written"),
            Undialled::Failed(error) => refused(Reason::DialFailed, &error.to_string()),
        }
    }
}

/// Connects to one of the permit's addresses: the very ones that were judged. The first has a head start, then the
/// next one is tried beside it (RFC 8305), so that one dead address costs a moment and not a timeout. Where a proxy leads there, it is asked for
/// the first of them. Before the first attempt it is recorded. Says which address answered, if that is known.
pub(crate) async fn dial(
    permit: &Permit,
    policy: &EgressPolicy,
    proxy: Option<&Proxy>,
    record: impl FnOnce(&Way<'_>) -> Result<(), NotRecorded>,
) -> Result<(TcpStream, Option<IpAddr>), Undialled> {
    if let Some(proxy) = proxy.filter(|proxy| goes_through(permit, proxy)) {
        return dial_through(proxy, permit, policy, record).await;
    }
    let mut record = Some(record);
    let mut may_dial = |address: SocketAddr| {
        elsewhere(policy, permit, address.ip())?;
        match record.take() {
            Some(record) => record(&Way { address: Some(address.ip()), proxy: None })
                .map_err(|NotRecorded| Undialled::NotRecorded),
            None => Ok(()),
        }
    };
    let attempt = async {
        match permit.addresses() {
            [only] => {
                may_dial(*only)?;
                connect(*only).await.map_err(Undialled::Failed)
            }
            // A permit without addresses is for a proxy alone.
            [] => Err(Undialled::Failed(io::Error::from(io::ErrorKind::AddrNotAvailable))),
            several => first_of(several, may_dial).await,
        }
    };
    let (stream, address) = timeout(CONNECT, attempt)
        .await
        .map_err(|_| Undialled::Failed(io::Error::from(io::ErrorKind::TimedOut)))??;
    // Small writes of a program inside are not ours to delay.
    stream.set_nodelay(true).map_err(Undialled::Failed)?;
    Ok((stream, Some(address.ip())))
}

/// What a person opened of private networks and of this machine is dialled from here: a proxy leads elsewhere.
fn goes_through(permit: &Permit, proxy: &Proxy) -> bool {
    let is_private = |address: &SocketAddr| reserved::special_purpose(address.ip()).is_some();
    !is_this_machine(permit.name())
        && proxy.terms().leads_to(permit.name())
        && !permit.addresses().iter().any(is_private)
}

async fn dial_through(
    proxy: &Proxy,
    permit: &Permit,
    policy: &EgressPolicy,
    record: impl FnOnce(&Way<'_>) -> Result<(), NotRecorded>,
) -> Result<(TcpStream, Option<IpAddr>), Undialled> {
    let first = permit.addresses().first();
    let target = match first {
        Some(address) => {
            elsewhere(policy, permit, address.ip())?;
            Target::Address(*address)
        }
        None => Target::Name(permit.name().as_str(), permit.port()),
    };
    let way = Way { address: first.map(SocketAddr::ip), proxy: Some(&proxy.terms().at) };
    record(&way).map_err(|NotRecorded| Undialled::NotRecorded)?;
    match timeout(CONNECT, proxy.connect(target)).await {
        Ok(connected) => connected.map(|(stream, _)| (stream, None)).map_err(Undialled::Failed),
        Err(_) => Err(Undialled::Failed(io::Error::from(io::ErrorKind::TimedOut))),
    }
}

/// What the first attempt of a connection by this permit would be refused for. For explanations.
pub fn judge_first(policy: &EgressPolicy, permit: &Permit) -> Result<(), Refusal> {
    let first = permit.addresses().first().map_or(Ok(()), |address| elsewhere(policy, permit, address.ip()));
    first.map_err(|undialled| undialled.refusal(permit))
}

/// Services listen at a machine's public address that only a firewall keeps from the outside, and we are inside of it.
/// Asked of each address that is dialled, and of no other: it takes a socket, and a name may have many addresses. A translator
/// may run on this machine too, so of an address that carries another one that is asked about as well.
fn elsewhere(policy: &EgressPolicy, permit: &Permit, address: IpAddr) -> Result<(), Undialled> {
    // A port of this machine was opened by a person, and the permit says so.
    let is_meant = policy.opens_host_port(permit.name(), permit.port()) == Some(true);
    if is_meant || policy.private.iter().any(|range| range.contains(&address)) {
        return Ok(());
    }
    for address in [address].into_iter().chain(reserved::translated(address).map(IpAddr::V4)) {
        match is_own(address, |address| UdpSocket::bind((address, 0))) {
            Ok(false) => {}
            Ok(true) => return Err(Undialled::Own(address)),
            // Whose it is cannot be told, and so it is not dialled.
            Err(error) => return Err(Undialled::Failed(error)),
        }
    }
    Ok(())
}

async fn connect(address: SocketAddr) -> io::Result<(TcpStream, SocketAddr)> {
    Ok((TcpStream::connect(address).await?, address))
}

async fn first_of(
    addresses: &[SocketAddr],
    mut may_dial: impl FnMut(SocketAddr) -> Result<(), Undialled>,
) -> Result<(TcpStream, SocketAddr), Undialled> {
    let mut waiting = in_turns(addresses).into_iter();
    let mut attempts = JoinSet::new();
    let mut failure = io::Error::from(io::ErrorKind::AddrNotAvailable);
    loop {
        for address in waiting.by_ref() {
            match may_dial(address) {
                Ok(()) => {
                    attempts.spawn(connect(address));
                    break;
                }
                Err(Undialled::Failed(error)) => failure = error,
                Err(stop @ (Undialled::Own(_) | Undialled::NotRecorded)) => return Err(stop),
            }
        }
        if attempts.is_empty() {
            return Err(Undialled::Failed(failure));
        }
        // The name's DNS server decides how many addresses it has; each attempt is a socket of ours.
        let more = waiting.len() > 0 && attempts.len() < AT_ONCE;
        tokio::select! {
            Some(ended) = attempts.join_next() => match ended {
                Ok(Ok(connected)) => return Ok(connected),
                Ok(Err(error)) => failure = error,
                Err(_) => {}
            },
            () = sleep(HEAD_START), if more => {}
        }
    }
}

/// The families in turns, beginning with the first one's, so that one that leads nowhere does not take all attempts.
fn in_turns(addresses: &[SocketAddr]) -> Vec<SocketAddr> {
    let is_first_family = |address: &&SocketAddr| address.is_ipv4() == addresses[0].is_ipv4();
    let (mut one, mut other): (VecDeque<SocketAddr>, VecDeque<SocketAddr>) =
        addresses.iter().partition(is_first_family);
    let mut turns = Vec::with_capacity(addresses.len());
    while turns.len() < addresses.len() {
        turns.extend(one.pop_front());
        turns.extend(other.pop_front());
    }
    turns
}

/// Whether an address is one of this machine's: then a socket can be bound to it. Where an administrator lets sockets be
/// bound to any address (ip_nonlocal_bind), it is one if the kernel would send from it what is meant for it. Only one error says
/// that it is not; any other (no descriptor left) says nothing.
fn is_own(address: IpAddr, bind: impl Fn(IpAddr) -> io::Result<UdpSocket>) -> io::Result<bool> {
    let can_bind = |address: IpAddr| match bind(address) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::AddrNotAvailable => Ok(false),
        Err(error) => Err(error),
    };
    let nobodys = if address.is_ipv4() { IpAddr::V4(RESERVED) } else { IpAddr::V6(DISCARD) };
    if !can_bind(address)? {
        return Ok(false);
    }
    if !can_bind(nobodys)? {
        return Ok(true);
    }
    let any =
        if address.is_ipv4() { IpAddr::V4(Ipv4Addr::UNSPECIFIED) } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = bind(any)?;
    // Connecting a socket of datagrams sends none.
    socket.connect((address, ANY_PORT))?;
    Ok(socket.local_addr()?.ip() == address)
}

/// Longer than any server that is there takes; shorter than a program's own time limit.
const CONNECT: Duration = Duration::from_secs(10);
const HEAD_START: Duration = Duration::from_millis(250);
/// Attempts for one connection.
const AT_ONCE: usize = 4;
/// Nothing is sent there.
const ANY_PORT: u16 = 9;
/// Addresses that no machine has (RFC 1112 §4, RFC 6666).
const RESERVED: Ipv4Addr = Ipv4Addr::new(240, 0, 0, 1);
const DISCARD: Ipv6Addr = Ipv6Addr::new(0x100, 0, 0, 0, 0, 0, 0, 1);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::{Attempt, decide};
    use belljar_spec::egress::{HostName, Protocol};
    use belljar_sys::rustix::net::listen;
    use std::net::TcpListener;
    use tokio::time::Instant;

    fn at(text: &str) -> SocketAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn families_take_turns() {
        let addresses = ["[::1]:1", "[::2]:1", "[::3]:1", "1.1.1.1:1", "2.2.2.2:1"].map(at);
        assert_eq!(in_turns(&addresses), ["[::1]:1", "1.1.1.1:1", "[::2]:1", "2.2.2.2:1", "[::3]:1"].map(at));
        assert_eq!(in_turns(&addresses[..3]), addresses[..3]);
        assert_eq!(in_turns(&addresses[3..]), addresses[3..]);
    }

    /// A server whose queue is full answers no client.
    #[test]
    fn a_name_with_very_many_dead_addresses_takes_few_sockets() {
        let full = TcpListener::bind("127.0.0.1:0").expect("a port");
        listen(&full, 0).expect("a short queue");
        let port = full.local_addr().expect("it is bound").port();
        let _queued = std::net::TcpStream::connect(("127.0.0.1", port)).expect("the first is taken");
        let addresses = vec![SocketAddr::from(([127, 0, 0, 1], port)); 200];
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let outcome = runtime.block_on(async {
            let most = async {
                let mut most = 0;
                for _ in 0..25 {
                    sleep(Duration::from_millis(100)).await;
                    most = most.max(connecting_to(port));
                }
                most
            };
            tokio::select! { most = most => most, _ = first_of(&addresses, |_| Ok(())) => 0 }
        });
        assert_eq!(outcome, AT_ONCE);
    }

    /// The clock is moved on whenever there is nothing else to do.
    #[tokio::test(start_paused = true)]
    async fn a_server_that_never_answers_is_given_up() {
        let full = TcpListener::bind("127.0.0.1:0").expect("a port");
        listen(&full, 0).expect("a short queue");
        let port = full.local_addr().expect("it is bound").port();
        let _queued = std::net::TcpStream::connect(("127.0.0.1", port)).expect("the first is taken");
        let mut policy = EgressPolicy::open();
        policy.private = vec!["127.0.0.0/8".parse().expect("a range")];
        let name: HostName = "x.com".parse().expect("a name");
        for addresses in [&[IpAddr::V4(Ipv4Addr::LOCALHOST)][..], &[Ipv4Addr::LOCALHOST.into(); 7]] {
            let attempt = Attempt { name: &name, port, protocol: Protocol::Tcp, addresses };
            let permit = decide(&policy, &attempt).expect("it is allowed");
            let began = Instant::now();
            let undialled = dial(&permit, &policy, None, |_| Ok(())).await.expect_err("no server answers");
            assert_eq!(began.elapsed().as_secs(), CONNECT.as_secs());
            let refusal = undialled.refusal(&permit);
            assert_eq!(refusal.reason, Reason::DialFailed, "{refusal}");
            assert!(matches!(undialled, Undialled::Failed(error) if error.kind() == io::ErrorKind::TimedOut));
        }
    }

    /// By the kernel's list: state 2 is SYN_SENT.
    fn connecting_to(port: u16) -> usize {
        let sockets = std::fs::read_to_string("/proc/net/tcp").expect("the kernel's list");
        let port = format!(":{port:04X}");
        let words = sockets.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        words.filter(|words| words[2].ends_with(&port) && words[3] == "02").count()
    }

    fn bound(address: IpAddr) -> io::Result<UdpSocket> {
        UdpSocket::bind((address, 0))
    }

    #[test]
    fn loopback_is_ours_and_documentation_is_not() {
        assert!(is_own(Ipv4Addr::LOCALHOST.into(), bound).expect("it can be told"));
        assert!(!is_own(Ipv4Addr::new(203, 0, 113, 7).into(), bound).expect("it can be told"));
    }

    #[test]
    fn an_error_does_not_mean_that_an_address_is_not_our_own() {
        for code in [EMFILE, ENFILE, ENOBUFS, EACCES] {
            let fails = |_| Err(io::Error::from_raw_os_error(code));
            is_own(Ipv4Addr::LOCALHOST.into(), fails).expect_err("it cannot be told");
            // Also if only a later question fails.
            let fails_later = |address: IpAddr| match address {
                IpAddr::V4(Ipv4Addr::LOCALHOST) => bound(address),
                _ => Err(io::Error::from_raw_os_error(code)),
            };
            is_own(Ipv4Addr::LOCALHOST.into(), fails_later).expect_err("it cannot be told");
        }
    }

    #[test]
    fn what_cannot_be_recorded_is_not_dialled() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("it is bound").port();
        let mut policy = EgressPolicy::open();
        policy.private = vec!["127.0.0.0/8".parse().expect("a range")];
        let name: HostName = "x.com".parse().expect("a name");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        for addresses in [&[IpAddr::V4(Ipv4Addr::LOCALHOST)][..], &[Ipv4Addr::LOCALHOST.into(); 3]] {
            let attempt = Attempt { name: &name, port, protocol: Protocol::Tcp, addresses };
            let permit = decide(&policy, &attempt).expect("it is allowed");
            let undialled = runtime.block_on(dial(&permit, &policy, None, |_| Err(NotRecorded)));
            let refusal = undialled.expect_err("it is not recorded").refusal(&permit);
            assert_eq!(refusal.reason, Reason::NotRecorded);
            listener.set_nonblocking(true).expect("an option");
            assert_eq!(listener.accept().expect_err("no connection came").kind(), io::ErrorKind::WouldBlock);
            let mut recorded = Vec::new();
            let record = |way: &Way<'_>| {
                recorded.extend(way.address);
                Ok(())
            };
            runtime.block_on(dial(&permit, &policy, None, record)).expect("the listener is there");
            assert_eq!(recorded, [IpAddr::V4(Ipv4Addr::LOCALHOST)], "once");
            listener.set_nonblocking(false).expect("an option");
            listener.accept().expect("it came");
        }
    }

    #[test]
    fn an_address_that_cannot_be_judged_is_not_dialled() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let there = listener.local_addr().expect("it is bound");
        let (other, own) = (at("127.0.0.2:9"), at("127.0.0.3:9"));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let dialled = |addresses: &[SocketAddr]| {
            let judge = |address: SocketAddr| match address {
                _ if address == there => Ok(()),
                _ if address == own => Err(Undialled::Own(address.ip())),
                _ => Err(Undialled::Failed(io::Error::from_raw_os_error(EMFILE))),
            };
            runtime.block_on(first_of(addresses, judge)).map(|(_, address)| address)
        };
        assert_eq!(dialled(&[other, there]).expect("the next one"), there);
        assert_eq!(dialled(&[there, own]).expect("what is not dialled is not asked about"), there);
        let failed = dialled(&[other, other]).expect_err("no address is left");
        assert!(matches!(failed, Undialled::Failed(error) if error.raw_os_error() == Some(EMFILE)));
        let refused = dialled(&[own, there]).expect_err("it is this machine");
        assert!(matches!(refused, Undialled::Own(address) if address == own.ip()));
    }

    const EACCES: i32 = 13;
    const ENFILE: i32 = 23;
    const EMFILE: i32 = 24;
    const ENOBUFS: i32 = 105;
}
