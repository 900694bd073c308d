//! The sandbox's own git directory, mounted at `.git` in place of the host's.
//!
//! The sandbox works on the host's files, and on refs, index, config and hooks that are its own; the host's objects are borrowed,
//! read-only. When a ref inside moves, the new objects go through a quarantine into the host's repository, and the host's branch,
//! index and HEAD follow, or the commits are kept beside them. The host's git never runs on the sandbox's directory, and never
//! reads a file in it.
//!
//! ```text
//! S/git/ID/label.json     the host repositories that it stands for
//! S/git/ID/N.json         the refs and the HEAD that both sides of the Nth last agreed on
//! S/git/ID/lock           locked while a sandbox uses it
//! S/git/ID/N/             the git directory that the sandbox sees and writes; submodules' in `0/modules`
//! ```
//!
//! Called by the engine: [`PrivateGit::create`] before the start, [`PrivateGit::import`] whenever refs inside moved and at the end.
//! The files in such a directory are only read and written by the functions of [`crate::foreign`]: below one descriptor, following
//! no link.

mod beside;
mod config;
mod decide;
mod directory;
mod finish;
mod follow;
mod gitlinks;
mod host_state;
mod import;
mod inflow;
mod inside;
mod join;
mod large_index;
mod lfs;
mod obstacle;
mod pin;
mod plan;
mod protected;
mod refs;
mod setup;
mod staged;
mod synced;
#[cfg(test)]
mod tests;
mod watch;
mod worktrees;

pub use directory::{
    Abandoned, Life, Module, PrivateGit, Repository, RepositoryRequest, abandoned, open, put_aside_in,
    waiting,
};
pub use import::{ImportMode, Importer};
pub use inflow::Inflow;
pub use inside::{has_moved, has_objects};
pub use obstacle::obstacle;
pub use pin::{forget, pin, unpin};
pub use refs::{BranchTips, branch_tips};
pub use setup::SetupError;
pub use synced::{Followed, ImportReport, Refs, SetAside, Synced};
pub use watch::{Noticed, RefWatch, pause};

use crate::inert::{Call, Git, Reach};
use crate::quarantine::alternates;
use crate::settings::HostFiles;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// A point at which an import may be killed: named, so that tests can choose it.
#[cfg(test)]
fn step(name: &str) {
    tests::step(name);
}

#[cfg(not(test))]
fn step(_: &str) {}

/// A repository of the host, as seen from one of its worktrees.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostGit {
    /// The top of the work tree.
    pub top: PathBuf,
    /// The worktree's own git directory: HEAD, index, unfinished merges.
    pub own: PathBuf,
    /// Refs, config, objects; the same as `own` unless the worktree is a linked one.
    pub common: PathBuf,
}

/// Files that git reads outside of a repository's git directory: borrowed objects, and included config.
pub(crate) fn beyond(own: &Path, common: &Path) -> Reach {
    let borrowed = alternates::all(&common.join("objects"));
    let reach = borrowed.iter().fold(Reach::default(), |reach, one| reach.read(one));
    let files = [common.join("config"), own.join("config.worktree")];
    let settings = HostFiles::only_home().settings(&files, Some(own), MAX_CONFIG_BYTES).unwrap_or_default();
    let included: BTreeSet<PathBuf> = settings.into_iter().map(|setting| setting.file).collect();
    included.into_iter().fold(reach, Reach::read_file)
}

/// Config of a repository, with all that it includes.
const MAX_CONFIG_BYTES: u64 = 4 << 20;

impl HostGit {
    /// A git call that reads this repository, and nothing else.
    pub(crate) fn call(&self, git: &Git) -> Call {
        let reach = beyond(&self.own, &self.common);
        // If we are root, the repository may belong to another user.
        let call = git.on(&self.own).config("safe.directory", "*");
        call.reaching(reach.read(&self.own).read(&self.common))
    }
}
