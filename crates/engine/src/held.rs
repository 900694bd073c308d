//! A guest as those hold it who use it: the sandbox, and each of its running commands. It lives until the sandbox is
//! disposed of, whoever still holds it.

use crate::faults::disposed;
use belljar_backend::{Counters, Guest};
use belljar_spec::SandboxError;
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

#[derive(Clone)]
pub(crate) struct Held(Arc<Mutex<Option<Guest>>>);

impl Held {
    pub(crate) fn new(guest: Guest) -> Held {
        Held(Arc::new(Mutex::new(Some(guest))))
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
        first.ok_or_else(|| {
            SandboxError::runtime("no_first_command", "the sandbox was made without a command")
        })
    }

    /// Kills it, with everything inside, and waits for nothing.
    pub(crate) fn kill(&self) {
        self.lock().iter().for_each(Guest::kill);
    }

    /// What the kernel counted; zeros once it is gone.
    pub(crate) fn counters(&self) -> Counters {
        self.lock().as_ref().map(Guest::counters).unwrap_or_default()
    }

    /// Whether it ended by itself.
    pub(crate) fn is_gone(&self) -> bool {
        self.lock().as_ref().is_some_and(Guest::is_gone)
    }

    /// A stream that becomes a connection, where none is handed over.
    pub(crate) fn open_connection(&self) -> Result<Option<TcpStream>, SandboxError> {
        self.lock().as_ref().ok_or_else(disposed)?.open_connection()
    }

    /// What the kernel counted until the guest ended by itself; zeros once it was disposed of.
    pub(crate) async fn counters_at_end(&self) -> Counters {
        let Some(at_end) = self.lock().as_ref().map(Guest::counters_at_end) else {
            return Counters::default();
        };
        // Others need the guest meanwhile, and the event loop.
        tokio::task::spawn_blocking(at_end).await.unwrap_or_default()
    }

    /// Nobody uses it any more.
    pub(crate) fn take(&self) -> Option<Guest> {
        self.lock().take()
    }

    fn lock(&self) -> MutexGuard<'_, Option<Guest>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
