//! Snapshots: the files that a persistent sandbox keeps, as layers that never change again.
//!
//! ```text
//! <fleet>/snapshots/
//!   lock                      held while a layer gets its name, while a chain or a snapshot is written, and while layers are removed
//!   layers/<layer>/           what a sandbox changed until it was sealed: root/, home/, workspace/
//!   layers/.new-<layer>/      one that is being copied; its maker holds `lock` in it
//!   taken/<id>/snapshot.json  a snapshot: its layers, topmost first, and what is known of it
//!   taken/<id>/root/          which image or golden root lies below
//! <fleet>/sandboxes/<name>/
//!   chain.json                the layers that lie below this sandbox, topmost first; missing: none
//!   home/, workspace/, root/changes/upper/   what it changed since
//! ```
//!
//! *Sealing* makes a layer of what a sandbox changed: its directories get another name, and empty ones take their place. The chain
//! is written first, with a layer that is still empty. From then on each rename moves files from above that layer into it, so that
//! a sandbox shows the same files before and after every step, and a kill between two steps loses nothing.
//!
//! A layer is referenced by the chains and the snapshots that name it, and by nothing else: there is no counter. What none of them
//! names is removed by [`SnapshotStore::collect`], which removes nothing while one of them cannot be read.
//!
//! What lies in a layer was written by an agent: no link in it is followed, and nothing of it is run. The engine mounts layers; nothing here does.

mod chain;
mod collect;
mod copy;
mod error;
mod files;
mod merge;
mod record;
mod seal;
mod store;
#[cfg(test)]
mod tests;

pub use chain::Chain;
pub use collect::Forking;
pub use copy::CopyLimit;
pub use error::SnapshotError;
pub use files::{Part, SandboxFiles};
pub use record::{Automatic, Method, Snapshot};
pub use seal::Step as SealStep;
pub use store::{Found, NewSnapshot, SnapshotStore};
