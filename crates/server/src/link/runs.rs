//! The directories of runs: below `runs` of the daemon's own directory, one for each run, and gone with it.

use belljar_fleet::SandboxDir;
use belljar_spec::SandboxError;
use std::fs;
use std::path::{Path, PathBuf};
use tracing::warn;

/// A directory for a run that is to be. It is made when the run is.
pub(super) fn new_place(fleet: &Path) -> Result<SandboxDir, SandboxError> {
    Ok(SandboxDir::new(folder(fleet).join(belljar_state::new_id()?.to_string())))
}

/// Removes what runs left that died with a daemon. Those that still run are not touched.
pub(crate) fn clear(fleet: &Path) {
    for entry in fs::read_dir(folder(fleet)).into_iter().flatten().flatten() {
        remove(&SandboxDir::new(entry.path()));
    }
}

/// Removes the directory of a run whose process has ended, and what a process that was killed left elsewhere.
pub(super) fn clean_up(place: &SandboxDir, was_killed: bool) {
    remove(place);
    if was_killed {
        belljar_engine::sweep_leftovers(belljar_state::state_directory().ok().as_deref());
    }
}

/// Removes the directory of a run.
pub(super) fn remove(place: &SandboxDir) {
    let Ok(Some(_held)) = place.hold() else { return };
    if let Err(error) = belljar_sys::remove_tree::remove(place.directory()) {
        warn!("{} is left of a run: {error}", place.directory().display());
    }
}

fn folder(fleet: &Path) -> PathBuf {
    fleet.join("runs")
}
