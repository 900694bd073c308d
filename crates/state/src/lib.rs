//! Belljar's state on disk: the path of the state directory, locks, files that are written atomically, directories that are removed
//! atomically, and the list of sweeps.
//!
//! Called by every crate that stores something. Knows nothing of the content: formats and names belong to their crates.
//!
//! Two kinds of locks and renames are not here. Mount points in a user's folder are locked by a protocol between the host and the
//! guest ([`belljar_sys::remove`]), and the guest cannot see this crate. Files in a user's git directory are written under the
//! names that git itself uses (`NAME.lock`, `tmp_NAME`), which git respects and `git gc` removes.

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
