//! Whether bubblewrap is here and works: by starting a sandbox with it.

use super::launch;
use crate::plan::trial;
use belljar_spec::{ErrorCode, SandboxError, Term, hint};
use std::path::{Path, PathBuf};

/// Starts a sandbox with nothing in it and ends it again.
pub(super) fn check() -> Result<(), SandboxError> {
    launch::launch(&trial()?, &|| Ok(())).map(|guest| guest.stop())
}

/// Where bubblewrap is: only where the system's own programs are. PATH may name a folder that an agent can write to, and
/// the host never runs the agent's code.
pub(super) fn program() -> Result<PathBuf, SandboxError> {
    let found = SYSTEM
        .iter()
        .map(|directory| Path::new(directory).join("bwrap"))
        .find(|candidate| candidate.is_file());
    found.ok_or_else(|| {
        ErrorCode::BackendUnavailable.error("bubblewrap (`bwrap`) is not installed").hint(hint!(
            "install it (`apt install bubblewrap`, `dnf install bubblewrap`), or use {}, which needs nothing",
            Term::Backend.to("native")
        ))
    })
}

const SYSTEM: [&str; 4] = ["/usr/bin", "/bin", "/usr/local/bin", "/run/current-system/sw/bin"];
