//! A workspace as a backend shows it: decided, with every path real.

use std::path::PathBuf;

/// What a backend shows as the workspace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct View {
    /// The folder.
    pub folder: PathBuf,
    /// Where changes go; without one, to the folder itself.
    pub layer: Option<Layer>,
    /// The git directory, if it lies elsewhere: a linked worktree's, a submodule's, a shelf's.
    pub git: Option<LinkedGit>,
    /// What nobody inside may change, relative to the folder; parents first. Not `.git` where `git` is set: what is
    /// shown in its place holds it.
    pub shields: Vec<Shield>,
}

impl View {
    /// A folder with nothing special about it.
    pub fn plain(folder: PathBuf) -> View {
        View { folder, layer: None, git: None, shields: Vec::new() }
    }
}

/// Where the changes of an overlay go: two directories on one filesystem that is ours.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layer {
    pub upper: PathBuf,
    pub work: PathBuf,
}

/// A git directory outside of the folder. The folder's `.git` is a file that names it; inside, that file names the place
/// where it is shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkedGit {
    /// The git directory with objects, refs, config and hooks.
    pub common: PathBuf,
    /// The folder's own part of it, relative to `common`: `worktrees/NAME`; empty for a submodule, whose git directory
    /// is `common` itself.
    pub own: String,
    /// What nobody inside may change, relative to `common`; parents first.
    pub shields: Vec<Shield>,
}

/// A path that nobody inside may change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shield {
    /// Relative, in its plainest spelling.
    pub path: String,
    pub what: Shielded,
}

/// What is there, and what of it is held.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Shielded {
    /// A file or directory: it can be read, and neither changed nor moved nor removed.
    Existing,
    /// A directory that must stay where it is, because of what is shielded in it; what else is in it may change.
    Anchored,
    /// Nothing is there: an empty directory that nothing can be put into.
    MissingDirectory,
    /// Nothing is there: a file with this content that cannot be changed.
    MissingFile(&'static str),
    /// Not held: it is compared at the end, and told if it changed.
    Watched,
}
