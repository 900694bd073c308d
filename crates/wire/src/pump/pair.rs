//! Two TCP sockets that are connected to each other.

use belljar_sys::rustix::net::sockopt;
use std::io;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU16, AtomicU32, Ordering};

/// A connection from this process to itself, over the loopback device. Unlike a pair of unix sockets it can be reset, which
/// tells a program at once that its connection is refused; and its user cannot tell it from any other connection.
pub fn tcp_pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let listener = listen()?;
    let one = TcpStream::connect(listener.local_addr()?)?;
    let us = one.local_addr()?;
    // Others on this machine may have found the port. None of them has our address.
    for _ in 0..CROWD {
        let (other, from) = listener.accept()?;
        if from == us {
            sockopt::set_tcp_nodelay(&one, true)?;
            sockopt::set_tcp_nodelay(&other, true)?;
            return Ok((one.into(), other.into()));
        }
    }
    Err(io::ErrorKind::ConnectionRefused.into())
}

/// The kernel remembers each connection for a minute after its end (TIME_WAIT, tcp(7)), and a port that was listened at is no
/// other's as long. With a port for each pair, some hundred a second would take all that the machine has. So there is one port,
/// and each pair has an address of its own: the loopback device has sixteen million.
fn listen() -> io::Result<TcpListener> {
    static PAIRS: AtomicU32 = AtomicU32::new(0);
    static PORT: AtomicU16 = AtomicU16::new(0);
    let [_, high, middle, low] = PAIRS.fetch_add(1, Ordering::Relaxed).to_be_bytes();
    // Neither 127.0, where people have their services, nor 127.255, which ends in a broadcast.
    let address = Ipv4Addr::new(127, 1 + high % 254, middle, low);
    let port = PORT.load(Ordering::Relaxed);
    let listener = TcpListener::bind((address, port))
        // Another process listens at that port on every address: the next one, then.
        .or_else(|_| TcpListener::bind((address, 0)))
        // A loopback device with one address.
        .or_else(|_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)))?;
    PORT.store(listener.local_addr()?.port(), Ordering::Relaxed);
    Ok(listener)
}

/// As many as can stand before us in the queue of a listener.
const CROWD: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::net::IpAddr;

    #[test]
    fn many_pairs_take_one_port_of_the_machine() {
        let pairs: Vec<_> = (0..50).map(|_| tcp_pair().expect("a pair")).collect();
        let listened = |pair: &(OwnedFd, OwnedFd)| {
            let accepted = TcpStream::from(pair.1.try_clone().expect("a copy"));
            accepted.local_addr().expect("an address")
        };
        let ports: BTreeSet<u16> = pairs.iter().map(|pair| listened(pair).port()).collect();
        let addresses: BTreeSet<IpAddr> = pairs.iter().map(|pair| listened(pair).ip()).collect();
        // Tests beside this one may have taken the port of an address that was about to be ours.
        assert!(ports.len() <= 3, "{ports:?}");
        assert_eq!(addresses.len(), pairs.len());
    }
}
