//! What a killed process leaves of a sandbox outside of it: cgroups, containers, mount points in folders of the user.

use crate::docker::sweep_containers;
use crate::{cgroup, landlock, mountpoints, native};
use belljar_spec::BackendName;
use belljar_state::{DiskUsage, Sweep};
use std::path::Path;

/// What the first start of a process sweeps, in this order: what is mounted for a container lies over mount points.
pub fn sweeps(backend: BackendName) -> [Sweep; 4] {
    let containers = match backend {
        // The daemon may have been making one when the process that wanted it died: it is asked too.
        BackendName::Docker(_) => {
            Sweep::of_state("containers", |state| sweep_containers(&state.join("docker"), true))
        }
        _ => Sweep::of_state("containers", |state| sweep_containers(&state.join("docker"), false)),
    };
    let cgroups = Sweep::of_machine("cgroups", || {
        cgroup::sweep();
    });
    [
        cgroups,
        containers,
        Sweep::of_state("stubs", |state| mountpoints::sweep_mountpoints(&state.join("stubs"))),
        Sweep::of_state("private", |state| landlock::sweep_private_dirs(&state.join("private"))),
    ]
}

/// Removes the prepared roots in this directory that no sandbox holds; `dry_run` only counts them.
pub fn prune_prepared_roots(directory: &Path, dry_run: bool) -> DiskUsage {
    native::prune_prepared(directory, dry_run)
}
