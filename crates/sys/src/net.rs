//! Network namespaces, and the one device that each of them has.

use crate::caps::check;
use rustix::fd::{AsFd, AsRawFd};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use std::net::SocketAddr;

/// Moves the calling thread into a new network namespace, whose loopback device is up.
pub fn enter_new_namespace() -> Result<(), Errno> {
    // SAFETY: only an integer goes in. The calling thread leaves its network namespace; descriptors, memory and other
    // threads are as they were.
    check(unsafe { libc::unshare(libc::CLONE_NEWNET) }.into())?;
    loopback_up()
}

/// Moves the calling thread into a network namespace.
pub fn enter_namespace(namespace: impl AsFd) -> Result<(), Errno> {
    // SAFETY: the descriptor is open; the kernel checks that it is a network namespace.
    check(unsafe { libc::setns(namespace.as_fd().as_raw_fd(), libc::CLONE_NEWNET) }.into())
}

/// Brings `lo` of the current network namespace up.
pub fn loopback_up() -> Result<(), Errno> {
    let socket = socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    // SAFETY: all-zero is a valid `ifreq`.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    request.ifr_name[0] = b'l' as libc::c_char;
    request.ifr_name[1] = b'o' as libc::c_char;
    request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
    // SAFETY: the socket is open and `request` is a live `ifreq` with a NUL-terminated name.
    let done = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS as _, &raw const request) };
    check(done.into())
}

/// Lets a socket be given connections to any address (IP_TRANSPARENT, ip(7)); they then have that address. Takes
/// CAP_NET_ADMIN over the network namespace.
pub fn answer_for_any_address(socket: impl AsFd) -> Result<(), Errno> {
    switch_on(socket, libc::IP_TRANSPARENT, libc::IPV6_TRANSPARENT)
}

/// Ties a socket to the loopback device for ever: to undo it takes CAP_NET_RAW (socket(7), SO_BINDTODEVICE; without any capability since
/// Linux 5.7).
pub fn tie_to_loopback(socket: impl AsFd) -> Result<(), Errno> {
    set(socket, libc::SOL_SOCKET, libc::SO_BINDTODEVICE, b"lo\0")
}

/// Has a later bind(2) to port 0 choose no port yet: connect(2) takes one then that is free for its destination (ip(7),
/// IP_BIND_ADDRESS_NO_PORT).
pub fn choose_port_at_connect(socket: impl AsFd) -> Result<(), Errno> {
    let yes: libc::c_int = 1;
    set(socket, libc::SOL_IP, libc::IP_BIND_ADDRESS_NO_PORT, &yes.to_ne_bytes())
}

fn set(socket: impl AsFd, level: libc::c_int, option: libc::c_int, value: &[u8]) -> Result<(), Errno> {
    let length = value.len() as libc::socklen_t;
    // SAFETY: the socket is open, and the value is live and as long as is said.
    let done =
        unsafe { libc::setsockopt(socket.as_fd().as_raw_fd(), level, option, value.as_ptr().cast(), length) };
    check(done.into())
}

/// Sets an option of ip(7), or its sister of ipv6(7), by the socket's family.
pub(crate) fn switch_on(socket: impl AsFd, ipv4: libc::c_int, ipv6: libc::c_int) -> Result<(), Errno> {
    let (level, option) = match rustix::net::sockopt::socket_domain(&socket)? {
        AddressFamily::INET6 => (libc::SOL_IPV6, ipv6),
        _ => (libc::SOL_IP, ipv4),
    };
    let yes: libc::c_int = 1;
    // SAFETY: the socket is open, and the value is live and as long as is said.
    let done = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            level,
            option,
            (&raw const yes).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    check(done.into())
}

/// An IPv4 address that is written as an IPv6 one, as what it is.
pub fn unmapped(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}
