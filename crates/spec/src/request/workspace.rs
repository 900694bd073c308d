//! The files that are worked on.

use super::HostPath;
use super::field::request;
#[cfg(feature = "schema")]
use crate::OsText;
use crate::git::{BranchName, RefPattern};
use crate::workspace::{HidePattern, ProtectedPath};

request! {
    /// The files that are worked on.
    pub struct WorkspaceRequest {
        /// A folder of the host. Left out: a folder that belongs to the sandbox.
        folder: Option<HostPath> as Option<OsText>, grant;
        /// Leave the folder as it is and keep all changes in a layer.
        overlay: bool, anyone;
        /// Work on a branch of the folder's repository, in a worktree kept by belljar.
        branch: Option<BranchName> as Option<String>, grant;
        /// Work in a clone of this repository that the host makes; with `branch`, on that one.
        clone: Option<String>, owner;
        /// Clone only so many commits back.
        #[cfg_attr(feature = "schema", schema(minimum = 1))]
        depth: Option<u32>, anyone;
        /// The workspace is seen where it is on the host, instead of at `/workspace`.
        same_path: bool, anyone;
        /// More paths of the host, read-only.
        ro: Vec<HostPath> as Vec<OsText>, grant;
        /// More paths of the host, writable.
        rw: Vec<HostPath> as Vec<OsText>, grant;
        /// Paths below the workspace that cannot be changed inside.
        protect: Vec<ProtectedPath> as Vec<String>, anyone;
        /// Files and folders of the workspace that are hidden inside: names at any depth (`.env`, `*.pem`), or paths from its top.
        hide: Vec<HidePattern> as Vec<String>, anyone;
        /// Files of variables (`.env`) that are seen inside with a placeholder in the place of each value: names at any depth, or
        /// paths from the top of the workspace. `hide` counts more.
        placeholders: Vec<HidePattern> as Vec<String>, anyone;
        /// Branches that may be pushed to.
        push: Vec<RefPattern> as Vec<String>, anyone;
        /// Let the sandbox write the folder's own `.git`, whose content git of the host believes, instead of a git directory of its own.
        share_git: bool, owner;
        /// Directories of the host whose `*.md` agents are told beside what the repository's `AGENTS.md` says.
        agent_context: Vec<HostPath> as Vec<OsText>, owner;
    }
}
