//! What every backend can do.

use crate::{Guest, Plan, bwrap, container, host, native};
use belljar_spec::{BackendName, SandboxError};

/// A wall.
pub trait Backend: Sync {
    /// Which one.
    fn name(&self) -> BackendName;

    /// Whether it works here. The error says why not, and what to do. Tries, rather than guesses.
    fn check(&self) -> Result<(), SandboxError>;

    /// Builds the wall and starts the guest behind it; returns when the guest is sealed and takes requests. An
    /// error of kind `unavailable` means that this wall cannot be had here, and that nothing was left behind. Does
    /// something else `meanwhile`: the guest is busy for a while.
    fn launch(&self, plan: &Plan, meanwhile: &dyn Fn()) -> Result<Guest, SandboxError>;
}

/// The backend of that name.
pub fn backend(name: BackendName) -> &'static dyn Backend {
    match name {
        BackendName::Native => &native::Native,
        BackendName::Bwrap => &bwrap::Bwrap,
        BackendName::Container => &container::Container,
        BackendName::Host => &host::Host,
    }
}
