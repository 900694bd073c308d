//! Pushes to git hosts, held to rules where the gateway looks into connections.
//!
//! ```text
//! request ─> named: is it a push, in any reading? ─> body: into a file without a name, watched for its commands
//!                                                       └─> by name ─> by its pack (PackJudge) ─> the server
//!                                                              └───────────┴─> git's own report of what was refused
//! ```
//!
//! What names a push and cannot be understood is refused. What never says receive-pack (a host's own API) is not seen
//! here: rules about requests are for that.

mod named;
mod spool;

pub(crate) use named::{Named, named};
pub(crate) use spool::{Spool, spooled};

use belljar_git::PackJudge;
use belljar_spec::git::RefPolicy;
use std::sync::Arc;
use tokio::sync::Semaphore;

/// What holds for the pushes of one sandbox, and who looks at what they bring.
pub struct Pushes {
    pub policy: RefPolicy,
    pub judge: Arc<dyn PackJudge>,
    /// So many are kept in files at once; others wait.
    pub(crate) room: Semaphore,
}

impl Pushes {
    pub fn new(policy: RefPolicy, judge: Arc<dyn PackJudge>) -> Pushes {
        Pushes { policy, judge, room: Semaphore::new(AT_ONCE) }
    }
}

const AT_ONCE: usize = 2;
