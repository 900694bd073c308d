//! Network namespaces, and the one device that each of them has.

use crate::caps::check;
use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use rustix::fs::{Mode, OFlags, open};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use std::net::{SocketAddr, SocketAddrV4, SocketAddrV6};

/// A new network namespace with its loopback device up, made by and for the calling thread alone.
pub fn new_namespace() -> Result<OwnedFd, Errno> {
    // SAFETY: only an integer goes in. The calling thread leaves its network namespace; descriptors, memory and other
    // threads are as they were.
    check(unsafe { libc::unshare(libc::CLONE_NEWNET) }.into())?;
    loopback_up()?;
    open("/proc/thread-self/ns/net", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
}

/// Moves the calling thread into a network namespace.
pub fn enter_namespace(namespace: impl AsFd) -> Result<(), Errno> {
    // SAFETY: the descriptor is open; the kernel checks that it is a network namespace.
    check(unsafe { libc::setns(namespace.as_fd().as_raw_fd(), libc::CLONE_NEWNET) }.into())
}

/// Brings `lo` of the current network namespace up.
fn loopback_up() -> Result<(), Errno> {
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

/// What a connection was meant for, before the kernel led it to the socket that accepted it (SO_ORIGINAL_DST,
/// linux/netfilter_ipv4.h). An address that was mapped into IPv6 comes back as the IPv4 one that it is;
/// which it is, either end of the connection says.
pub fn original_destination(socket: impl AsFd, either_end: SocketAddr) -> Result<SocketAddr, Errno> {
    match unmapped(either_end) {
        SocketAddr::V4(_) => {
            // SAFETY: all-zero is a valid `sockaddr_in`.
            let mut address: libc::sockaddr_in = unsafe { std::mem::zeroed() };
            get_option(&socket, libc::SOL_IP, &mut address)?;
            let ip = u32::from_be(address.sin_addr.s_addr).into();
            Ok(SocketAddrV4::new(ip, u16::from_be(address.sin_port)).into())
        }
        SocketAddr::V6(_) => {
            // SAFETY: all-zero is a valid `sockaddr_in6`.
            let mut address: libc::sockaddr_in6 = unsafe { std::mem::zeroed() };
            get_option(&socket, libc::SOL_IPV6, &mut address)?;
            let ip = address.sin6_addr.s6_addr.into();
            Ok(SocketAddrV6::new(ip, u16::from_be(address.sin6_port), 0, 0).into())
        }
    }
}

/// An IPv4 address that is written as an IPv6 one, as what it is.
pub fn unmapped(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

fn get_option<T>(socket: impl AsFd, level: libc::c_int, value: &mut T) -> Result<(), Errno> {
    let mut length = size_of::<T>() as libc::socklen_t;
    // SAFETY: the socket is open, and `value` is live and as long as `length` says; the kernel writes no more. Every
    // caller passes a socket address, for which any bytes are valid.
    let done = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            level,
            SO_ORIGINAL_DST,
            std::ptr::from_mut(value).cast(),
            &raw mut length,
        )
    };
    check(done.into())
}

/// The same number for both families.
const SO_ORIGINAL_DST: libc::c_int = 80;
