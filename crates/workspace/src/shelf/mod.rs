//! Shelves: a copy of a repository that belljar keeps, with a worktree a branch, for work that takes long.
//!
//! Nothing of the host's repository is reachable from a shelf but through the relay (`host`), and nothing of a shelf runs
//! on the host. [`provision`] may be called as often as one likes, by many at once, and after being killed anywhere: what is
//! there is kept, what is missing is made. Called by the engine.

mod error;
mod host;
mod place;
mod store;
mod tree;

pub use error::ShelfError;
pub use host::HostWorktree;

use crate::foreign::{Foreign, ForeignError};
use crate::hold::Hold;
use crate::inert::Git;
use crate::traps::Trap;
use belljar_git::ObjectId;
use belljar_spec::egress::Printable;
use belljar_spec::git::BranchName;
use belljar_spec::workspace::LinkedGit;
use place::{Place, tree_name};
use std::fs;
use std::path::{Path, PathBuf};
use tree::{Provided, Tree};

/// A worktree that is ready to be worked in.
#[derive(Debug)]
pub struct Provisioned {
    /// The shelf's name, for `list` and `discard`.
    pub shelf: String,
    /// The worktree.
    pub folder: PathBuf,
    /// The folder that was asked for, relative to the worktree's root.
    pub below: PathBuf,
    /// Its git directory; what of it is held is for `protect` to say.
    pub git: LinkedGit,
    pub branch: BranchName,
    /// Where the branch stands; without one, it has no commit yet.
    pub commit: Option<ObjectId>,
    /// The host's git directory, for the relay.
    pub host: PathBuf,
    pub outcome: Outcome,
    /// What an agent left in it that keeps it from following the host: git must not open it.
    pub held_up: Option<Trap>,
    /// As long as it is there, the worktree is neither moved nor removed.
    pub hold: Hold,
}

impl Provisioned {
    /// Does the host have the branch's last commit? One without a commit has nothing to bring.
    pub fn is_on_host(&self) -> Result<bool, ShelfError> {
        let spoiled = |source| ShelfError::Spoiled { host: self.host.clone(), source };
        let repo = Foreign::open(&self.git.common).map_err(spoiled)?;
        match repo.branch(&self.branch).map_err(spoiled)? {
            None => Ok(true),
            Some(commit) => Ok(on_host(&Git::find()?, &self.host, Some(&commit))),
        }
    }
}

/// What was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It is new.
    Made,
    /// It was there, and is as it was.
    Kept,
    /// It was there, unchanged, and is now where the host is.
    Forwarded,
    /// Something of it was gone and is there again.
    Mended,
}

/// A worktree that is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shelved {
    pub shelf: String,
    /// The host's git directory.
    pub host: PathBuf,
    pub branch: String,
    pub folder: PathBuf,
    /// Where the branch stands, if it can be told.
    pub commit: Option<ObjectId>,
    /// Does the host have that commit?
    pub on_host: bool,
    pub in_use: bool,
}

/// A worktree for a branch of the repository that a folder is in; without a name, for the one that is checked out there.
pub fn provision(
    state: &Path,
    folder: &Path,
    branch: Option<&BranchName>,
) -> Result<Provisioned, ShelfError> {
    let git = Git::find()?;
    let host = HostWorktree::find(folder)?;
    if host.is_partial() {
        return Err(ShelfError::Partial(host.top));
    }
    let place = Place::of(state, &host.common);
    let lock = place.lock()?;
    place.write_label(&host.common)?;
    store::bring_up_to_date(&git, &place, &host)?;
    let branch = match branch {
        Some(branch) => branch.clone(),
        None => checked_out(&git, &host)?,
    };
    let name = tree_name(&branch);
    let tree = Tree { git: &git, place: &place, lock: &lock, host: &host, branch: &branch, name };
    let Provided { outcome, commit, held_up } = tree.provide()?;
    place.clear();
    let mark = place.mark(&tree.name);
    let hold = Hold::together(&mark.join("lock")).map_err(ShelfError::io(&mark))?;
    let git = LinkedGit { common: place.repo(), own: tree.own(), shields: Vec::new() };
    let (shelf, folder) = (place.name(), tree.folder());
    let HostWorktree { below, common, .. } = host;
    Ok(Provisioned { shelf, folder, below, git, branch, commit, host: common, outcome, held_up, hold })
}

