//! Why a clone cannot be used.

use crate::foreign::{ForeignError, ImportError};
use crate::inert::GitError;
use belljar_spec::egress::Printable;
use belljar_spec::{CommandLine, ErrorCode, SandboxError, Term, hint};
use belljar_state::damage::Damaged;
use std::io;
use std::path::{Path, PathBuf};

/// Why a clone cannot be used. No message has a token in it.
#[derive(Debug, thiserror::Error)]
pub enum CloneError {
    #[error("`{url}` cannot be cloned: {why}")]
    Address { url: Printable, why: &'static str },
    #[error("there is no clone `{0}`")]
    Unknown(Printable),
    #[error("clone `{0}` is in use by a sandbox")]
    InUse(Printable),
    #[error("clone `{0}` is empty: nothing could be cloned when it was made")]
    Empty(Printable),
    #[error("`{url}` could not be cloned: {reason}")]
    Failed { url: String, reason: Printable },
    #[error("`{0}` was not cloned: its HEAD leads to no commit, so there is nothing to work on")]
    NoCommits(String),
    #[error("`{url}` could not be cloned ({reason}), and a sandbox worked in `{}`, which is no repository", folder.display())]
    Worked { url: String, reason: Printable, folder: PathBuf },
    #[error("the clone {0}")]
    Damaged(Damaged),
    #[error("the git directory of the clone cannot be read: {0}")]
    Spoiled(#[from] ForeignError),
    #[error("what was committed cannot be taken over: {0}")]
    Import(#[from] ImportError),
    #[error("there is nothing to push: no commit was made")]
    NothingToPush,
    #[error("`{0}` is the default branch of the remote")]
    DefaultBranch(String),
    #[error("branch `{branch}` was not pushed to `{url}`: {reason}")]
    NotPushed { branch: String, url: String, reason: Printable },
    #[error("`{0}` is not on a host that pull requests can be opened at")]
    NoForge(String),
    #[error("no pull request was opened: {0}")]
    NoRequest(Printable),
    #[error(transparent)]
    Git(#[from] GitError),
    #[error("`{}`: {source}", path.display())]
    Io { path: PathBuf, source: io::Error },
}

impl CloneError {
    pub(super) fn io(path: &Path) -> impl FnOnce(io::Error) -> CloneError {
        let path = path.to_path_buf();
        move |source| CloneError::Io { path, source }
    }
}

impl From<CloneError> for SandboxError {
    fn from(error: CloneError) -> SandboxError {
        let message = error.to_string();
        let made = match &error {
            CloneError::Address { .. } => ErrorCode::RequestValue.error(message),
            CloneError::Unknown(_) => ErrorCode::WorkNotFound
                .error(message)
                .hint(hint!("{} shows what there is", CommandLine::Layers)),
            CloneError::InUse(_) => {
                ErrorCode::InUse.error(message).hint("wait for its sandbox to end, or stop it")
            }
            CloneError::Failed { .. } => ErrorCode::RegistryFailed
                .error(message)
                .hint("nothing was started; look at the address, the network, and the token for that host"),
            CloneError::NoCommits(_) => ErrorCode::RegistryFailed.error(message).hint(hint!(
                "nothing was started; is it the right repository? Another branch of it is named with {}; a new one needs a first commit",
                Term::Branch.to("NAME")
            )),
            CloneError::Worked { .. } => ErrorCode::WorkNotFound
                .error(message)
                .hint(hint!("copy what you need from there, and remove it with {}", CommandLine::Discard)),
            CloneError::Damaged(damaged) => damaged.error(),
            CloneError::Empty(_) => ErrorCode::WorkspaceFailed.error(message),
            CloneError::Spoiled(_) | CloneError::Import(_) => ErrorCode::WorkspaceFailed.error(message),
            CloneError::NothingToPush => ErrorCode::WorkNotFound.error(message),
            CloneError::DefaultBranch(_) => ErrorCode::RequestValue
                .error(message)
                .hint("name the branch to push to, if that is what you want"),
            CloneError::NotPushed { .. } => ErrorCode::RegistryFailed
                .error(message)
                .hint("the work is kept: push it under another name, or fetch it from the clone"),
            CloneError::NoForge(_) => ErrorCode::RequestValue
                .error(message)
                .hint("the branch is pushed: open one on the host's own pages"),
            CloneError::NoRequest(_) => ErrorCode::RegistryFailed.error(message),
            CloneError::Git(GitError::Missing) => {
                ErrorCode::ProgramMissing.error(message).hint("install git")
            }
            CloneError::Git(_) | CloneError::Io { .. } => ErrorCode::WorkspaceFailed.error(message),
        };
        made.caused_by(error)
    }
}
