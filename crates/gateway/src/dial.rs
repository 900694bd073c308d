//! Connecting to where a permit says, and nowhere else.

use crate::decide::Permit;
use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

/// Connects to one of the permit's addresses: the very ones that were judged. The first has a head start, then the
/// next one is tried beside it (RFC 8305), so that one dead address costs a moment and not a timeout.
pub(crate) async fn dial(permit: &Permit) -> io::Result<(TcpStream, SocketAddr)> {
    let attempt = async {
        match permit.addresses() {
            [only] => connect(*only).await,
            several => first_of(several).await,
        }
    };
    let (stream, address) =
        timeout(CONNECT, attempt).await.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
    // Small writes of a program inside are not ours to delay.
    stream.set_nodelay(true)?;
    Ok((stream, address))
}

async fn connect(address: SocketAddr) -> io::Result<(TcpStream, SocketAddr)> {
    Ok((TcpStream::connect(address).await?, address))
}

async fn first_of(addresses: &[SocketAddr]) -> io::Result<(TcpStream, SocketAddr)> {
    let mut waiting = in_turns(addresses).into_iter();
    let mut attempts = JoinSet::new();
    let mut failure = io::Error::from(io::ErrorKind::AddrNotAvailable);
    loop {
        if let Some(address) = waiting.next() {
            attempts.spawn(connect(address));
        }
        if attempts.is_empty() {
            return Err(failure);
        }
        // Whoever answers for a name says how many addresses it has; each attempt is a socket of ours.
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
/// bound to any address (ip_nonlocal_bind), it is one if the kernel would send from it what is meant for it.
pub(crate) fn is_own(address: IpAddr) -> bool {
    let bound = |address: IpAddr| UdpSocket::bind((address, 0)).ok();
    let nobodys = if address.is_ipv4() { IpAddr::V4(RESERVED) } else { IpAddr::V6(DISCARD) };
    let Some(socket) = bound(address) else { return false };
    drop(socket);
    if bound(nobodys).is_none() {
        return true;
    }
    let any =
        if address.is_ipv4() { IpAddr::V4(Ipv4Addr::UNSPECIFIED) } else { Ipv6Addr::UNSPECIFIED.into() };
    // Connecting a socket of datagrams sends none.
    let source = bound(any).and_then(|socket| {
        socket.connect((address, ANY_PORT)).ok()?;
        socket.local_addr().ok()
    });
    source.is_some_and(|source| source.ip() == address)
}

/// Longer than any server that is there takes; shorter than a program's own patience.
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
    use belljar_sys::rustix::net::listen;
    use std::net::TcpListener;

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

    /// A server whose queue is full answers nobody.
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
            tokio::select! { most = most => most, _ = first_of(&addresses) => 0 }
        });
        assert_eq!(outcome, AT_ONCE);
    }

    /// By the kernel's list: state 2 is SYN_SENT.
    fn connecting_to(port: u16) -> usize {
        let sockets = std::fs::read_to_string("/proc/net/tcp").expect("the kernel's list");
        let port = format!(":{port:04X}");
        let words = sockets.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        words.filter(|words| words[2].ends_with(&port) && words[3] == "02").count()
    }

    #[test]
    fn loopback_is_ours_and_documentation_is_not() {
        assert!(is_own(Ipv4Addr::LOCALHOST.into()));
        assert!(!is_own(Ipv4Addr::new(203, 0, 113, 7).into()));
    }
}