/// Everything that is kept.
pub fn list(state: &Path) -> Result<Vec<Shelved>, ShelfError> {
    let git = Git::find()?;
    let mut found = Vec::new();
    for place in Place::every(state) {
        let Some(label) = place.label() else { continue };
        let repo = Foreign::open(&place.repo()).ok();
        for name in trees(&place) {
            let Some(mark) = Tree::read_mark(&place, &name) else { continue };
            let branch = mark.branch.parse::<BranchName>().ok();
            let commit = repo.as_ref().zip(branch).and_then(|(repo, branch)| repo.branch(&branch).ok()?);
            found.push(Shelved {
                shelf: place.name(),
                host: label.host.clone(),
                branch: mark.branch,
                folder: place.tree(&name),
                on_host: on_host(&git, &label.host, commit.as_ref()),
                commit,
                in_use: hold_alone(&place, &name)?.is_none(),
            });
        }
    }
    Ok(found)
}

/// Removes a branch's worktree with what was not pushed from it, or without a name all of a shelf. Refused while a sandbox
/// uses it.
pub fn remove(state: &Path, shelf: &str, branch: Option<&BranchName>) -> Result<(), ShelfError> {
    let unknown = || ShelfError::Unknown(Printable::from(shelf));
    let place = Place::named(state, shelf).ok_or_else(unknown)?;
    let _lock = place.lock()?;
    let wanted: Vec<String> = match branch {
        Some(branch) => vec![tree_name(branch)],
        None => trees(&place),
    };
    let mut holds = Vec::new();
    for name in &wanted {
        let mark = Tree::read_mark(&place, name);
        if mark.is_none() && branch.is_some() {
            return Err(unknown());
        }
        let in_use = || ShelfError::InUse {
            shelf: shelf.to_string(),
            branch: mark.map_or_else(|| name.clone(), |mark| mark.branch),
        };
        holds.push(hold_alone(&place, name)?.ok_or_else(in_use)?);
    }
    match branch {
        None => place.remove(),
        Some(branch) => {
            let name = tree_name(branch);
            // Their names are ours and lie in directories of ours; nothing is followed when a tree is removed.
            store::remove(&place.tree(&name))?;
            remove_of_repo(&place, &format!("worktrees/{name}"), branch)?;
            store::remove(&place.mark(&name))
        }
    }
}

/// Takes a branch and its worktree's part out of the git directory that agents write to.
fn remove_of_repo(place: &Place, own: &str, branch: &BranchName) -> Result<(), ShelfError> {
    let Some(label) = place.label() else { return Ok(()) };
    let repo =
        Foreign::open(&place.repo()).map_err(|source| ShelfError::Spoiled { host: label.host, source })?;
    // What cannot be removed safely stays: a branch that the next worktree of that name then starts from.
    let _ = repo.remove_tree(own);
    let _ = repo.remove_branch(branch);
    Ok(())
}

/// The branch that is checked out on the host; a name for the commit, if none is.
fn checked_out(git: &Git, host: &HostWorktree) -> Result<BranchName, ShelfError> {
    let checkout = host.checkout(git)?;
    let short = |hash: &ObjectId| format!("detached-{}", &hash.as_str()[..12]);
    let name = checkout.branch.or_else(|| checkout.commit.as_ref().and_then(|hash| short(hash).parse().ok()));
    name.ok_or_else(|| ShelfError::NoRepository(host.top.clone()))
}

fn trees(place: &Place) -> Vec<String> {
    let entries = fs::read_dir(place.root.join("marks")).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort();
    names
}

fn hold_alone(place: &Place, tree: &str) -> Result<Option<Hold>, ShelfError> {
    let mark = place.mark(tree);
    Hold::alone(&mark.join("lock")).map_err(ShelfError::io(&mark))
}

fn on_host(git: &Git, host: &Path, commit: Option<&ObjectId>) -> bool {
    let has = |commit: &ObjectId| {
        // It is there for good only if a ref leads to it.
        let refs = ["refs/heads/", "refs/belljar/"];
        let found =
            git.on(host).args(["for-each-ref", "--count=1", "--contains", commit.as_str()]).args(refs);
        found.run().is_ok_and(|found| found.code == Some(0) && !found.stdout.is_empty())
    };
    commit.is_some_and(has)
}

fn spoiled(host: &HostWorktree) -> impl FnOnce(ForeignError) -> ShelfError {
    let host = host.top.clone();
    move |source| ShelfError::Spoiled { host, source }
}
