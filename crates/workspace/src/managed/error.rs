//! Why a managed clone could not be made or used.

use crate::foreign::{ForeignError, ImportError};
use crate::inert::GitError;
use belljar_spec::egress::Printable;
use belljar_spec::{CommandLine, ErrorCode, SandboxError, hint};
use belljar_state::damage::Damaged;
use std::io;
use std::path::{Path, PathBuf};

/// A managed clone could not be made, or cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ManagedCloneError {
    #[error("`{}` is not in a git repository", .0.display())]
    NoRepository(PathBuf),
    #[error("`{}` names a git directory that does not know it: {why}", path.display())]
    NotItsOwn { path: PathBuf, why: &'static str },
    #[error("`{}` is a partial clone: some of its objects are only on its remote", .0.display())]
    Partial(PathBuf),
    #[error("`{}` cannot have a managed clone: its path has a line break in it", .0.display())]
    UnusablePath(PathBuf),
    #[error("there is no managed clone `{0}`")]
    Unknown(Printable),
    #[error("branch `{branch}` of the managed clone `{clone_name}` is in use by a sandbox")]
    InUse { clone_name: String, branch: String },
    #[error("there cannot be a branch `{branch}` beside `{other}`: for git, one is a folder of the other")]
    NameTaken { branch: String, other: String },
    #[error("the managed clone of `{}` was changed inside so that it cannot be used: {source}", host.display())]
    Spoiled { host: PathBuf, source: ForeignError },
    #[error("the managed clone {0}")]
    Damaged(Damaged),
    #[error("the managed clone `{clone_name}` is of another repository that was at `{}`", host.display())]
    OfAnother { clone_name: String, host: PathBuf, directory: PathBuf },
    #[error("`{}` is {what}, where git expects {expected}", path.display())]
    NotAFile { path: PathBuf, what: &'static str, expected: &'static str },
    #[error("more than {max} files are not committed in `{}`", .0.display(), max = super::MAX_UNCOMMITTED)]
    TooManyUncommitted(PathBuf),
    #[error("what was committed in the managed clone cannot be read: {0}")]
    Import(#[source] ImportError),
    #[error(transparent)]
    Git(#[from] GitError),
    #[error("`{}`: {source}", path.display())]
    Io { path: PathBuf, source: io::Error },
}

impl ManagedCloneError {
    pub(super) fn io(path: &Path) -> impl FnOnce(io::Error) -> ManagedCloneError {
        let path = path.to_path_buf();
        move |source| ManagedCloneError::Io { path, source }
    }
}

impl From<ManagedCloneError> for SandboxError {
    fn from(error: ManagedCloneError) -> SandboxError {
        let message = error.to_string();
        let made = match &error {
            ManagedCloneError::NoRepository(_) => ErrorCode::WorkspaceMissing
                .error(message)
                .hint("run `git init` in it, or use another workspace mode"),
            ManagedCloneError::NotItsOwn { .. } => ErrorCode::PathRefused
                .error(message)
                .hint("look at the file `.git` in it: it may have been changed"),
            ManagedCloneError::Partial(_) => ErrorCode::NotSupported.error(message).hint(
                "fetch all of it with `git fetch --refetch --no-filter`, or use another workspace mode",
            ),
            ManagedCloneError::UnusablePath(_) => ErrorCode::PathInvalid.error(message),
            ManagedCloneError::Unknown(_) => ErrorCode::WorkNotFound
                .error(message)
                .hint(hint!("{} shows what there is", CommandLine::Layers)),
            ManagedCloneError::InUse { .. } => {
                ErrorCode::InUse.error(message).hint("wait for its sandbox to end, or stop it")
            }
            ManagedCloneError::NameTaken { .. } => ErrorCode::NameTaken
                .error(message)
                .hint("choose another name, with `-` instead of `/` for example"),
            ManagedCloneError::Spoiled { .. } => ErrorCode::WorkspaceFailed
                .error(message)
                .hint(hint!("save what you need of it, and start anew after {}", CommandLine::Discard)),
            ManagedCloneError::Damaged(damaged) => damaged.error(),
            ManagedCloneError::OfAnother { clone_name, directory, .. } => {
                ErrorCode::PathRefused.error(message).hint(hint!(
                    "its worktrees are in `{}`, its commits in `{}`: save what you need of them \
                     ({}, \"Damaged work\"), then {} removes it and the next start \
                     makes one for the repository that is there now",
                    directory.join("trees").display().to_string(),
                    directory.join("repo").display().to_string(),
                    CommandLine::Help.of("workspaces"),
                    CommandLine::Discard.of(clone_name)
                ))
            }
            ManagedCloneError::TooManyUncommitted(_) => {
                ErrorCode::NotSupported.error(message).hint("commit them inside, or copy them from there")
            }
            ManagedCloneError::NotAFile { .. } => ErrorCode::PathRefused
                .error(message)
                .hint("git on this machine would wait for it or fail: remove it if you did not make it"),
            ManagedCloneError::Import(_) => ErrorCode::WorkspaceFailed
                .error(message)
                .hint(hint!("save what you need of it, and start anew after {}", CommandLine::Discard)),
            ManagedCloneError::Git(GitError::Missing) => {
                ErrorCode::ProgramMissing.error(message).hint("install git")
            }
            ManagedCloneError::Git(_) | ManagedCloneError::Io { .. } => {
                ErrorCode::WorkspaceFailed.error(message)
            }
        };
        made.caused_by(error)
    }
}
