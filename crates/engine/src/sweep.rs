//! What earlier processes left of their sandboxes, however they ended, and when it is removed: at the first start of a process. A shim
//! leaves that to its daemon, which knows which shims died: to look at what a thousand living sandboxes hold takes longer than a start.

use belljar_backend::sweeps;
use belljar_spec::BackendName;
use belljar_state::{DiskUsage, Sweeps, state_directory};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// Removes leftovers that no process holds, in this state directory and of this machine.
pub fn sweep_leftovers(state: Option<&Path>) {
    run(BackendName::Native, state);
}

/// Removes the prepared roots of this state directory that no sandbox holds; `dry_run` only counts them.
pub fn prune_prepared_roots(state: &Path, dry_run: bool) -> DiskUsage {
    belljar_backend::prune_prepared_roots(&prepared_roots(state), dry_run)
}

/// Where prepared roots are kept.
pub(crate) fn prepared_roots(state: &Path) -> PathBuf {
    state.join("prepared")
}

/// This process and its copies do not sweep at their first start: another process does when it is time.
pub(crate) fn leave_to_others() {
    let _ = SWEPT.set(());
}

/// The same as [`sweep_leftovers`], once in a process; and once for Docker, whose daemon is asked for what it was making.
pub(crate) fn at_first_start(backend: BackendName) {
    let swept = match backend {
        BackendName::Docker(_) => &SWEPT_WITH_DOCKER,
        _ => &SWEPT,
    };
    swept.get_or_init(|| run(backend, state_directory().ok().as_deref()));
}

fn run(backend: BackendName, state: Option<&Path>) {
    Sweeps::default()
        .with(&sweeps(backend))
        .with(&belljar_workspace::SWEEPS)
        .with(&crate::steering::SWEEPS)
        .run(state);
}

static SWEPT: OnceLock<()> = OnceLock::new();
static SWEPT_WITH_DOCKER: OnceLock<()> = OnceLock::new();
