//! Inspects a push before it leaves: are all updates fast-forwards, are workflow files unchanged?
//!
//! ```text
//! pack ─> a quarantine of its own: index-pack, fsck ─> commits ─> from new to old by parents?
//!                                                        └─> trees ─> .github/workflows as in a parent?
//! ```
//!
//! Only the pack can be inspected: the repository is on a git host. [`Quarantine::needed_commits`] lists the objects of parents that the
//! pack lacks, and the caller fetches and adds them. Objects that were not seen are never assumed to be harmless. Called where a
//! push to a git host passes through; blocking.

mod objects;
mod scratch;
mod workflows;

use crate::inert::{Git, GitError, Leash, pack_limits};
use crate::quarantine::SPENT;
use belljar_git::judge::{Facts, Seen};
use belljar_git::push::Update;
use belljar_git::{ObjectFormat, ObjectId, PushRefusal, TakenPack};
use belljar_spec::egress::Printable;
use belljar_spec::git::PushLimits;
use objects::{Commit, Objects};
use scratch::ScratchRepository;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use workflows::Workflows;

/// Inspects packs.
#[derive(Debug, Clone)]
pub struct PackJudge {
    /// `None`: every push that needs inspection is refused.
    git: Option<Git>,
    directory: PathBuf,
}

/// Where packs are inspected, below the state directory.
pub const DIRECTORY: &str = "pushes";

/// Removes the leftovers of a killed belljar from a directory for packs.
pub fn sweep(directory: &Path) {
    scratch::sweep(directory);
}

impl PackJudge {
    /// With the host's git, on the sandbox's leash; quarantines are made in this directory, which a sweep clears of the leftovers
    /// of a killed belljar.
    pub fn new(directory: PathBuf, leash: &Leash) -> PackJudge {
        PackJudge { git: Git::find().ok().map(|git| git.on_leash(leash)), directory }
    }

    /// Takes a pack, from the file's position to its end.
    pub fn take(
        &self,
        pack: File,
        format: ObjectFormat,
        limits: PushLimits,
    ) -> Result<Quarantine, PushRefusal> {
        let place = ScratchRepository::make(&self.directory, format).map_err(|error| {
            PushRefusal::Failed { detail: format!("no room to look at the pack: {error}") }
        })?;
        let git = self.git.as_ref().ok_or_else(|| refusal(&GitError::Missing))?;
        index(git, &place, pack, Trust::Untrusted)?;
        let objects = Objects::new(git, &place);
        let listed = objects.list(limits.objects)?;
        let commits = objects.commits(&listed)?;
        let pushed = commits.keys().cloned().collect();
        let workflows = Workflows::read(&objects, commits.values().map(|commit| &commit.tree))?;
        Ok(Quarantine { git: git.clone(), place, pushed, commits, workflows })
    }
}

impl belljar_git::PackJudge for PackJudge {
    fn spool(&self) -> io::Result<File> {
        scratch::nameless(&self.directory)
    }

    fn take(
        &self,
        pack: File,
        format: ObjectFormat,
        limits: PushLimits,
    ) -> Result<Box<dyn TakenPack>, PushRefusal> {
        Ok(Box::new(PackJudge::take(self, pack, format, limits)?))
    }
}

impl TakenPack for Quarantine {
    fn needed_commits(&self) -> Vec<ObjectId> {
        Quarantine::needed_commits(self)
    }

    fn origins(&self, update: &Update) -> Vec<ObjectId> {
        Quarantine::origins(self, update)
    }

    fn add(&mut self, pack: File) -> Result<(), PushRefusal> {
        Quarantine::add(self, pack)
    }

    fn facts(&self, update: &Update) -> Facts {
        Quarantine::facts(self, update)
    }
}

/// A pack that is being inspected. Removed on drop.
#[derive(Debug)]
pub struct Quarantine {
    git: Git,
    place: ScratchRepository,
    /// The commits of the push. Other known ones are on the server already.
    pushed: Vec<ObjectId>,
    commits: HashMap<ObjectId, Commit>,
    workflows: Workflows,
}

impl Quarantine {
    /// Commits on the server whose trees are needed to judge workflow files.
    pub fn needed_commits(&self) -> Vec<ObjectId> {
        let unseen = self.pushed.iter().filter(|id| self.keeps(id) == Seen::Unknown);
        let parents = unseen.flat_map(|id| &self.commits[id].parents);
        let missing: BTreeSet<&ObjectId> =
            parents.filter(|parent| !self.commits.contains_key(*parent)).collect();
        missing.into_iter().cloned().collect()
    }

    /// Commits on the server whose history is needed to tell whether an update is a fast-forward.
    pub fn origins(&self, update: &Update) -> Vec<ObjectId> {
        let unknown = self.beginnings(&update.old, &update.new).unwrap_or_default();
        unknown.into_iter().cloned().collect()
    }

    /// Adds more objects that the server has.
    pub fn add(&mut self, pack: File) -> Result<(), PushRefusal> {
        index(&self.git, &self.place, pack, Trust::Server)?;
        let objects = Objects::new(&self.git, &self.place);
        let listed = objects.list(MAX_ADDED)?;
        for (id, commit) in objects.commits(&listed)? {
            self.commits.entry(id).or_insert(commit);
        }
        self.workflows = Workflows::read(&objects, self.commits.values().map(|commit| &commit.tree))?;
        Ok(())
    }

