//! Refusals that more than one place gives, in the same words.

use belljar_spec::{ErrorCode, SandboxError, Term, hint};

pub(crate) fn not_found(name: &str) -> SandboxError {
    ErrorCode::SandboxNotFound
        .error(format!("there is no sandbox `{name}`"))
        .hint(hint!("{} shows those that are there", Term::ListSandboxes))
}

pub(crate) fn deleted(name: &str) -> SandboxError {
    ErrorCode::ChangedMeanwhile
        .error(format!("the sandbox `{name}` was deleted while it was started"))
        .hint("start it again")
}

pub(crate) fn not_alive(name: &str) -> SandboxError {
    ErrorCode::SandboxNotAlive
        .error(format!("the sandbox `{name}` is stopped"))
        .hint(hint!("its owner can start it again with {}", Term::CreateSandbox))
}

pub(crate) fn no_lease(lease: &str) -> SandboxError {
    ErrorCode::NameUnknown
        .error(format!("there is no lease `{lease}`, or it has ended"))
        .hint("ask for the sandbox again to get a new one")
}

pub(crate) fn not_owner(name: &str) -> SandboxError {
    ErrorCode::NotGranted.error(format!("the sandbox `{name}` can be used, and not stopped or removed"),
    )
    .hint("the grant that made it can do that, a grant with its key in `own_keys`, and the owner of this machine")
}

/// A grant holds a sandbox too often or for too long.
pub(crate) fn too_many_leases(name: &str, why: String) -> SandboxError {
    ErrorCode::QuotaExceeded
        .error(format!("this grant has {why} on the sandbox `{name}`"))
        .hint(hint!("give leases back that are not needed; {} shows yours", Term::GetSandbox))
}

pub(crate) fn closing() -> SandboxError {
    ErrorCode::DaemonUnreachable.error("the daemon is stopping").hint("try again in a moment")
}
