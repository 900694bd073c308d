//! The worktree of one branch.
//!
//! ```text
//!   missing ──make──> there ──forward, if no sandbox uses it, nothing in it was changed and the host has new commits──> there
//!      ^                │
//!      └── the user removed the folder, or we died while making it
//! ```
//!
//! Git writes the files while it works on `ours`, with our config and our index; the git directory that agents write to is read as
//! [`Foreign`], and files are put there one by one. Once there is work in a worktree, we only ever add to it.

use super::host::{Checkout, HostWorktree};
use super::managed_dir::{ManagedCloneDir, tree_name};
use super::{ManagedCloneError, Outcome, spoiled};
use crate::foreign::{Foreign, Head, Import, excludes, import, object};
use crate::inert::{Call, Git};
use crate::traps::{self, Found, Ground, Trap};
use belljar_git::ObjectId;
use belljar_overlay::RelPath;
use belljar_spec::git::{BranchName, PushLimits};
use belljar_state::damage;
use belljar_state::{Lock, Survives, write_atomic};
use serde::{Deserialize, Serialize};
use std::collections::HashSet;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// The worktree of one branch.
pub(super) struct Tree<'a> {
    pub(super) git: &'a Git,
    pub(super) place: &'a ManagedCloneDir,
    pub(super) lock: &'a Lock,
    pub(super) host: &'a HostWorktree,
    pub(super) branch: &'a BranchName,
    pub(super) name: String,
}

/// The result of [`Tree::provide`].
pub(super) struct Provided {
    pub(super) outcome: Outcome,
    /// The branch's commit.
    pub(super) commit: Option<ObjectId>,
    /// The file that kept it from following the host.
    pub(super) held_up: Option<Trap>,
}

/// Whether a worktree can be forwarded to the host's commit.
enum Way {
    Clear,
    /// There is work in it, or the host's branch has diverged.
    Blocked,
    /// Git must not read it.
    HeldUp(Trap),
}

/// Belljar's notes on a worktree; no sandbox sees them.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Mark {
    pub(super) branch: String,
    /// Files are being moved from one commit to another, and may be at either.
    forwarding: Option<(String, String)>,
    /// How many files were not committed when the last run ended; `None` while one may be in progress.
    #[serde(default)]
    pub(super) uncommitted: Option<u64>,
}

