//! How files get into a sandbox and changes out of it: managed clones, clones, and git calls that run no foreign code.
//!
//! Blocking, and prints nothing: the engine calls it, the command line reports. Nothing here ever runs code from an agent: git is
//! only started by [`inert`].

pub mod clone;
pub mod context;
pub mod foreign;
pub mod inert;
pub mod inside;
pub mod managed;
pub mod pack_judge;
pub mod private_git;
pub mod protect;
pub mod quarantine;
mod raw_diff;
pub mod relay;
mod settings;
pub mod touched;
mod traps;
mod uncommitted;

pub use settings::HostFiles;
pub use traps::{Trap, TrapKind};

use belljar_state::Sweep;

/// Sweeps the leftovers of killed processes, at the first start in a process.
pub const SWEEPS: [Sweep; 1] =
    [Sweep::of_state("pushes", |state| pack_judge::sweep(&state.join(pack_judge::DIRECTORY)))];
