//! Whether bubblewrap is here and works: by starting a sandbox with it.

use super::launch;
use crate::plan::trial;
use belljar_spec::SandboxError;
use std::env;
use std::path::PathBuf;

/// Starts a sandbox with nothing in it and ends it again.
pub(super) fn check() -> Result<(), SandboxError> {
    launch::launch(&trial()?).map(|guest| guest.stop())
}

/// Where bubblewrap is.
pub(super) fn program() -> Result<PathBuf, SandboxError> {
    let path = env::var_os("PATH").unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".into());
    let found = env::split_paths(&path)
        .filter(|directory| directory.is_absolute())
        .map(|directory| directory.join("bwrap"))
        .find(|candidate| candidate.is_file());
    found.ok_or_else(|| {
        SandboxError::unavailable("bwrap_missing", "bubblewrap (`bwrap`) is not installed")
            .hint("install it (`apt install bubblewrap`, `dnf install bubblewrap`), or use `--backend native`, which needs nothing")
    })
}
