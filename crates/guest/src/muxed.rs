//! The control socket of a backend that can pass no descriptors: one connection to the host, and a pump that makes sockets
//! of its streams. The rest of the guest sees an ordinary control socket.

use belljar_sys::passing;
use belljar_sys::rustix::fd::{AsFd, OwnedFd};
use belljar_sys::rustix::io::ioctl_fionbio;
use belljar_sys::rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use belljar_wire::mux::Side;
use belljar_wire::pump::{Local, Pump};
use belljar_wire::purpose::Purpose;
use std::io;
use std::os::unix::net::UnixStream;

/// Connects to the socket that the host listens at. The returned control socket gives a descriptor for each request, as if
/// the host had passed it, with an alarm beside it, and closes with the connection.
pub(crate) fn knock(path: &str) -> io::Result<(OwnedFd, Pump)> {
    let connection = UnixStream::connect(path)?;
    let (control_socket, outside) =
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    ioctl_fionbio(&outside, true)?;
    let receive = move |header: &[u8]| {
        if Purpose::decode(header) != Some(Purpose::Request) {
            return None;
        }
        let (ours, theirs) = UnixStream::pair().ok()?;
        // gVisor reports no hang-up of a socket while bytes wait in it. Not a pipe: a command could open that from /proc,
        // and then it would never reach its end.
        let (hears, alarm) = UnixStream::pair().ok()?;
        passing::send(&outside, &[theirs.as_fd(), hears.as_fd()]).ok()?;
        Some(Local { socket: ours.into(), alarm: Some(alarm.into()) })
    };
    Ok((control_socket, Pump::start(connection.into(), Side::Guest, Box::new(receive))?))
}
