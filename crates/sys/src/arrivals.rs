//! A socket on which connections arrive that another process accepted, with the address that was dialled. It stands in for
//! a listener, and can be waited for in the same way.

use crate::passing;
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair, sockopt};
use std::net::{Ipv4Addr, SocketAddrV4};

/// Both ends: where connections are put in, and where they arrive. Neither blocks.
pub fn pair() -> Result<(OwnedFd, OwnedFd), Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
}

/// Puts a connection in. Where too many wait already, the error is `AGAIN`.
pub fn put(place: impl AsFd, dialled: SocketAddrV4, connection: impl AsFd) -> Result<(), Errno> {
    let [a, b, c, d] = dialled.ip().octets();
    let [high, low] = dialled.port().to_be_bytes();
    passing::send_with(place, &[a, b, c, d, high, low], &[connection.as_fd()]).map(drop)
}

/// The next connection; `None` when no process can send one any more.
pub fn take(place: impl AsFd) -> Result<Option<(SocketAddrV4, OwnedFd)>, Errno> {
    let mut dialled = [0; 6];
    let (length, mut connections) = passing::receive_with(place, &mut dialled)?;
    let [a, b, c, d, high, low] = dialled;
    match (length, connections.pop()) {
        (6, Some(connection)) => {
            let dialled = SocketAddrV4::new(Ipv4Addr::new(a, b, c, d), u16::from_be_bytes([high, low]));
            Ok(Some((dialled, connection)))
        }
        (0, _) => Ok(None),
        _ => Err(Errno::PROTO),
    }
}

/// Whether a descriptor is such a place, and not a listener.
pub fn is_place(descriptor: impl AsFd) -> bool {
    sockopt::socket_domain(descriptor) == Ok(AddressFamily::UNIX)
}
