//! What every backend can do.

use crate::{Drawing, Guest, Plan, bwrap, container, docker, e2b, host, landlock, native};
use belljar_spec::{BackendName, Runtime, SandboxError};

/// A backend.
pub trait Backend: Sync {
    /// Which one.
    fn name(&self) -> BackendName;

    /// Whether it works here. The error says why not, and what to do. Tries, rather than guesses, where that takes some
    /// milliseconds; a daemon is asked. Of `e2b` the engine knows which service it is, and asks that.
    fn check(&self) -> Result<(), SandboxError>;

    /// Builds the isolation and starts the guest in it; returns when the guest is confined and takes requests. An error of
    /// kind `unavailable` means that this backend is not available here, and that nothing was left behind. Does something
    /// else `meanwhile`, while the guest is busy and before the plan's first request is sent.
    fn launch(&self, plan: &Plan, meanwhile: Meanwhile<'_>) -> Result<Guest, SandboxError>;

    /// The same without starting anything: what would be built.
    fn draw(&self, plan: &Plan) -> Result<Drawing, SandboxError>;
}

/// The backend of that name.
pub fn backend(name: BackendName) -> &'static dyn Backend {
    match name {
        BackendName::Native => &native::Native,
        BackendName::Bwrap => &bwrap::Bwrap,
        BackendName::Docker(Runtime::Runc) => &docker::Docker(Runtime::Runc),
        BackendName::Docker(Runtime::Runsc) => &docker::Docker(Runtime::Runsc),
        BackendName::Docker(Runtime::Kata) => &docker::Docker(Runtime::Kata),
        BackendName::Landlock => &landlock::Landlock,
        BackendName::E2b => &e2b::E2b,
        BackendName::Container => &container::Container,
        BackendName::Host => &host::Host,
    }
}

/// What is done while a guest builds what it needs. An error ends the guest before it runs anything.
pub type Meanwhile<'a> = &'a dyn Fn() -> Result<(), SandboxError>;
