//! Managed clones: a copy of a repository that belljar keeps, with one worktree per branch, for long-running work.
//!
//! The host's repository is reachable from a managed clone only through the relay (`host`), and no file of a managed clone runs on
//! the host. [`provision`] may be called again at any time, by many processes at once, and after being killed anywhere: existing
//! parts are kept, missing ones are made. Called by the engine.

mod error;
mod host;
mod look;
mod managed_dir;
mod pending;
mod store;
mod tree;

pub use error::ManagedCloneError;
pub use host::HostWorktree;
pub use pending::PendingWork;

use crate::foreign::{Foreign, ForeignError, Import, import};
use crate::inert::{Git, Leash};
use crate::traps::Trap;
use crate::uncommitted::{Beside, BesideError};
use belljar_git::ObjectId;
use belljar_overlay::beneath::identity_of;
use belljar_spec::egress::Printable;
use belljar_spec::git::{BranchName, PushLimits};
use belljar_spec::workspace::LinkedGit;
use belljar_state::Lock;
use belljar_state::damage::Damaged;
use managed_dir::{Label, ManagedCloneDir, tree_name};
use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use tree::{Provided, Tree};

/// A worktree that is ready for use.
#[derive(Debug)]
pub struct Provisioned {
    /// The managed clone's name, for `list` and `discard`.
    pub clone_name: String,
    /// The worktree.
    pub folder: PathBuf,
    /// The folder that was asked for, relative to the worktree's root.
    pub below: PathBuf,
    /// Its git directory; `protect` decides which parts of it are protected.
    pub git: LinkedGit,
    pub branch: BranchName,
    /// The branch's commit; `None` if it has no commit yet.
    pub commit: Option<ObjectId>,
    /// The host's git directory, for the relay.
    pub host: PathBuf,
    pub outcome: Outcome,
    /// A file from an agent that keeps the worktree from following the host: git must not open it.
    pub held_up: Option<Trap>,
    /// While this lock is held, the worktree is neither moved nor removed.
    pub hold: Lock,
    state: PathBuf,
}

impl Provisioned {
    /// Compares the worktree after the sandbox has ended, and notes the result for [`list`]. Files that cannot be compared (an
    /// agent broke a commit, or there are more than we read) are reported in `unknown`, not as an error: the branch is kept in any
    /// case.
    pub fn left(&self) -> Result<LeftInManagedClone, ManagedCloneError> {
        let git = Git::find()?.on_leash(&Leash::after_end());
        let repo = Foreign::open(&self.git.common).map_err(spoiled_clone(&self.host))?;
        let tip = repo.branch(&self.branch).map_err(spoiled_clone(&self.host))?;
        let on_host = on_host(&git, &self.host, tip.as_ref());
        let place = ManagedCloneDir::named(&self.state, &self.clone_name);
        let place =
            place.ok_or_else(|| ManagedCloneError::Unknown(Printable::from(self.clone_name.as_str())))?;
        // A branch that is gone is compared with its start: no later commit is on any branch.
        let base = tip.as_ref().or(self.commit.as_ref());
        let from = (!on_host).then_some(&repo);
        let (uncommitted, unknown) = match self.uncommitted(&git, &place, base, from) {
            Ok(names) => (names, None),
            Err(error) => (Vec::new(), Some(error.to_string())),
        };
        let _lock = place.lock()?;
        let branch = match (&tip, &self.commit) {
            (Some(tip), Some(start)) if on_host && tip == start => OnHost::Nothing,
            (Some(_), _) if on_host => OnHost::Yes,
            (Some(_), _) => OnHost::No,
            (None, Some(_)) => OnHost::Gone,
            (None, None) => OnHost::Nothing,
        };
        let count = unknown.is_none().then_some(uncommitted.len() as u64);
        Tree::note_uncommitted(&place, &self.branch, count)?;
        Ok(LeftInManagedClone { branch, uncommitted, unknown })
    }

