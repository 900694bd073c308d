//! What belljar keeps on disk: where the state directory is, locks, files that are written whole or not at all, directories
//! that are removed whole or not at all, and the list of sweeps.
//!
//! Called by every crate that keeps something. Knows nothing of what is kept: formats and names belong to their crates.
//!
//! Two kinds of locks and renames are not here. Stubs in a user's folder are locked by a protocol between the host and the
//! guest ([`belljar_sys::remove`]), and the guest cannot see this crate. Files in a user's git directory are written under the
//! names that git itself uses (`NAME.lock`, `tmp_NAME`), which git respects and its gc removes.

pub mod damage;
mod directory;
mod holder;
mod id;
mod lock;
mod remove;
mod sweep;
mod usage;
mod write;

pub use directory::{NoStateDirectory, create_private, state_directory};
pub use holder::lock_holder;
pub use id::new_id;
pub use lock::{Lock, is_written_to, lock_open_file};
pub use remove::{remove_set_aside, remove_whole, set_aside, sweep_removed};
pub use sweep::{Sweep, Sweeps};
pub use usage::{DiskUsage, disk_usage};
pub use write::{PRIVATE_FILE, Survives, write_atomic, write_atomic_at};
