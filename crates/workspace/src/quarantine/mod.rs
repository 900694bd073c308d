//! A quarantine holds an agent's objects until they are checked: a repository of ours that borrows from the host's and has no refs.
//! They are not in the host's repository before [`Quarantine::admit`].
//!
//! ```text
//! create -> take (index-pack: whole, well formed, within limits) -> whole, follows, keeps_workflows -> admit -> drop
//! ```
//!
//! A quarantine is removed on drop. One whose process was killed is removed by the next [`sweep`], with all that it had half moved.
//! Called by the relay and by imports from a private git directory; the host's repository is only touched by `admit`, `sweep` and
//! [`HostRepository::land`].

mod admit;
pub(crate) mod alternates;
mod host;
mod journal;
mod judge;
mod land;
mod merge;
mod orphan;
mod receive;
mod scratch;
mod store;
mod sweep;

pub use admit::Admitted;
pub(crate) use host::Owner;
pub use host::{HostRef, HostRepository};
pub(crate) use journal::IndexFiles;
pub(crate) use judge::shown;
pub use land::Landing;
pub(crate) use merge::Merged;
pub use receive::{Incoming, Taken};
pub use store::Quarantine;
pub use sweep::sweep;

use crate::inert::GitError;
use belljar_git::PushRefusal;
use std::io;
use std::path::{Path, PathBuf};

/// Why objects do not arrive.
#[derive(Debug, thiserror::Error)]
pub enum QuarantineError {
    /// The received objects are refused.
    #[error("refused: {0}")]
    Refused(PushRefusal),
    #[error(transparent)]
    Git(#[from] GitError),
    #[error("cannot {step} `{}`", path.display())]
    File { step: &'static str, path: PathBuf, source: io::Error },
    #[error("{0}")]
    Unusable(String),
    /// The sender has stopped, or took too long.
    #[error("the push ended in the middle: {0}")]
    Broken(io::Error),
}

impl QuarantineError {
    pub(crate) fn file(step: &'static str, path: &Path) -> impl FnOnce(io::Error) -> QuarantineError {
        let path = path.to_path_buf();
        move |source| QuarantineError::File { step, path, source }
    }

    pub(crate) fn pack(detail: impl Into<String>) -> QuarantineError {
        QuarantineError::Refused(PushRefusal::Pack { detail: detail.into() })
    }

    /// The message for the client, without the host's paths.
    pub fn refusal(&self) -> PushRefusal {
        let detail = match self {
            QuarantineError::Refused(refusal) => return refusal.clone(),
            QuarantineError::Git(GitError::TooSlow { .. } | GitError::Late { .. }) => {
                "it takes too long to look at"
            }
            QuarantineError::Git(GitError::Spent { .. }) => SPENT,
            QuarantineError::Git(_) => "git on the host failed",
            QuarantineError::File { step, .. } => step,
            QuarantineError::Unusable(_) => "the host's repository cannot be used",
            QuarantineError::Broken(_) => "the push ended in the middle",
        };
        PushRefusal::Failed { detail: detail.to_string() }
    }
}

/// The message for the client when git on the host has used the sandbox's processor time. After a restart the sandbox has the full
/// amount again.
pub(crate) const SPENT: &str =
    "this sandbox has used the processor time that git on the host may use for it until it is started again";
