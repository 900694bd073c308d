//! A workspace as a backend shows it: decided, with every path real.

use std::path::PathBuf;

/// What a backend shows as the workspace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct View {
    /// The folder.
    pub folder: PathBuf,
    /// Where changes go; without one, to the folder itself.
    pub layer: Option<Layer>,
    /// The git directory, if it lies elsewhere: a linked worktree's, a submodule's, a managed clone's.
    pub git: Option<LinkedGit>,
    /// Git directories of the sandbox's own, shown in the place of the host's.
    pub private_git: Vec<PrivateGitView>,
    /// What no process inside may change, relative to the folder; parents first. Not `.git` where `git` is set: what is
    /// shown in its place holds it.
    pub shields: Vec<Shield>,
    /// The host's folder that this one is a worktree of, where the files lie that git does not track.
    pub host_folder: Option<PathBuf>,
}

impl View {
    /// A folder with nothing special about it.
    pub fn plain(folder: PathBuf) -> View {
        View {
            folder,
            layer: None,
            git: None,
            private_git: Vec::new(),
            shields: Vec::new(),
            host_folder: None,
        }
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
    /// What no process inside may change, relative to `common`; parents first.
    pub shields: Vec<Shield>,
}

/// A git directory of the sandbox's own, shown where the workspace has the host's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PrivateGitView {
    /// The repository's `.git`, relative to the workspace: `.git`, `vendor/lib/.git`.
    pub dot_git: String,
    /// What it is on the host.
    pub kind: DotGit,
    /// The directory that is shown; belljar keeps it for this sandbox.
    pub directory: PathBuf,
    /// Object directories of the host that it borrows from.
    pub borrowed: Vec<BorrowedObjects>,
    /// `.git` files of submodules that name another path inside.
    pub covered: Vec<CoveredFile>,
}

/// A file of the workspace in whose place another one is seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CoveredFile {
    /// Relative to the workspace.
    pub path: String,
    /// The file that is seen, which belljar keeps for this sandbox.
    pub source: PathBuf,
}

/// What a repository's `.git` is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DotGit {
    /// The git directory: the private one is mounted over it.
    Directory,
    /// A file that names the worktree's git directory `own` of the repository `common`; inside it names the private one, which is
    /// seen at `inside`.
    File { inside: String, own: PathBuf, common: PathBuf },
}

/// A directory with git objects, or with objects of git-lfs, which the sandbox reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BorrowedObjects {
    pub source: PathBuf,
    /// The path inside.
    pub inside: String,
    /// Whether it borrows from others in turn, by a list of the host's paths: inside that list is empty.
    pub borrows: bool,
}

/// A path that no process inside may change.
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
    /// A git directory in whose place the sandbox's own is shown; wherever else it is seen, it can be read and not changed.
    Replaced,
    /// Nothing is there: an empty directory that nothing can be put into.
    MissingDirectory,
    /// Nothing is there: a file with this content that cannot be changed.
    MissingFile(&'static str),
    /// Not held: it is compared at the end, and told if it changed.
    Watched,
}
