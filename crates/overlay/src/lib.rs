//! Layers: the changes of a sandbox beside an untouched folder, which the host shows, applies or discards.
//!
//! ```text
//!  create ──> locked by a sandbox ──finish──> unchanged: removed
//!                                   └─────> kept ──apply──> (some of it) kept
//!                                            │      └─────> (all of it)  removed
//!                                            └──discard──────────────────> removed
//! ```
//!
//! An agent wrote the upper directory through overlayfs, so it is treated as hostile. Nothing here mounts anything or runs a file
//! of a layer. The engine makes layers and ends them; the command line shows, applies and discards them.

mod apply;
pub mod beneath;
mod change;
mod compare;
mod descent;
mod dot_git;
mod error;
mod guard;
mod held;
mod id;
mod patch;
mod path;
mod put;
pub mod quote;
mod record;
mod rename;
mod repository;
pub mod snapshot;
mod stat;
mod store;
#[cfg(test)]
mod tests;
mod walk;
mod xattrs;

pub use apply::{Applied, Mended, Selection};
pub use change::{Change, ChangeKind, Changes, LeftOut, LeftOutWhy};
pub use error::{Conflict, ConflictWhy, LayerError};
pub use held::{Commits, Held, Outcome, Summary};
pub use id::LayerId;
pub use patch::{Lines, Patch};
pub use path::RelPath;
pub use put::NewEntry;
pub use record::Layer;
pub use stat::Identity;
pub use stat::{Kind, Moment, Stat};
pub use store::Layers;
