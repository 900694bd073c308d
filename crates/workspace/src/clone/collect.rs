//! What a sandbox made of its clone: commits, taken over; and what it left uncommitted.

use super::CloneError;
use super::place::{Label, Place};
use crate::foreign::{Foreign, Head, Import, import, object};
use crate::inert::{Call, Git, PLAIN_DIFF};
use crate::traps::{self, Found, Ground};
use belljar_git::ObjectId;
use belljar_spec::SandboxId;
use belljar_spec::egress::Printable;
use belljar_spec::git::{BranchName, PushLimits};
use std::fs;
use std::path::Path;
use std::time::Duration;

/// What a sandbox made of its clone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Collected {
    pub branch: BranchName,
    /// The branch's last commit, if it has one; it is now in a repository of ours.
    pub tip: Option<ObjectId>,
    /// What was committed on the branch, newest first, up to [`MOST_COMMITS`].
    pub commits: Vec<Commit>,
    /// How many commits there are.
    pub count: u64,
    /// Files that differ from the last commit, up to [`MOST_FILES`]; they are in the folder and nowhere else.
    pub uncommitted: Vec<Printable>,
    /// What the sandbox left checked out, if it is not the branch.
    pub elsewhere: Option<Head>,
    /// Branches that were made beside it; they are in the folder and nowhere else.
    pub others: Vec<BranchName>,
}

impl Collected {
    /// The commit that was left checked out on no branch at all.
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
    /// Files it changes, up to [`MOST_FILES`]; none for a merge.
    pub files: Vec<Printable>,
}

/// Takes over what was committed, and says what there is. The sandbox has ended, or nothing new of it is seen.
pub fn collect(state: &Path, id: SandboxId, limits: PushLimits) -> Result<Collected, CloneError> {
    let git = Git::find()?;
    let (place, label) = Place::find(state, id)?;
    if label.failed.is_some() {
        return Err(CloneError::Empty(Printable::from(place.id.as_str())));
    }
    let branch = label.branch()?;
    let foreign = Foreign::open(&place.work().join(".git"))?;
    let tip = foreign.branch(&branch)?;
    let (ours, scratch) = (place.ours(), place.scratch());
    if let Some(tip) = &tip {
        import(&Import { git: &git, ours: &ours, from: &foreign, tip, scratch: &scratch, limits })?;
        git.on(&ours).args(["update-ref", &branch.full(), tip.as_str()]).output()?;
    }
    let head = foreign.head("")?;
    let elsewhere = (head != Head::Branch(branch.clone())).then_some(head);
    // Of the remote's branches none was made one of the clone's.
    let mut others = foreign.branches()?;
    others.retain(|other| *other != branch);
    let (count, commits) = match &tip {
        Some(tip) => commits(&git, &ours, &label, tip)?,
        None => (0, Vec::new()),
    };
    let uncommitted = uncommitted(&git, &place, tip.as_ref())?;
    Ok(Collected { branch, tip, commits, count, uncommitted, elsewhere, others })
}

/// What is new since the remote was cloned.
fn commits(git: &Git, ours: &Path, label: &Label, tip: &ObjectId) -> Result<(u64, Vec<Commit>), CloneError> {
    let new = |call: Call| {
        let call = call.args([tip.as_str(), "--not", "--remotes=origin"]);
        call.args(label.base.as_deref())
    };
    let count = new(git.on(ours).args(["rev-list", "--count"])).line()?.parse().unwrap_or_default();
    let newest = format!("--max-count={MOST_COMMITS}");
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

/// A commit's hash, then its files, then the next one's. No file can be called as a commit that comes after the file's.
fn add_files(commits: &mut [Commit], names: &[u8]) {
    let mut next = 0;
    for name in names.split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
        if commits.get(next).is_some_and(|commit| commit.hash.as_str().as_bytes() == name.trim_ascii()) {
            next += 1;
            continue;
        }
        let commit = next.checked_sub(1).and_then(|at| commits.get_mut(at));
        if let Some(commit) = commit.filter(|commit| commit.files.len() < MOST_FILES) {
            commit.files.push(Printable::new(name));
        }
    }
}

/// Files beside a commit: by an index of ours, with attributes that name nothing which could run. What would hold git up is
/// kept from it: then everything that is not committed is named, also what the project's rules leave out.
fn uncommitted(git: &Git, place: &Place, tip: Option<&ObjectId>) -> Result<Vec<Printable>, CloneError> {
    let (work, index) = (place.work(), place.root.join("index.new"));
    for name in ["index.new", "index.new.lock"] {
        let _ = fs::remove_file(place.root.join(name));
    }
    let on = || {
        let call = git.on(&place.ours()).env("GIT_INDEX_FILE", &index).env("GIT_WORK_TREE", &work);
        call.in_directory(&work).patience(LOOKING).limit(MOST_NAMES).env("GIT_ALLOC_LIMIT", MOST_MEMORY)
    };
    let mut ground = Ground::at(&work).map_err(CloneError::io(&work))?;
    let committed = match tip {
        Some(tip) => traps::committed(git.on(&place.ours()), tip)?,
        None => Vec::new(),
    };
    let (mut names, mut unseen) = (Vec::new(), Vec::new());
    for file in &committed {
        let path = file.path.as_bytes();
        match ground.find(file) {
            Found::Comparable => continue,
            Found::Apart => {}
            Found::Different | Found::Trapped(_) => names.push(path.to_vec()),
        }
        unseen.extend([path, b"\0"].concat());
    }
    if let Some(tip) = tip {
        on().args(["read-tree", tip.as_str()]).output()?;
        on().args(["update-index", "--assume-unchanged", "-z", "--stdin"]).output_with(&unseen)?;
        on().args(["update-index", "-q", "--refresh"]).run()?;
    }
    let list = |call: Call| Ok::<_, CloneError>(split(&call.output()?));
    names.extend(list(on().args(["diff-files", "--name-only", "-z"]).args(PLAIN_DIFF))?);
    names.extend(match ground.trap_anywhere() {
        None => list(on().args(["ls-files", "-z", "--others", "--exclude-standard"]))?,
        Some(_) => {
            let known = committed.iter().map(|file| &file.path).collect();
            ground.others(&known, MOST_FILES).iter().map(|path| path.as_bytes().to_vec()).collect()
        }
    });
    let _ = fs::remove_file(&index);
    Ok(names.iter().take(MOST_FILES).map(|name| Printable::new(name)).collect())
}

fn split(names: &[u8]) -> Vec<Vec<u8>> {
    names.split(|byte| *byte == 0).filter(|name| !name.is_empty()).map(<[u8]>::to_vec).collect()
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

/// More than anybody reads.
pub const MOST_COMMITS: usize = 500;
/// Of one commit, or uncommitted.
pub const MOST_FILES: usize = 1000;
/// Bytes of names.
const MOST_NAMES: u64 = 64 << 20;
/// A file that is read whole is small, and the index of a million others is a tenth of it.
const MOST_MEMORY: &str = "1g";
/// A tree of any size is looked through in less.
const LOOKING: Duration = Duration::from_secs(120);