    /// Files that differ from a commit, which is imported from the sandbox's repository if the host does not have it. The sandbox's
    /// files decide how long the comparison takes, so other sandboxes of the managed clone do not wait for it.
    fn uncommitted(
        &self,
        git: &Git,
        place: &ManagedCloneDir,
        base: Option<&ObjectId>,
        from: Option<&Foreign>,
    ) -> Result<Vec<Printable>, ManagedCloneError> {
        let lock = place.lock()?;
        let (ours, scratch) = (place.ours(), place.fresh("import"));
        if let (Some(tip), Some(from)) = (base, from) {
            let limits = PushLimits::default();
            import(&Import { git, ours: &ours, from, tip, scratch: &scratch, limits })
                .map_err(ManagedCloneError::Import)?;
        }
        place.clear();
        let look = place.look(&lock)?;
        drop(lock);
        let beside = Beside { git, ours: &ours, work: &self.folder, index: &look.index() };
        beside.uncommitted(base, MAX_UNCOMMITTED).map_err(|error| match error {
            BesideError::Git(error) => ManagedCloneError::Git(error),
            BesideError::Io(error) => ManagedCloneError::io(&self.folder)(error),
        })
    }
}

/// The work that a sandbox left in a managed clone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeftInManagedClone {
    pub branch: OnHost,
    /// Files that are not committed, up to [`MAX_UNCOMMITTED`]: they exist only in the worktree.
    pub uncommitted: Vec<Printable>,
    /// Why these files are not known; then there may be any number.
    pub unknown: Option<String>,
}

/// Whether the host has the commits of a branch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnHost {
    Yes,
    No,
    /// The branch existed at the start, and no longer does.
    Gone,
    /// The branch is where it was at the start, or there is no commit and was none.
    Nothing,
}

impl LeftInManagedClone {
    /// Does the host have everything? Then nothing would be lost with the worktree.
    pub fn is_on_host(&self) -> bool {
        matches!(self.branch, OnHost::Yes | OnHost::Nothing)
            && self.uncommitted.is_empty()
            && self.unknown.is_none()
    }
}

/// What [`provision`] did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It is new.
    Made,
    /// It existed, and is unchanged.
    Unchanged,
    /// It existed without changes, and is now at the host's commit.
    Forwarded,
    /// A part of it was missing, and was made again.
    Mended,
}

/// A worktree that is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ManagedWorktree {
    pub clone_name: String,
    /// The host's git directory.
    pub host: PathBuf,
    pub branch: String,
    pub folder: PathBuf,
    /// The branch's commit, if it can be read.
    pub commit: Option<ObjectId>,
    /// Does the host have that commit?
    pub on_host: bool,
    /// How many files were not committed when the last run in it ended; `None` if they were not counted.
    pub uncommitted: Option<u64>,
    pub in_use: bool,
}

/// Which branches of a repository have their worktrees in one managed clone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sharing {
    /// All of them: what is the same for all is held by the backend.
    AllBranches,
    /// One: the sandbox may change everything of its clone, and git in the sandboxes of other branches runs nothing from there.
    OneBranch,
}

/// A worktree for a branch of the repository that a folder is in; without a name, for the one that is checked out there.
pub fn provision(
    state: &Path,
    folder: &Path,
    branch: Option<&BranchName>,
) -> Result<Provisioned, ManagedCloneError> {
    provision_in(state, folder, branch, Sharing::AllBranches)
}

/// The same in a managed clone of this kind.
pub fn provision_in(
    state: &Path,
    folder: &Path,
    branch: Option<&BranchName>,
    sharing: Sharing,
) -> Result<Provisioned, ManagedCloneError> {
    let git = Git::find()?;
    let host = HostWorktree::find(folder)?;
    if host.is_partial() {
        return Err(ManagedCloneError::Partial(host.top));
    }
    host.refuse_odd_files()?;
    let branch = match branch {
        Some(branch) => branch.clone(),
        None => checked_out(&git, &host)?,
    };
    let place = match sharing {
        Sharing::AllBranches => ManagedCloneDir::of(state, &host.common),
        Sharing::OneBranch => ManagedCloneDir::of_branch(state, &host.common, &branch),
    };
    let lock = place.lock()?;
    belongs_to(&git, &place, &host)?;
    store::bring_up_to_date(&git, &place, &host)?;
    let name = tree_name(&branch);
    let tree = Tree { git: &git, place: &place, lock: &lock, host: &host, branch: &branch, name };
    let Provided { outcome, commit, held_up } = tree.provide()?;
    place.clear();
    let mark = place.mark(&tree.name);
    let hold = Lock::share(&mark.join("lock")).map_err(ManagedCloneError::io(&mark))?;
    let git = LinkedGit { common: place.repo(), own: tree.own(), shields: Vec::new() };
    let (clone_name, folder) = (place.name(), tree.folder());
    let HostWorktree { below, common, .. } = host;
    let state = state.to_path_buf();
    Ok(Provisioned {
        clone_name,
        folder,
        below,
        git,
        branch,
        commit,
        host: common,
        outcome,
        held_up,
        hold,
        state,
    })
}

