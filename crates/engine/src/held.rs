//! A guest, shared by its sandbox and each of its running commands. It lives until the sandbox is disposed of.

use crate::faults::disposed;
use belljar_backend::{Counters, Dial, Guest};
use belljar_spec::{ErrorCode, SandboxError};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

#[derive(Clone)]
pub(crate) struct Held(Arc<Shared>);

struct Shared {
    guest: Mutex<Option<Guest>>,
    is_paused: AtomicBool,
    is_unresponsive: AtomicBool,
}

/// What is asked of a guest's process by the driver of a command, which has a stream to the guest.
pub(crate) trait GuestProcess: Send + Sync {
    /// What the kernel counted; zeros once it is gone.
    fn counters(&self) -> Counters;

    /// What the kernel counted until the guest ended by itself; zeros once it was disposed of. The function may block.
    fn counters_at_end(&self) -> Box<dyn FnOnce() -> Counters + Send>;

    /// Kills a guest that does not report the end of a command, or does not reply, and every process inside. A paused guest is
    /// left alone.
    fn kill_unresponsive(&self);
}

impl Held {
    pub(crate) fn new(guest: Guest) -> Held {
        Held(Arc::new(Shared {
            guest: Mutex::new(Some(guest)),
            is_paused: AtomicBool::new(false),
            is_unresponsive: AtomicBool::new(false),
        }))
    }

    pub(crate) fn is_disposed(&self) -> bool {
        self.lock().is_none()
    }

    /// A new stream, for one request.
    pub(crate) fn open_stream(&self) -> Result<UnixStream, SandboxError> {
        self.lock().as_ref().ok_or_else(disposed)?.open_stream()
    }

    /// The stream of the command that the sandbox was made with, once.
    pub(crate) fn take_first(&self) -> Result<UnixStream, SandboxError> {
        let first = self.lock().as_mut().ok_or_else(disposed)?.take_first();
        first.ok_or_else(|| ErrorCode::CommandEnded.error("the sandbox was made without a command"))
    }

    /// Whether the guest says that every process inside is stopped.
    pub(crate) fn is_paused(&self) -> bool {
        self.0.is_paused.load(Ordering::SeqCst) && !self.is_disposed()
    }

    pub(crate) fn set_paused(&self, is_paused: bool) {
        self.0.is_paused.store(is_paused, Ordering::SeqCst);
    }

    /// Whether it was killed because it was unresponsive.
    pub(crate) fn is_unresponsive(&self) -> bool {
        self.0.is_unresponsive.load(Ordering::SeqCst)
    }

    /// Whether it ended by itself.
    pub(crate) fn is_gone(&self) -> bool {
        self.lock().as_ref().is_some_and(Guest::is_gone)
    }

    /// Connects to ports inside, where the guest is not needed for it. It may block.
    pub(crate) fn dial(&self) -> Result<Option<Dial>, SandboxError> {
        Ok(self.lock().as_ref().ok_or_else(disposed)?.dial())
    }

    /// A stream that becomes a connection, where none is handed over.
    pub(crate) fn open_connection(&self) -> Result<Option<TcpStream>, SandboxError> {
        self.lock().as_ref().ok_or_else(disposed)?.open_connection()
    }

    /// Takes it out of use.
    pub(crate) fn take(&self) -> Option<Guest> {
        self.lock().take()
    }

    fn lock(&self) -> MutexGuard<'_, Option<Guest>> {
        self.0.guest.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl GuestProcess for Held {
    fn counters(&self) -> Counters {
        self.lock().as_ref().map(Guest::counters).unwrap_or_default()
    }

    fn counters_at_end(&self) -> Box<dyn FnOnce() -> Counters + Send> {
        match self.lock().as_ref() {
            Some(guest) => guest.counters_at_end(),
            None => Box::new(Counters::default),
        }
    }

    fn kill_unresponsive(&self) {
        if !self.is_paused() {
            self.0.is_unresponsive.store(true, Ordering::SeqCst);
            self.lock().iter().for_each(Guest::kill);
        }
    }
}
