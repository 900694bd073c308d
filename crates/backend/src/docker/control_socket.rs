//! The control socket of a container: its guest connects to it once.
//!
//! It lies in a directory that only belljar can enter, and that the container is shown. The peer must be process 1 of the
//! very container that was asked for; after it no other process can connect.

use super::container_dir::SOCKET;
use crate::guest::not_ready;
use belljar_spec::{ErrorCode, Runtime, SandboxError, Term, hint};
use belljar_sys::rustix::event::{PollFd, PollFlags, Timespec, poll};
use belljar_sys::rustix::fd::{AsFd, AsRawFd, OwnedFd};
use belljar_sys::rustix::fs::{AtFlags, CWD, Mode, OFlags, chmodat, open, unlinkat};
use belljar_sys::rustix::io::Errno;
use belljar_sys::rustix::net::{
    AddressFamily, Shutdown, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, listen, shutdown,
    socket_with, sockopt,
};
use belljar_sys::rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Where the guest will connect.
pub(super) struct Knocker {
    socket: Arc<OwnedFd>,
    directory: OwnedFd,
}

/// The process that connected.
pub(super) struct Knocked {
    pub(super) control_socket: OwnedFd,
    pub(super) pid: Pid,
    pub(super) uid: u32,
    /// A handle that never means another process.
    pub(super) process: OwnedFd,
}

impl Knocker {
    /// Listens in this directory.
    pub(super) fn listen(directory: &Path, kind: SocketType) -> Result<Knocker, SandboxError> {
        let listening = || -> Result<Knocker, Errno> {
            let directory =
                open(directory, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
            let socket = socket_with(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None)?;
            // By its descriptor: the name of a socket has room for a hundred bytes.
            let name = format!("/proc/self/fd/{}/{SOCKET}", directory.as_raw_fd());
            bind(&socket, &SocketAddrUnix::new(name.as_str())?)?;
            chmodat(CWD, name.as_str(), Mode::from_raw_mode(0o666), AtFlags::empty())?;
            listen(&socket, 1)?;
            Ok(Knocker { socket: Arc::new(socket), directory })
        };
        listening().map_err(failed)
    }

    /// A closure that ends the wait for the guest.
    pub(super) fn closer(&self) -> impl FnOnce() + Send + 'static {
        let socket = Arc::clone(&self.socket);
        move || {
            let _ = shutdown(&*socket, Shutdown::Both);
        }
    }

    /// Waits for the guest; `None` if the wait was ended meanwhile, or the process that connected is gone. None can connect after it.
    pub(super) fn wait(self, time_limit: Duration) -> Result<Option<Knocked>, SandboxError> {
        let deadline = Instant::now() + time_limit;
        let control_socket = loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let left = Timespec::try_from(left).map_err(|_| failed(Errno::INVAL))?;
            match poll(&mut [PollFd::new(&*self.socket, PollFlags::IN)], Some(&left)) {
                Ok(0) => return Err(not_ready(time_limit)),
                Ok(_) => {}
                Err(Errno::INTR) => continue,
                Err(errno) => return Err(failed(errno)),
            }
            match accept_with(self.socket.as_fd(), SocketFlags::CLOEXEC) {
                Err(Errno::INTR | Errno::AGAIN) => {}
                Err(Errno::INVAL) => return Ok(None),
                other => break other.map_err(failed)?,
            }
        };
        let _ = unlinkat(&self.directory, SOCKET, AtFlags::empty());
        let who = sockopt::socket_peercred(&control_socket).map_err(failed)?;
        let process = match pidfd_open(who.pid, PidfdFlags::empty()) {
            // It died since, and why is not ours to say.
            Err(Errno::SRCH) => return Ok(None),
            opened => opened.map_err(failed)?,
        };
        Ok(Some(Knocked { control_socket, pid: who.pid, uid: who.uid.as_raw(), process }))
    }
}

impl Knocked {
    /// Whether it is a process of this container, and its user.
    pub(super) fn is_of(&self, container: &str, uid: u32) -> bool {
        self.uid == uid && is_within(self.pid, container)
    }
}

/// Whether a process belongs to a container: what it may not leave says so.
pub(super) fn is_within(pid: Pid, container: &str) -> bool {
    fs::read_to_string(format!("/proc/{pid}/cgroup")).is_ok_and(|cgroups| cgroups.contains(container))
}

/// The type of the control socket: packets with descriptors, or one connection for streams where no descriptor passes.
pub(super) fn control_socket_kind(runtime: Runtime) -> SocketType {
    match runtime {
        Runtime::Runc | Runtime::Kata => SocketType::SEQPACKET,
        Runtime::Runsc => SocketType::STREAM,
    }
}

fn failed(errno: Errno) -> SandboxError {
    ErrorCode::StartFailed.error(format!("cannot make the control socket of the container: {errno}")).hint(
        hint!(
            "too many open files? `ulimit -n` says how many there may be; {} tries each backend by itself",
            Term::Capabilities
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn a_client_that_connects_and_dies_is_no_guest() {
        let place = tempfile::tempdir().expect("a folder");
        let knocker = Knocker::listen(place.path(), SocketType::STREAM).expect("a socket");
        let knock = "import socket, sys; socket.socket(socket.AF_UNIX).connect(sys.argv[1])";
        let knocked = Command::new("python3").args(["-c", knock]).arg(place.path().join(SOCKET)).status();
        assert!(knocked.expect("python3 is here").success());
        assert!(knocker.wait(Duration::from_secs(600)).expect("no error").is_none());
    }
}
