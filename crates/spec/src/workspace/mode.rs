//! How files reach a sandbox and how changes come back.

use crate::git::BranchName;
use std::path::PathBuf;

/// How files reach a sandbox and how changes come back.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum WorkspaceMode {
    /// The folder itself.
    #[default]
    Bind,
    /// A folder that belljar keeps for this sandbox.
    Own(PathBuf),
    /// The folder untouched; changes in a layer that is applied or discarded: a new one, or one that is there, by its id
    /// or the beginning of it.
    Overlay { layer: Option<String> },
    /// A clone that belljar keeps, with a worktree for this branch; without a name, the one checked out on the host.
    ManagedClone { branch: Option<BranchName> },
    /// A fresh clone that the host makes.
    Clone(CloneSpec),
}

/// What the host clones.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CloneSpec {
    /// Where from: a URL that git understands, or a path.
    pub url: String,
    /// Which branch; without a name, the remote's own choice.
    pub branch: Option<BranchName>,
    /// How many commits back; without a number, all.
    pub depth: Option<u32>,
}

/// Which git directory a sandbox has in a folder that is a repository.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum GitAccess {
    /// One of its own; commits come out through quarantine and checks.
    #[default]
    Private,
    /// The host's own `.git`, writable: what the sandbox writes there, git of the host believes. Said and recorded.
    Share,
}
