//! Connecting to where a permit says, and nowhere else.

use crate::decide::Permit;
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
    let mut waiting = addresses.iter().copied();
    let mut attempts = JoinSet::new();
    let mut failure = io::Error::from(io::ErrorKind::AddrNotAvailable);
    loop {
        let next = waiting.next();
        let more = next.is_some();
        if let Some(address) = next {
            attempts.spawn(connect(address));
        }
        if attempts.is_empty() {
            return Err(failure);
        }
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
/// Nothing is sent there.
const ANY_PORT: u16 = 9;
/// Addresses that no machine has (RFC 1112 §4, RFC 6666).
const RESERVED: Ipv4Addr = Ipv4Addr::new(240, 0, 0, 1);
const DISCARD: Ipv6Addr = Ipv6Addr::new(0x100, 0, 0, 0, 0, 0, 0, 1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_ours_and_documentation_is_not() {
        assert!(is_own(Ipv4Addr::LOCALHOST.into()));
        assert!(!is_own(Ipv4Addr::new(203, 0, 113, 7).into()));
    }
}
