//! A running sandbox: the contract that every backend keeps.

use crate::faults::disposed;
use crate::stream::{self, FromGuest, ToGuest};
use belljar_backend::{Counters, Guest, Plan};
use belljar_spec::{Assurance, BackendName, Limits, SandboxError, SandboxId};
use std::ffi::OsString;
use std::sync::{Mutex, PoisonError};

/// A running sandbox. Dropped, it is disposed of.
pub struct Sandbox {
    id: SandboxId,
    backend: BackendName,
    workspace: String,
    environment: Vec<(OsString, OsString)>,
    limits: Limits,
    landlock_abi: u32,
    /// `None` once disposed of.
    guest: Mutex<Option<Guest>>,
}

impl Sandbox {
    pub(crate) fn new(
        id: SandboxId,
        backend: BackendName,
        guest: Guest,
        plan: &Plan,
        limits: Limits,
    ) -> Result<Sandbox, SandboxError> {
        Ok(Sandbox {
            id,
            backend,
            workspace: plan.workspace()?.to_string(),
            environment: plan.environment()?.to_vec(),
            limits,
            landlock_abi: guest.landlock_abi(),
            guest: Mutex::new(Some(guest)),
        })
    }

    /// Its name.
    pub fn id(&self) -> SandboxId {
        self.id
    }

    /// Which wall it got. For people and logs: what a sandbox can do does not depend on it.
    pub fn backend(&self) -> BackendName {
        self.backend
    }

    /// How strong the wall is that it got.
    pub fn assurance(&self) -> Assurance {
        self.backend.assurance()
    }

    /// Where relative paths start, as a path inside.
    pub fn workspace(&self) -> &str {
        &self.workspace
    }

    /// What it may use.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// The version of Landlock in force inside; 0 for none.
    pub fn landlock_abi(&self) -> u32 {
        self.landlock_abi
    }

    /// Ends every command and takes the sandbox away. Operations after this fail. Doing it twice is fine.
    pub async fn dispose(&self) {
        let guest = self.take();
        // Waiting for processes to die blocks for a moment.
        let _ = tokio::task::spawn_blocking(move || drop(guest)).await;
    }

    /// The same, on this thread.
    pub fn dispose_blocking(&self) {
        drop(self.take());
    }

    /// The same, for a process that is about to exit: does not wait for what the kernel finishes by itself.
    pub fn abandon(&self) {
        if let Some(guest) = self.take() {
            guest.abandon();
        }
    }

    pub(crate) fn environment(&self) -> &[(OsString, OsString)] {
        &self.environment
    }

    pub(crate) fn open_stream(&self) -> Result<(ToGuest, FromGuest), SandboxError> {
        let stream = match &*self.guest.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(guest) => guest.open_stream()?,
            None => return Err(disposed()),
        };
        stream::open(stream)
    }

    pub(crate) fn take_first(&self) -> Result<(ToGuest, FromGuest), SandboxError> {
        let mut guest = self.guest.lock().unwrap_or_else(PoisonError::into_inner);
        match guest.as_mut().map(Guest::take_first) {
            Some(Some(first)) => stream::open(first),
            Some(None) => {
                Err(SandboxError::runtime("no_first_command", "the sandbox was made without a command"))
            }
            None => Err(disposed()),
        }
    }

    pub(crate) fn counters(&self) -> Counters {
        let guest = self.guest.lock().unwrap_or_else(PoisonError::into_inner);
        guest.as_ref().map(Guest::counters).unwrap_or_default()
    }

    fn take(&self) -> Option<Guest> {
        self.guest.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}