/// A managed clone belongs to a repository, not to a path: another repository that later lies at that path must not see the first
/// one's files. A label of an earlier version does not identify the directory; then common commits show that it is the same
/// repository.
fn belongs_to(git: &Git, place: &ManagedCloneDir, host: &HostWorktree) -> Result<(), ManagedCloneError> {
    let common = File::open(&host.common).map_err(ManagedCloneError::io(&host.common))?;
    let identity = identity_of(&common).map_err(ManagedCloneError::io(&host.common))?;
    let is_its_own = match place.label()? {
        None => return place.write_label(&host.common, identity),
        Some(Label { identity: Some(known), .. }) => known.is(&identity),
        Some(Label { identity: None, .. }) if store::is_related(git, place, host)? => {
            return place.write_label(&host.common, identity);
        }
        Some(Label { identity: None, .. }) => false,
    };
    match is_its_own {
        true => Ok(()),
        false => Err(ManagedCloneError::OfAnother {
            clone_name: place.name(),
            host: host.common.clone(),
            directory: place.root.clone(),
        }),
    }
}

/// All worktrees of all managed clones. Only reads: a damaged one is reported with its path and the name that removes it.
pub fn list(state: &Path) -> Result<Vec<Result<ManagedWorktree, Damaged>>, ManagedCloneError> {
    let git = Git::find()?;
    let mut found = Vec::new();
    for place in ManagedCloneDir::every(state)? {
        let label = match place.label() {
            // Nothing was made yet.
            Ok(None) => continue,
            Ok(Some(label)) => label,
            Err(ManagedCloneError::Damaged(damaged)) => {
                found.push(Err(damaged));
                continue;
            }
            Err(error) => return Err(error),
        };
        let repo = Foreign::open(&place.repo()).ok();
        let is_safe = HostWorktree::refuse_odd_files_in(&label.host).is_ok();
        for name in trees(&place)? {
            let (id, folder) = (format!("{}:{name}", place.name()), place.tree(&name));
            let mark = match Tree::read_mark(&place, &name) {
                // Nothing was made yet.
                Ok(None) => continue,
                Ok(Some(mark)) => mark,
                Err(reason) => {
                    found.push(Err(Damaged::new(id, &folder, reason)));
                    continue;
                }
            };
            let Ok(branch) = mark.branch.parse::<BranchName>() else {
                found.push(Err(Damaged::new(id, &folder, "its mark names no branch")));
                continue;
            };
            let commit = repo.as_ref().and_then(|repo| repo.branch(&branch).ok()).flatten();
            found.push(Ok(ManagedWorktree {
                clone_name: place.name(),
                host: label.host.clone(),
                branch: mark.branch,
                folder,
                on_host: is_safe && on_host(&git, &label.host, commit.as_ref()),
                commit,
                uncommitted: mark.uncommitted,
                in_use: Lock::is_held(&place.mark(&name).join("lock")),
            }));
        }
    }
    Ok(found)
}

/// Removes a damaged managed clone, or one damaged worktree of it, by the name that [`list`] gives.
pub fn remove_damaged(state: &Path, id: &str) -> Result<(), ManagedCloneError> {
    let unknown = || ManagedCloneError::Unknown(Printable::from(id));
    let Some((clone_name, name)) = id.split_once(':') else { return remove(state, id, None) };
    let place = ManagedCloneDir::named(state, clone_name).ok_or_else(unknown)?;
    let _lock = place.lock()?;
    if !trees(&place)?.iter().any(|tree| tree == name) {
        return Err(unknown());
    }
    let in_use = || ManagedCloneError::InUse { clone_name: clone_name.to_string(), branch: name.to_string() };
    let _alone = hold_alone(&place, name)?.ok_or_else(in_use)?;
    // The branch itself is not known; it stays in the git directory, for the next worktree of that branch.
    store::remove(&place.tree(name))?;
    if let Ok(repo) = Foreign::open(&place.repo()) {
        let _ = repo.remove_tree(&format!("worktrees/{name}"));
    }
    store::remove(&place.mark(name))
}