    /// The findings on an update.
    pub fn facts(&self, update: &Update) -> Facts {
        Facts { follows: self.follows(&update.old, &update.new), keeps_workflows: self.keeps_workflows() }
    }

    /// Is `old` an ancestor of `new`? A "no" is certain only if the whole history is here.
    fn follows(&self, old: &ObjectId, new: &ObjectId) -> Seen {
        match self.beginnings(old, new) {
            None => Seen::Yes,
            Some(unknown) if unknown.is_empty() => Seen::No,
            Some(_) => Seen::Unknown,
        }
    }

    /// The unknown part of the history of `new`; `None` if `old` is in the known part.
    fn beginnings<'a>(&'a self, old: &ObjectId, new: &'a ObjectId) -> Option<Vec<&'a ObjectId>> {
        let mut seen = HashSet::new();
        let mut waiting = vec![new];
        let mut unknown = Vec::new();
        while let Some(id) = waiting.pop() {
            if id == old {
                return None;
            }
            if !seen.insert(id) {
                continue;
            }
            match self.commits.get(id) {
                Some(commit) => waiting.extend(&commit.parents),
                None => unknown.push(id),
            }
        }
        Some(unknown)
    }

    /// Judges all commits of the push: another branch may take any of them later.
    fn keeps_workflows(&self) -> Seen {
        let mut all = Seen::Yes;
        for id in &self.pushed {
            match self.keeps(id) {
                Seen::No => return Seen::No,
                Seen::Unknown => all = Seen::Unknown,
                Seen::Yes => {}
            }
        }
        all
    }

    /// Does a commit have the workflow files of one of its parents? A merge has those of one side.
    fn keeps(&self, id: &ObjectId) -> Seen {
        let commit = &self.commits[id];
        if commit.parents.is_empty() {
            return self.workflows.none(&commit.tree);
        }
        let mut verdict = Seen::No;
        for parent in &commit.parents {
            let same = match self.commits.get(parent) {
                Some(parent) => self.workflows.same(&commit.tree, &parent.tree),
                None => Seen::Unknown,
            };
            match same {
                Seen::Yes => return Seen::Yes,
                Seen::Unknown => verdict = Seen::Unknown,
                Seen::No => {}
            }
        }
        verdict
    }
}

/// The origin of a pack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Trust {
    /// The agent: everything in it is checked.
    Untrusted,
    /// The server, whose history may violate git's checks.
    Server,
}

fn index(git: &Git, place: &ScratchRepository, pack: File, trust: Trust) -> Result<(), PushRefusal> {
    let bytes = pack.metadata().map_err(|error| refusal(&GitError::Start(error)))?.len();
    let call = git.on(place.path()).args(["index-pack", "--stdin", "--threads=1"]);
    let call = match trust {
        // Objects that fail git's checks could be read in two ways. Links to objects on the server lead nowhere here.
        Trust::Untrusted => call.arg("--fsck-objects"),
        Trust::Server => call,
    };
    let call = call
        .env("GIT_ALLOC_LIMIT", LARGEST_PIECE)
        .config("core.bigFileThreshold", BIG)
        .limited(pack_limits(bytes))
        .with_thread()
        .input(pack);
    let finished = call.run().map_err(|error| refusal(&error))?;
    // git names the problem of an object before its last line.
    let first = finished.stderr.split(|byte| *byte == b'\n').find_map(|line| line.strip_prefix(b"error: "));
    let reason = first.map_or_else(|| finished.reason(), |line| Printable::new(line).to_string());
    match finished.code {
        Some(0) => Ok(()),
        None => Err(PushRefusal::Pack { detail: "it takes too much to unpack".to_string() }),
        _ if reason.contains("unresolved delta") => {
            let detail = "it leaves out what it builds on; use `git push --no-thin`".to_string();
            Err(PushRefusal::Pack { detail })
        }
        _ => Err(PushRefusal::Pack { detail: reason }),
    }
}

fn refusal(error: &GitError) -> PushRefusal {
    match error {
        GitError::TooSlow { .. } | GitError::Late { .. } => {
            PushRefusal::Pack { detail: "it takes too long to look at".to_string() }
        }
        GitError::TooMuch { .. } => {
            PushRefusal::Pack { detail: "there is too much in it to look at".to_string() }
        }
        GitError::Spent { .. } => PushRefusal::Failed { detail: SPENT.to_string() },
        GitError::Missing | GitError::Start(_) | GitError::Failed { .. } | GitError::Ended => {
            PushRefusal::Failed { detail: error.to_string() }
        }
    }
}

/// A pack of a few kilobytes can hold an object of gigabytes: blobs over this are checked in pieces, and nothing larger than the
/// limit is ever held in memory at once.
const BIG: &str = "8m";
const LARGEST_PIECE: &str = "256m";
/// Trees of some commits of a large repository.
const MAX_ADDED: u64 = 2_000_000;
