//! Connecting to where a permit says, and nowhere else.

use crate::decide::Permit;
use std::io;
use std::net::SocketAddr;
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

/// Longer than any server that is there takes; shorter than a program's own patience.
const CONNECT: Duration = Duration::from_secs(10);
const HEAD_START: Duration = Duration::from_millis(250);
