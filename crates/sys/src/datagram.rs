//! Datagrams together with the address that they were sent to. A socket that serves many addresses needs it: a client
//! ignores an answer from another address.

use crate::caps::check;
use crate::net;
use rustix::fd::{AsFd, AsRawFd};
use rustix::io::Errno;
use rustix::net::SocketAddrAny;
use std::mem::{MaybeUninit, zeroed};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// A datagram that was received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Received {
    pub length: usize,
    pub from: SocketAddr,
    /// Where it was sent to, if the socket was made to tell.
    pub to: Option<IpAddr>,
}

/// Makes a socket tell where datagrams were sent to: IP_PKTINFO, ip(7), and IPV6_RECVPKTINFO, ipv6(7).
pub fn tell_destinations(socket: impl AsFd) -> Result<(), Errno> {
    net::switch_on(socket, libc::IP_PKTINFO, libc::IPV6_RECVPKTINFO)
}

/// The next datagram of a socket that does not block; what is longer than the buffer is cut.
pub fn receive(socket: impl AsFd, buffer: &mut [u8]) -> Result<Received, Errno> {
    let mut from = MaybeUninit::<libc::sockaddr_storage>::zeroed();
    let mut room = Room([0; ROOM]);
    let mut part = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    // SAFETY: all-zero is a valid `msghdr`.
    let mut message: libc::msghdr = unsafe { zeroed() };
    message.msg_name = from.as_mut_ptr().cast();
    message.msg_namelen = size_of::<libc::sockaddr_storage>() as libc::socklen_t;
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = room.0.as_mut_ptr().cast();
    message.msg_controllen = ROOM as _;
    // SAFETY: the socket is open, and all that the message points to is live, ours alone, and as long as it says.
    let length = unsafe { libc::recvmsg(socket.as_fd().as_raw_fd(), &raw mut message, 0) };
    check(length as libc::c_long)?;
    let family = size_of::<libc::sa_family_t>() as libc::socklen_t;
    if !(family..=size_of::<libc::sockaddr_storage>() as libc::socklen_t).contains(&message.msg_namelen) {
        return Err(Errno::INVAL);
    }
    // SAFETY: the kernel wrote an address of this length, which was just checked, and all of the rest is zero.
    let from = unsafe { SocketAddrAny::read(from.as_ptr().cast(), message.msg_namelen) };
    let from = SocketAddr::try_from(from)?;
    Ok(Received { length: length as usize, from, to: destination(&message) })
}

/// Sends a datagram, as if from this address, which has to be one that the socket may answer for.
pub fn send(socket: impl AsFd, bytes: &[u8], to: SocketAddr, from: Option<IpAddr>) -> Result<(), Errno> {
    let to = SocketAddrAny::from(to);
    let mut room = Room([0; ROOM]);
    let mut part = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    // SAFETY: all-zero is a valid `msghdr`.
    let mut message: libc::msghdr = unsafe { zeroed() };
    message.msg_name = to.as_ptr().cast_mut().cast();
    message.msg_namelen = to.addr_len();
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    match from {
        Some(IpAddr::V4(from)) => {
            let [a, b, c, d] = from.octets();
            let address = libc::in_addr { s_addr: u32::from_ne_bytes([a, b, c, d]) };
            let any = libc::in_addr { s_addr: 0 };
            let info = libc::in_pktinfo { ipi_ifindex: 0, ipi_spec_dst: address, ipi_addr: any };
            say(&mut message, &mut room, libc::SOL_IP, libc::IP_PKTINFO, info);
        }
        Some(IpAddr::V6(from)) => {
            let ipi6_addr = libc::in6_addr { s6_addr: from.octets() };
            let info = libc::in6_pktinfo { ipi6_addr, ipi6_ifindex: 0 };
            say(&mut message, &mut room, libc::SOL_IPV6, libc::IPV6_PKTINFO, info);
        }
        None => {}
    }
    // SAFETY: the socket is open, and all that the message points to is live and as long as it says; the kernel only reads it.
    let sent = unsafe { libc::sendmsg(socket.as_fd().as_raw_fd(), &raw const message, libc::MSG_NOSIGNAL) };
    check(sent as libc::c_long)
}