/// Removes a branch's worktree with its unpushed work, or without a branch the whole managed clone. Refused while a sandbox uses
/// it.
pub fn remove(state: &Path, clone_name: &str, branch: Option<&BranchName>) -> Result<(), ManagedCloneError> {
    let unknown = || ManagedCloneError::Unknown(Printable::from(clone_name));
    let place = ManagedCloneDir::named(state, clone_name).ok_or_else(unknown)?;
    let _lock = place.lock()?;
    let names: Vec<String> = match branch {
        Some(branch) => vec![tree_name(branch)],
        None => trees(&place)?,
    };
    let mut holds = Vec::new();
    for name in &names {
        let mark = match Tree::read_mark(&place, name) {
            Ok(None) if branch.is_some() => return Err(unknown()),
            Ok(mark) => mark,
            // The caller gave its full name, and so means it.
            Err(_) => None,
        };
        let in_use = || ManagedCloneError::InUse {
            clone_name: clone_name.to_string(),
            branch: mark.map_or_else(|| name.clone(), |mark| mark.branch),
        };
        holds.push(hold_alone(&place, name)?.ok_or_else(in_use)?);
    }
    match branch {
        None => place.remove(),
        Some(branch) => {
            let name = tree_name(branch);
            // The names are ours, in directories of ours; removing a tree follows no link.
            store::remove(&place.tree(&name))?;
            remove_of_repo(&place, &format!("worktrees/{name}"), branch)?;
            store::remove(&place.mark(&name))
        }
    }
}

/// Removes a branch and its worktree's part from the git directory that agents write to.
fn remove_of_repo(place: &ManagedCloneDir, own: &str, branch: &BranchName) -> Result<(), ManagedCloneError> {
    let Some(label) = place.label()? else { return Ok(()) };
    let repo = Foreign::open(&place.repo())
        .map_err(|source| ManagedCloneError::Spoiled { host: label.host, source })?;
    // A branch that cannot be removed safely stays, and the next worktree of that name starts from it.
    let _ = repo.remove_tree(own);
    let _ = repo.remove_branch(branch);
    Ok(())
}

/// The branch that is checked out on the host; with a detached HEAD, a name for the commit.
fn checked_out(git: &Git, host: &HostWorktree) -> Result<BranchName, ManagedCloneError> {
    let checkout = host.checkout(git)?;
    let short = |hash: &ObjectId| format!("detached-{}", &hash.as_str()[..12]);
    let name = checkout.branch.or_else(|| checkout.commit.as_ref().and_then(|hash| short(hash).parse().ok()));
    name.ok_or_else(|| ManagedCloneError::NoRepository(host.top.clone()))
}

fn trees(place: &ManagedCloneDir) -> Result<Vec<String>, ManagedCloneError> {
    let marks = place.root.join("marks");
    let entries = match fs::read_dir(&marks) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(ManagedCloneError::io(&marks))?,
    };
    let mut names = Vec::new();
    for entry in entries {
        names.extend(entry.map_err(ManagedCloneError::io(&marks))?.file_name().into_string());
    }
    names.sort();
    Ok(names)
}

fn hold_alone(place: &ManagedCloneDir, tree: &str) -> Result<Option<Lock>, ManagedCloneError> {
    let mark = place.mark(tree);
    Lock::try_now(&mark.join("lock")).map_err(ManagedCloneError::io(&mark))
}

fn on_host(git: &Git, host: &Path, commit: Option<&ObjectId>) -> bool {
    let has = |commit: &ObjectId| {
        // It survives garbage collection only if a ref leads to it.
        let refs = ["refs/heads/", "refs/belljar/"];
        let found =
            git.on(host).args(["for-each-ref", "--count=1", "--contains", commit.as_str()]).args(refs);
        found.run().is_ok_and(|found| found.code == Some(0) && !found.stdout.is_empty())
    };
    commit.is_some_and(has)
}

fn spoiled(host: &HostWorktree) -> impl FnOnce(ForeignError) -> ManagedCloneError {
    spoiled_clone(&host.top)
}

fn spoiled_clone(host: &Path) -> impl FnOnce(ForeignError) -> ManagedCloneError {
    let host = host.to_path_buf();
    move |source| ManagedCloneError::Spoiled { host, source }
}

/// More than a user reads.
pub const MAX_UNCOMMITTED: usize = 1000;
