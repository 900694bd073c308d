//! The work of a sandbox in its clone: commits, which are imported, and uncommitted files.

use super::CloneError;
use super::clone_dir::{CloneDir, Label};
use crate::foreign::{Foreign, Head, Import, import, object};
use crate::inert::{Call, Git, Leash, PLAIN_DIFF};
use crate::uncommitted::{Beside, BesideError};
use belljar_git::ObjectId;
use belljar_spec::SandboxId;
use belljar_spec::egress::Printable;
use belljar_spec::git::{BranchName, PushLimits};
use std::path::Path;

/// The work of a sandbox in its clone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Collected {
    pub branch: BranchName,
    /// The branch's last commit, if it has one; it is now in a repository of ours.
    pub tip: Option<ObjectId>,
    /// The new commits of the branch, newest first, up to [`MAX_COMMITS`].
    pub commits: Vec<Commit>,
    /// How many commits there are.
    pub count: u64,
    /// Files that differ from the last commit, up to [`MAX_FILES`]; they exist only in the folder.
    pub uncommitted: Vec<Printable>,
    /// The checked-out branch or commit, if it is not the clone's branch.
    pub elsewhere: Option<Head>,
    /// Other branches that the sandbox made; they exist only in the folder.
    pub others: Vec<BranchName>,
}

impl Collected {
    /// The checked-out commit of a detached HEAD.
    pub fn left_at(&self) -> Option<&ObjectId> {
        match &self.elsewhere {
            Some(Head::Detached(commit)) => Some(commit),
            Some(Head::Branch(_)) | None => None,
        }
    }

    /// Is there nothing that would be lost with the clone?
    pub fn is_empty(&self) -> bool {
        let beside = self.uncommitted.is_empty() && self.others.is_empty() && self.elsewhere.is_none();
        self.count == 0 && beside
    }
}

/// A commit, as it may be shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Commit {
    pub hash: ObjectId,
    pub author: Printable,
    pub subject: Printable,
    /// Files it changes, up to [`MAX_FILES`]; none for a merge.
    pub files: Vec<Printable>,
}

/// Imports the commits and reports all work. If the sandbox still runs, its later work is not included.
pub fn collect(state: &Path, id: SandboxId, limits: PushLimits) -> Result<Collected, CloneError> {
    let git = Git::find()?.on_leash(&Leash::after_end());
    let (place, mut label) = CloneDir::find(state, id)?;
    if label.failed.is_some() {
        return Err(CloneError::Empty(Printable::from(place.id.as_str())));
    }
    let branch = label.branch().map_err(|reason| place.damaged(reason))?;
    let foreign = Foreign::open(&place.work().join(".git"))?;
    let tip = foreign.branch(&branch)?;
    let (ours, scratch) = (place.ours(), place.scratch());
    if let Some(tip) = &tip {
        import(&Import { git: &git, ours: &ours, from: &foreign, tip, scratch: &scratch, limits })?;
        git.on(&ours).args(["update-ref", &branch.full(), tip.as_str()]).output()?;
    }
    let head = foreign.head("")?;
    let elsewhere = (head != Head::Branch(branch.clone())).then_some(head);
    // The clone has none of the remote's branches as its own.
    let mut others = foreign.branches()?;
    others.retain(|other| *other != branch);
    let (count, commits) = match &tip {
        Some(tip) => commits(&git, &ours, &label, tip)?,
        None => (0, Vec::new()),
    };
    let beside = Beside { git: &git, ours: &ours, work: &place.work(), index: &place.root.join("index.new") };
    let uncommitted = beside.uncommitted(tip.as_ref(), MAX_FILES).map_err(|error| match error {
        BesideError::Git(error) => CloneError::Git(error),
        BesideError::Io(error) => CloneError::io(&place.work())(error),
    })?;
    label.uncommitted = Some(uncommitted.len() as u64);
    place.write_label(&label)?;
    Ok(Collected { branch, tip, commits, count, uncommitted, elsewhere, others })
}

/// The commits that are new since the remote was cloned.
fn commits(git: &Git, ours: &Path, label: &Label, tip: &ObjectId) -> Result<(u64, Vec<Commit>), CloneError> {
    let new = |call: Call| {
        let call = call.args([tip.as_str(), "--not", "--remotes=origin"]);
        call.args(label.base.as_deref())
    };
    let count = new(git.on(ours).args(["rev-list", "--count"])).line()?.parse().unwrap_or_default();
    let newest = format!("--max-count={MAX_COMMITS}");
    // NUL can be in none of them: such a commit does not pass the import.
    let format = "--format=%H%x00%an <%ae>%x00%s";
    let log = new(git.on(ours).args(["log", "-z", "--no-show-signature", "--no-color", &newest, format]))
        .output()?;
    let fields: Vec<&[u8]> = log.split(|byte| *byte == 0).collect();
    let mut commits: Vec<Commit> = fields.chunks_exact(3).filter_map(Commit::read).collect();
    let hashes: String = commits.iter().map(|commit| format!("{}\n", commit.hash)).collect();
    let names = git.on(ours).args(["diff-tree", "--stdin", "-r", "--root", "--name-only", "-z"]);
    let names = names.args(PLAIN_DIFF).output_with(hashes.as_bytes())?;
    add_files(&mut commits, &names);
    Ok((count, commits))
}

/// A commit's hash, then its files, then the next commit's. No file name can be the hash of a commit that comes later.
fn add_files(commits: &mut [Commit], names: &[u8]) {
    let mut next = 0;
    for name in names.split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
        if commits.get(next).is_some_and(|commit| commit.hash.as_str().as_bytes() == name.trim_ascii()) {
            next += 1;
            continue;
        }
        let commit = next.checked_sub(1).and_then(|at| commits.get_mut(at));
        if let Some(commit) = commit.filter(|commit| commit.files.len() < MAX_FILES) {
            commit.files.push(Printable::new(name));
        }
    }
}

impl Commit {
    fn read(fields: &[&[u8]]) -> Option<Commit> {
        let [hash, author, subject] = fields else { return None };
        let hash = object(std::str::from_utf8(hash).ok()?)?;
        Some(Commit {
            hash,
            author: Printable::new(author),
            subject: Printable::new(subject),
            files: Vec::new(),
        })
    }
}

/// More than a user reads.
pub const MAX_COMMITS: usize = 500;
/// Of one commit, or uncommitted.
pub const MAX_FILES: usize = 1000;
