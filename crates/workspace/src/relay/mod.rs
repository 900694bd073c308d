//! The git server that the remote `host` in a sandbox reaches: git's own protocol over connections that the sandbox opens,
//! served from outside of it.
//!
//! ```text
//! connection -> request (git daemon's line) -> upload-pack: the host's git, branches and tags only
//!                                           -> receive-pack: ours; commands judged by their names, the pack into a
//!                                              quarantine, judged by its objects, then refs moved
//! ```
//!
//! Everything that arrives here was written by an agent. Nothing is changed on the host but by
//! [`crate::quarantine`]: objects are added, and refs that policy names move forward. Started and dropped by the engine.

mod connection_slots;
mod event;
mod line;
mod receive;
mod server;
mod upload;
mod verdict;

pub use event::RelayEvent;
pub use server::{LANDING, Relay, RelayTerms};
