//! How files get into a sandbox and changes out of it: layers, shelves, clones, and git that cannot bite.
//!
//! Blocking, and without a word to anybody: the engine calls it, the command line speaks. Nothing here ever runs what an
//! agent wrote: git is only started by [`inert`].

pub mod clone;
pub mod context;
mod damage;
pub mod foreign;
pub mod inert;
pub mod inside;
pub mod layer;
pub mod pack_judge;
pub mod private_git;
pub mod protect;
pub mod quarantine;
mod raw_diff;
pub mod relay;
pub mod remove;
mod settings;
pub mod shelf;
pub mod touched;
mod traps;
mod uncommitted;

pub use damage::Damaged;
pub use settings::HostFiles;
pub use traps::{Trap, TrapKind};