impl Tree<'_> {
    /// Makes the worktree, or repairs or forwards the existing one.
    pub(super) fn provide(&self) -> Result<Provided, ManagedCloneError> {
        let marks = self.place.mark(&self.name);
        fs::create_dir_all(&marks).map_err(ManagedCloneError::io(&marks))?;
        let alone = Lock::try_now(&marks.join("lock")).map_err(ManagedCloneError::io(&marks))?;
        let checkout = self.host.checkout(self.git)?;
        let on_host = self.on_host()?;
        let repo = self.repo()?;
        let in_managed = repo.branch(self.branch).map_err(spoiled(self.host))?;
        let has_admin = repo.has(&format!("{}/HEAD", self.own()));
        let has_files = self.folder().join(".git").symlink_metadata().is_ok();
        let mark = self.mark();
        if has_admin && has_files && mark.is_some() {
            let kept = |commit| Provided { outcome: Outcome::Unchanged, commit, held_up: None };
            let forwarded = |commit| Provided { outcome: Outcome::Forwarded, commit, held_up: None };
            let Some(_alone) = alone else { return Ok(kept(in_managed)) };
            if let Some((from, to)) = mark.and_then(|mark| mark.forwarding) {
                let to = self.finish_forward(&from, &to)?;
                return Ok(forwarded(to.or(in_managed)));
            }
            return match (&in_managed, on_host) {
                (Some(from), Some(to)) if *from != to => Ok(match self.forward(&repo, from, &to)? {
                    Way::Clear => forwarded(Some(to)),
                    Way::Blocked => kept(in_managed),
                    Way::HeldUp(trap) => Provided { held_up: Some(trap), ..kept(in_managed) },
                }),
                _ => Ok(kept(in_managed)),
            };
        }
        if in_managed.is_none() {
            self.refuse_clash(&repo, on_host.is_some())?;
        }
        let start = in_managed.clone().or(on_host).or_else(|| self.default_start(&checkout));
        let outcome = if has_admin || in_managed.is_some() { Outcome::Mended } else { Outcome::Made };
        self.make(&repo, start.as_ref(), in_managed.is_none())?;
        Ok(Provided { outcome, commit: start, held_up: None })
    }

    pub(super) fn folder(&self) -> PathBuf {
        self.place.tree(&self.name)
    }

    /// Its part of the git directory.
    pub(super) fn own(&self) -> String {
        format!("worktrees/{}", self.name)
    }

    /// A worktree's mark; `None` if the worktree was never finished, an error with the reason if the mark cannot be parsed.
    pub(super) fn read_mark(place: &ManagedCloneDir, name: &str) -> Result<Option<Mark>, String> {
        let path = place.mark(name).join("mark.json");
        let text = match damage::read_small(&path, MAX_MARK_BYTES) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                return match place.tree(name).symlink_metadata() {
                    Err(_) => Ok(None),
                    Ok(_) => Err("its mark `mark.json` is missing".to_string()),
                };
            }
            Err(error) => return Err(format!("its mark `mark.json` cannot be read: {error}")),
        };
        serde_json::from_slice(&text).map(Some).map_err(|error| format!("its mark `mark.json`: {error}"))
    }

    /// Without a mark that can be parsed, the worktree is repaired: its files stay as they are.
    fn mark(&self) -> Option<Mark> {
        Tree::read_mark(self.place, &self.name).ok().flatten()
    }

    /// Notes how many files are not committed. A mark that cannot be parsed stays as it is.
    pub(super) fn note_uncommitted(
        place: &ManagedCloneDir,
        branch: &BranchName,
        uncommitted: Option<u64>,
    ) -> Result<(), ManagedCloneError> {
        let name = tree_name(branch);
        match Tree::read_mark(place, &name) {
            Ok(Some(mark)) => put_mark(place, &name, &Mark { uncommitted, ..mark }),
            Ok(None) | Err(_) => Ok(()),
        }
    }

    fn write_mark(&self, forwarding: Option<(&ObjectId, &ObjectId)>) -> Result<(), ManagedCloneError> {
        let forwarding = forwarding.map(|(from, to)| (from.to_string(), to.to_string()));
        let mark = Mark { branch: self.branch.to_string(), forwarding, uncommitted: None };
        put_mark(self.place, &self.name, &mark)
    }

    fn repo(&self) -> Result<Foreign, ManagedCloneError> {
        Foreign::open(&self.place.repo()).map_err(spoiled(self.host))
    }

    fn on_host(&self) -> Result<Option<ObjectId>, ManagedCloneError> {
        let name = format!("{}^{{commit}}", self.branch.full());
        let found = self.git.on(&self.host.common).args(["rev-parse", "-q", "--verify", &name]).run()?;
        Ok(object(String::from_utf8_lossy(&found.stdout).trim_end()))
    }

    /// Refuses a branch whose name git cannot have beside another's, in the managed clone or on the host.
    fn refuse_clash(&self, repo: &Foreign, is_on_host: bool) -> Result<(), ManagedCloneError> {
        let in_managed = repo.in_the_way_of(self.branch).map_err(spoiled(self.host))?;
        let other = match in_managed {
            None if !is_on_host => self.in_the_way_on_host()?,
            other => other,
        };
        other.map_or(Ok(()), |other| {
            Err(ManagedCloneError::NameTaken { branch: self.branch.to_string(), other: other.to_string() })
        })
    }

    fn in_the_way_on_host(&self) -> Result<Option<BranchName>, ManagedCloneError> {
        let full = self.branch.full();
        // `refs` and `refs/heads` are no branch's name.
        let folders = full.match_indices('/').skip(2).map(|(end, _)| &full[..end]);
        let call = self.git.on(&self.host.common).args(["for-each-ref", "--format=%(refname)"]);
        let found = call.args(folders).arg(&full).output()?;
        let names = String::from_utf8_lossy(&found);
        Ok(names.lines().find(|other| excludes(other, &full)).and_then(BranchName::of_ref))
    }

    /// A branch that exists nowhere starts at the host's commit; without any commit, it starts empty.
    fn default_start(&self, checkout: &Checkout) -> Option<ObjectId> {
        checkout.commit.clone()
    }

    /// git on `ours`, with the worktree's files and an index that is not the agent's.
    fn on_files(&self, folder: &Path, index: &Path) -> Call {
        let call = self.git.on(&self.place.ours()).env("GIT_INDEX_FILE", index).env("GIT_WORK_TREE", folder);
        // If there are many files, one worker per processor. Git inherits the lock: if we are killed, the next process waits until
        // git has ended.
        let call = call.in_directory(folder).config("checkout.workers", "0");
        match self.lock.as_input() {
            Ok(input) => call.input(input),
            Err(_) => call,
        }
    }

    /// Makes the missing parts. Files are written elsewhere and moved into place; an existing folder is kept.
    fn make(&self, repo: &Foreign, start: Option<&ObjectId>, new: bool) -> Result<(), ManagedCloneError> {
        let (folder, index) = (self.folder(), self.fresh_index());
        let unfinished = self.place.fresh("tree");
        let files = if folder.exists() { &folder } else { &unfinished };
        fs::create_dir_all(files).map_err(ManagedCloneError::io(files))?;
        if let Some(start) = start {
            self.take(repo, start)?;
            let words: &[&str] =
                if files == &folder { &["read-tree"] } else { &["read-tree", "--reset", "-u"] };
            self.on_files(files, &index).args(words).arg(start.as_str()).output()?;
        }
        // They exist so that they can be protected by a mount; git does not see empty folders.
        for name in [".husky", ".belljar"] {
            let _ = fs::create_dir(files.join(name));
        }
        self.make_admin(repo, &index)?;
        if let (Some(start), true) = (start, new) {
            repo.put_branch(self.branch, start).map_err(spoiled(self.host))?;
        }
        let link = format!("gitdir: {}\n", self.place.repo().join(self.own()).display());
        write_link(files, link.as_bytes())?;
        if files != &folder {
            fs::rename(files, &folder).map_err(ManagedCloneError::io(&folder))?;
        }
        self.write_mark(None)
    }

    /// The worktree's part of the git directory.
    fn make_admin(&self, repo: &Foreign, index: &Path) -> Result<(), ManagedCloneError> {
        let own = self.own();
        let put = |name: &str, content: &[u8]| {
            repo.put(&format!("{own}/{name}"), content).map_err(spoiled(self.host))
        };
        if !repo.has(&format!("{own}/HEAD")) {
            let (branch, full) = (self.branch, self.branch.full());
            // Between quotes only `"` and `\` are special, and no branch has `\` in its name.
            let name = branch.as_str().replace('"', "\\\"");
            put(
                "config.worktree",
                format!("[branch \"{name}\"]\n\tremote = host\n\tmerge = {full}\n").as_bytes(),
            )?;
            put("commondir", b"../..\n")?;
            put("gitdir", format!("{}\n", self.folder().join(".git").display()).as_bytes())?;
            // From inside, worktrees of other branches look deleted; the lock keeps git from pruning them.
            put("locked", b"belljar keeps it\n")?;
            put("HEAD", format!("ref: {full}\n").as_bytes())?;
        }
        match fs::read(index) {
            Ok(index) => put("index", &index),
            Err(_) => Ok(()),
        }
    }

    /// Ensures that a commit is in `ours`, with all that it needs.
    fn take(&self, repo: &Foreign, commit: &ObjectId) -> Result<(), ManagedCloneError> {
        let (ours, scratch) = (self.place.ours(), self.place.fresh("import"));
        // The host's own commits need no check: the object is the host's, and its branches lead to it.
        let known = self.git.on(&self.host.common).args(["cat-file", "-e"]).arg(format!("{commit}^{{tree}}"));
        if known.run()?.code == Some(0) {
            return Ok(());
        }
        let limits = PushLimits::default();
        let needed =
            Import { git: self.git, ours: &ours, from: repo, tip: commit, scratch: &scratch, limits };
        import(&needed).map_err(ManagedCloneError::Import)
    }

    /// Has the host newer commits than the worktree, and is there nothing in it that could be lost?
    fn can_forward(&self, repo: &Foreign, from: &ObjectId, to: &ObjectId) -> Result<Way, ManagedCloneError> {
        let ours = self.place.ours();
        // The host has all ancestors of its commits.
        let follows = self.git.on(&ours).args(["merge-base", "--is-ancestor", from.as_str(), to.as_str()]);
        if follows.run()?.code != Some(0) {
            return Ok(Way::Blocked);
        }
        let own = self.own();
        let busy = IN_THE_MIDDLE.iter().any(|name| repo.has(&format!("{own}/{name}")));
        let on_branch = repo.head(&own).is_ok_and(|head| head == Head::Branch(self.branch.clone()));
        if busy || !on_branch {
            return Ok(Way::Blocked);
        }
        // Would a file that an agent left make git hang, here or where files of the new commit go?
        let folder = self.folder();
        let committed = |commit| traps::committed(self.git.on(&self.place.ours()), commit);
        let (before, after) = (committed(from)?, committed(to)?);
        let mut ground = Ground::at(&folder).map_err(ManagedCloneError::io(&folder))?;
        let mut apart = Vec::new();
        for file in &before {
            match ground.find(file) {
                Found::Comparable => {}
                Found::Apart => apart.push(&file.path),
                Found::Different => return Ok(Way::Blocked),
                Found::Trapped(trap) => return Ok(Way::HeldUp(trap)),
            }
        }
        let known: HashSet<_> = before.iter().collect();
        for file in after.iter().filter(|file| !known.contains(file)) {
            if let Some(trap) = ground.trap_on_the_way_to(file) {
                return Ok(Way::HeldUp(trap));
            }
            // An agent works in a submodule that has changed on the host.
            if ground.has_repository(&file.path) {
                return Ok(Way::Blocked);
            }
        }
        Ok(if self.is_clean(repo, from, &apart)? { Way::Clear } else { Way::Blocked })
    }

    /// Is everything as committed? Leaves our own index with the state of the files.
    fn is_clean(
        &self,
        repo: &Foreign,
        commit: &ObjectId,
        apart: &[&RelPath],
    ) -> Result<bool, ManagedCloneError> {
        let (folder, index) = (self.folder(), self.fresh_index());
        // Files that are added and not committed: the agent's index, read from a copy.
        match repo.read(&format!("{}/index", self.own()), MAX_INDEX_BYTES) {
            Ok(Some(bytes)) => fs::write(&index, bytes).map_err(ManagedCloneError::io(&index))?,
            Ok(None) | Err(_) => return Ok(false),
        }
        let words = ["diff-index", "--cached", "--quiet", "--no-ext-diff", "--ignore-submodules=all"];
        if self.on_files(&folder, &index).args(words).arg(commit.as_str()).run()?.code != Some(0) {
            return Ok(false);
        }
        // Files that are changed and not added: compared with our own index.
        let index = self.fresh_index();
        self.on_files(&folder, &index).args(["read-tree", commit.as_str()]).output()?;
        self.assume(&index, "--assume-unchanged", apart)?;
        self.on_files(&folder, &index).args(["update-index", "-q", "--refresh"]).run()?;
        let words = ["diff-files", "--quiet", "--no-ext-diff", "--ignore-submodules=all"];
        let is_clean = self.on_files(&folder, &index).args(words).run()?.code == Some(0);
        self.assume(&index, "--no-assume-unchanged", apart)?;
        Ok(is_clean)
    }

    /// Tells git whether to look at these paths at all.
    fn assume(&self, index: &Path, how: &str, paths: &[&RelPath]) -> Result<(), ManagedCloneError> {
        if paths.is_empty() {
            return Ok(());
        }
        let list: Vec<u8> = paths.iter().flat_map(|path| [path.as_bytes(), b"\0"].concat()).collect();
        // Standard input is a list here, and so not the lock: nothing here can be left half done.
        let ours = self.git.on(&self.place.ours()).env("GIT_INDEX_FILE", index);
        let call = ours.env("GIT_WORK_TREE", self.folder()).in_directory(&self.folder());
        call.args(["update-index", how, "-z", "--stdin"]).output_with(&list)?;
        Ok(())
    }

    /// Moves files, index and branch to a commit of the host, if nothing can be lost by that.
    fn forward(&self, repo: &Foreign, from: &ObjectId, to: &ObjectId) -> Result<Way, ManagedCloneError> {
        match self.can_forward(repo, from, to)? {
            Way::Clear => {}
            other => return Ok(other),
        }
        let (folder, index) = (self.folder(), self.index());
        // Files that git does not know and would have to overwrite: it refuses, here before anything is done.
        let try_it = self.on_files(&folder, &index).args(["read-tree", "-m", "-u", "--dry-run"]);
        if try_it.args([from.as_str(), to.as_str()]).run()?.code != Some(0) {
            return Ok(Way::Blocked);
        }
        self.write_mark(Some((from, to)))?;
        let words = ["read-tree", "-m", "-u", from.as_str(), to.as_str()];
        self.on_files(&folder, &index).args(words).output()?;
        self.settle(to, &index)?;
        Ok(Way::Clear)
    }

    /// Completes a forward during which we died. No sandbox has worked there since, and nothing was changed before it.
    fn finish_forward(&self, from: &str, to: &str) -> Result<Option<ObjectId>, ManagedCloneError> {
        let (Some(from), Some(to)) = (object(from), object(to)) else {
            return Ok(None);
        };
        let (folder, index) = (self.folder(), self.fresh_index());
        self.on_files(&folder, &index).args(["read-tree", from.as_str()]).output()?;
        self.on_files(&folder, &index).args(["read-tree", "--reset", "-u", to.as_str()]).output()?;
        self.settle(&to, &index)?;
        Ok(Some(to))
    }

    fn index(&self) -> PathBuf {
        self.place.fresh("index")
    }

    /// The same, without anything in it.
    fn fresh_index(&self) -> PathBuf {
        let index = self.index();
        let _ = fs::remove_file(&index);
        index
    }

    fn settle(&self, to: &ObjectId, index: &Path) -> Result<(), ManagedCloneError> {
        let repo = self.repo()?;
        let bytes = fs::read(index).map_err(ManagedCloneError::io(index))?;
        repo.put(&format!("{}/index", self.own()), &bytes).map_err(spoiled(self.host))?;
        let branch = self.branch.full();
        repo.put(&branch, format!("{to}\n").as_bytes()).map_err(spoiled(self.host))?;
        self.write_mark(None)
    }
}

