//! The git server that the remote `host` in a sandbox reaches: git's own protocol over connections that the sandbox opens,
//! served from outside of it.
//!
//! ```text
//! connection -> request (git daemon's line) -> upload-pack: the host's git, branches and tags only
//!                                           -> receive-pack: ours; commands are judged by ref names, the pack goes into a
//!                                              quarantine and is judged by its objects, then refs move
//! ```
//!
//! An agent writes everything that arrives here. Only [`crate::quarantine`] changes anything on the host: it adds objects, and
//! moves refs that the policy allows forward. Started and dropped by the engine.

mod connection_slots;
mod event;
mod line;
mod receive;
mod server;
mod upload;
mod verdict;

pub use event::RelayEvent;
pub use server::{LANDING, Relay, RelayTerms};
