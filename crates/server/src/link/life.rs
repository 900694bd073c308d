//! Whether a shim lives: told by the kernel, not guessed.

use belljar_sys::rustix::fd::OwnedFd;
use belljar_sys::rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::io;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::net::UnixStream;
use tokio::sync::watch;

/// For waiting for the end of a process.
#[derive(Debug, Clone)]
pub(super) struct Life(watch::Receiver<bool>);

/// The other side of a [`Life`]: dropped, it is over.
#[derive(Debug)]
pub(super) struct Ending(
    #[expect(dead_code, reason = "what counts is when it is dropped")] watch::Sender<bool>,
);

impl Life {
    pub(super) fn new() -> (Life, Ending) {
        let (sender, receiver) = watch::channel(true);
        (Life(receiver), Ending(sender))
    }

    /// Ready when it is over.
    pub(super) async fn over(&self) {
        let mut receiver = self.0.clone();
        // Nothing is ever sent: an error is the end of the other side.
        while receiver.changed().await.is_ok() {}
    }

    pub(super) fn is_over(&self) -> bool {
        self.0.has_changed().is_err()
    }
}

/// The process at the other end of a connection, by a handle that never means another one. It is of use only as long as the
/// connection shows that the process lived when the handle was made.
pub(super) fn process_of(stream: &UnixStream) -> io::Result<AsyncFd<OwnedFd>> {
    let pid = stream.peer_cred()?.pid().and_then(Pid::from_raw);
    let pid = pid.ok_or_else(|| io::Error::other("a process that cannot be seen from here"))?;
    watched(pidfd_open(pid, PidfdFlags::NONBLOCK)?)
}

/// A handle to a process that is readable when the process has ended (pidfd_open(2)).
#[expect(
    deprecated,
    reason = "its successor is unsafe; a descriptor that is owned keeps what is asked of one"
)]
pub(super) fn watched(handle: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    AsyncFd::with_interest(handle, Interest::READABLE)
}

/// Waits for the end of a process.
pub(super) async fn ended(process: AsyncFd<OwnedFd>) {
    // A handle that cannot be waited for is as good as the end of it.
    let _ = process.readable().await;
}