fn put_mark(place: &ManagedCloneDir, name: &str, mark: &Mark) -> Result<(), ManagedCloneError> {
    let path = place.mark(name).join("mark.json");
    let text = serde_json::to_vec(mark).map_err(|error| ManagedCloneError::io(&path)(error.into()))?;
    write_atomic(&path, &text, Survives::Kill).map_err(ManagedCloneError::io(&path))
}

/// Writes the file `.git` of a worktree, if it is missing; nothing that an agent put there is followed.
fn write_link(folder: &Path, content: &[u8]) -> Result<(), ManagedCloneError> {
    let path = folder.join(".git");
    if path.symlink_metadata().is_ok() {
        return Ok(());
    }
    let unfinished = folder.join(".git.new");
    let _ = fs::remove_file(&unfinished);
    let made = fs::File::create_new(&unfinished)
        .and_then(|mut file| std::io::Write::write_all(&mut file, content))
        .and_then(|()| fs::rename(&unfinished, &path));
    made.map_err(ManagedCloneError::io(&path))
}

/// Files of a merge, rebase or similar in progress, in a worktree's part of the git directory.
const IN_THE_MIDDLE: [&str; 9] = [
    "MERGE_HEAD",
    "CHERRY_PICK_HEAD",
    "REVERT_HEAD",
    "BISECT_LOG",
    "rebase-merge",
    "rebase-apply",
    "sequencer",
    "index.lock",
    "HEAD.lock",
];
/// A million files.
const MAX_INDEX_BYTES: u64 = 256 << 20;
const MAX_MARK_BYTES: u64 = 64 * 1024;
