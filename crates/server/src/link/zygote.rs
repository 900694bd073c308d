//! The daemon's zygote, which makes its shims ([`crate::shim::zygote`]): started with the daemon, and again if it died.

use super::process::as_belljar;
use crate::shim::zygote::{MAX_ORDER_BYTES, Order};
use belljar_sys::passing;
use belljar_sys::rustix::fd::{BorrowedFd, OwnedFd};
use belljar_sys::rustix::io::Errno;
use belljar_sys::rustix::net::sockopt::{Timeout, set_socket_timeout};
use belljar_sys::rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use std::io;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// The zygote of one daemon.
#[derive(Debug)]
pub(super) struct Zygote {
    /// Variables of shims beside ours.
    environment: Vec<(&'static str, String)>,
    running: Mutex<Option<Running>>,
}

#[derive(Debug)]
struct Running {
    /// It ends when this is closed.
    socket: OwnedFd,
    child: Child,
}

/// A shim that was made.
#[derive(Debug)]
pub(super) struct Made {
    pub(super) pid: u32,
    pub(super) pidfd: OwnedFd,
}

impl Zygote {
    pub(super) fn new(environment: Vec<(&'static str, String)>) -> Zygote {
        Zygote { environment, running: Mutex::default() }
    }

    /// Makes a shim with these standard streams. `BrokenPipe` means that the zygote died; what it made before that gets no plan if the
    /// streams are closed, and the next call finds another zygote.
    pub(super) fn make(&self, order: &Order, streams: [BorrowedFd<'_>; 3]) -> io::Result<Made> {
        let bytes = order.to_bytes();
        if bytes.len() > MAX_ORDER_BYTES {
            return Err(Errno::TOOBIG.into());
        }
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        let zygote = match &mut *running {
            Some(zygote) => zygote,
            None => running.insert(Running::start(&self.environment)?),
        };
        let made = zygote.make(&bytes, &streams);
        if made.is_err() {
            *running = None;
        }
        made?
    }

    /// Starts it before it is needed. Where that fails, the first shim says why.
    pub(super) fn start(&self) {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        if running.is_none() {
            *running = Running::start(&self.environment).ok();
        }
    }
}

impl Running {
    fn start(environment: &[(&'static str, String)]) -> io::Result<Running> {
        let (socket, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        for timeout in [Timeout::Recv, Timeout::Send] {
            set_socket_timeout(&socket, timeout, Some(ANSWER_TIMEOUT))?;
        }
        // This very program, whatever has become of its file: both speak the protocol of one build.
        let mut command = as_belljar(Command::new("/proc/self/exe"));
        command.envs(environment.iter().map(|(name, value)| (name, value)));
        // The words of its shims are longer.
        command.arg("zygote").arg(" ".repeat(ROOM_BYTES));
        let child = command.stdin(Stdio::from(theirs)).stdout(Stdio::null()).spawn()?;
        Ok(Running { socket, child })
    }

    /// The outer error is that the zygote has ended or does not answer; the inner one is why there is no shim.
    fn make(&self, order: &[u8], streams: &[BorrowedFd<'_>; 3]) -> io::Result<io::Result<Made>> {
        passing::send_with(&self.socket, order, streams)?;
        let mut number = [0; 4];
        let (length, handles) = passing::receive_with(&self.socket, &mut number)?;
        if length != number.len() {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        Ok(match handles.into_iter().next() {
            Some(pidfd) => Ok(Made { pid: u32::from_le_bytes(number), pidfd }),
            None => Err(io::Error::from_raw_os_error(i32::from_le_bytes(number))),
        })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It has nothing to put in order, and may hang.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// How long it may take to make a copy of itself.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(20);
/// Room for the words of a shim, with the path of its directory; what is longer is shown in part.
const ROOM_BYTES: usize = 1024;