/// Puts one word of control (cmsg(3)) into a message, with room for it that must live as long as the message.
fn say<T>(message: &mut libc::msghdr, room: &mut Room, level: libc::c_int, kind: libc::c_int, info: T) {
    let length = size_of::<T>() as libc::c_uint;
    message.msg_control = room.0.as_mut_ptr().cast();
    // SAFETY: both only compute a length.
    let (space, whole) = unsafe { (libc::CMSG_SPACE(length), libc::CMSG_LEN(length)) };
    assert!(space as usize <= ROOM, "there is room for either kind of address");
    message.msg_controllen = space as _;
    // SAFETY: the room is aligned for a header, and was just seen to hold one with `said` behind it.
    unsafe {
        let header = libc::CMSG_FIRSTHDR(message);
        (*header).cmsg_level = level;
        (*header).cmsg_type = kind;
        (*header).cmsg_len = whole as _;
        libc::CMSG_DATA(header).cast::<T>().write_unaligned(info);
    }
}

fn destination(message: &libc::msghdr) -> Option<IpAddr> {
    // SAFETY: the kernel filled in the message, so its words of control are whole, and as long as each says.
    unsafe {
        let mut header = libc::CMSG_FIRSTHDR(message);
        while !header.is_null() {
            let data = libc::CMSG_DATA(header);
            match ((*header).cmsg_level, (*header).cmsg_type) {
                (libc::SOL_IP, libc::IP_PKTINFO) => {
                    let info = data.cast::<libc::in_pktinfo>().read_unaligned();
                    return Some(Ipv4Addr::from(info.ipi_addr.s_addr.to_ne_bytes()).into());
                }
                (libc::SOL_IPV6, libc::IPV6_PKTINFO) => {
                    let info = data.cast::<libc::in6_pktinfo>().read_unaligned();
                    return Some(Ipv6Addr::from(info.ipi6_addr.s6_addr).into());
                }
                _ => header = libc::CMSG_NXTHDR(message, header),
            }
        }
    }
    None
}

/// Room for words of control, aligned as their headers are.
#[repr(align(8))]
struct Room([u8; ROOM]);

/// More than either kind of address takes.
const ROOM: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;

    #[test]
    fn an_answer_comes_from_the_address_that_was_asked() {
        let served = UdpSocket::bind("0.0.0.0:0").unwrap();
        tell_destinations(&served).unwrap();
        let port = served.local_addr().unwrap().port();
        // Every address of this range is local.
        let server = SocketAddr::from(([127, 9, 8, 7], port));
        let client = UdpSocket::bind("127.0.0.1:0").unwrap();
        client.send_to(b"what", server).unwrap();
        let mut buffer = [0; 16];
        let received = receive(&served, &mut buffer).unwrap();
        let from = client.local_addr().unwrap();
        assert_eq!(received, Received { length: 4, from, to: Some(server.ip()) });
        send(&served, b"that", from, received.to).unwrap();
        assert_eq!(client.recv_from(&mut buffer).unwrap(), (4, server));
    }

    #[test]
    fn so_it_does_over_ipv6() {
        // A machine may have none.
        let Ok(served) = UdpSocket::bind("[::]:0") else { return };
        tell_destinations(&served).unwrap();
        let server = SocketAddr::from((Ipv6Addr::LOCALHOST, served.local_addr().unwrap().port()));
        let Ok(client) = UdpSocket::bind("[::1]:0") else { return };
        client.send_to(b"what", server).unwrap();
        let mut buffer = [0; 16];
        let received = receive(&served, &mut buffer).unwrap();
        assert_eq!((received.length, received.to), (4, Some(server.ip())));
        send(&served, b"that", received.from, received.to).unwrap();
        assert_eq!(client.recv_from(&mut buffer).unwrap(), (4, server));
    }

    #[test]
    fn a_socket_that_was_not_told_to_tell_answers_as_usual() {
        let served = UdpSocket::bind("127.0.0.1:0").unwrap();
        let client = UdpSocket::bind("127.0.0.1:0").unwrap();
        client.send_to(b"longer than the buffer", served.local_addr().unwrap()).unwrap();
        let mut buffer = [0; 6];
        let received = receive(&served, &mut buffer).unwrap();
        assert_eq!((received.length, received.to), (6, None));
        send(&served, b"that", received.from, None).unwrap();
        assert_eq!(client.recv_from(&mut buffer).unwrap(), (4, served.local_addr().unwrap()));
    }
}
