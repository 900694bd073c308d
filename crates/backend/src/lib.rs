//! Backends: how sandboxes are isolated. One trait, one folder a backend, every folder the same files in the same roles:
//!
//! | file | role |
//! | --- | --- |
//! | `mod.rs` | the backend: its name, and the calls to the other files |
//! | `check.rs` | whether it works here, and if not, why and what to do |
//! | `launch.rs` | from a plan to a guest that is ready |
//!
//! A backend builds the isolation and hands over a [`Guest`]; everything else (commands, files, timeouts, output limits) is
//! written once, above the guest protocol. Called by the engine only.

mod bwrap;
mod cgroup;
mod container;
mod contract;
mod control_socket;
mod docker;
mod drawing;
mod e2b;
mod embedded;
mod guest;
mod host;
mod landlock;
mod layout;
mod mountpoints;
mod native;
mod open_place;
mod plan;
mod sweeps;

use plan::Enforcement;

pub use cgroup::{Counters, Held as HeldByCgroup, held_by_cgroup};
pub use container::{around_us as container_around_us, landlock_is_filtered};
pub use contract::{Backend, Meanwhile, backend};
pub use docker::{fetch_image, image_root};
pub use drawing::{Drawing, LimitsHeld};
pub use e2b::{Named, Remote, Service, forget as forget_remote, service};
pub use embedded::hold_guest_program;
pub use guest::{Dial, Guest, guest_gone};
pub use layout::{
    DaemonImage, EnvFiles, GitInside, RootTree, SealedLayers, WORKSPACE, context_git_config, home_files,
    root_directory, shell,
};
pub use plan::{EgressSockets, FirstRequest, Isolation, Plan, Seen};
pub use sweeps::{prune_prepared_roots, sweeps};

/// What the supervisor of the backend `landlock` makes of system calls: plain functions over hostile numbers and bytes, for a fuzzer.
#[doc(hidden)]
pub mod supervised {
    pub use crate::landlock::supervisor::judge::*;
}
