//! Two TCP sockets that are connected to each other.

use belljar_sys::rustix::net::sockopt;
use std::io;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;

/// A connection from this process to itself, over the loopback device. Unlike a pair of unix sockets it can be reset, which is
/// how people are told at once that they are not let through; and whoever gets it need not know that it is no other connection.
pub fn tcp_pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
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

/// As many as can stand before us in the queue of a listener.
const CROWD: usize = 256;
