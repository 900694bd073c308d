//! Carries the user's git operations on the host (a commit, a switch, a pull) into the git directory of a running sandbox.
//!
//! A ref that the agent did not move follows the host's, with the index if it is checked out: otherwise the user's commit would
//! look like uncommitted work inside, and be committed again on a fork. If both moved, the host's is shown as
//! `refs/remotes/host/NAME`. Files are written below one descriptor, under git's own locks. The new index is made from a copy by
//! the host's git, which reads no config and no other file of the sandbox.

use super::host_state::read_head;
use super::inside::Inside;
use super::refs::{self, Snapshot};
use super::setup::{HostFilesOfGit, SetupError};
use super::{HostGit, Synced};
use crate::foreign::{Foreign, Head, Locked};
use crate::inert::{Git, Leash, Reach};
use crate::protect::gitlinks;
use belljar_git::{ObjectFormat, ObjectId};
use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::path::Path;
use std::time::Duration;

/// The update of a sandbox's git directory.
pub struct Inflow<'a> {
    pub host: &'a HostGit,
    /// The sandbox's git directory.
    pub into: &'a Foreign,
    /// A belljar file for a copy of the sandbox's index.
    pub scratch: &'a Path,
    /// The sandbox's limits, for the git that reads its index.
    pub leash: Option<&'a Leash>,
}

impl Inflow<'_> {
    /// Brings it up to date, and reports refs that cannot follow because both sides moved. Starts git only if an index has to
    /// follow. If git inside is writing, the rest waits for the next update.
    pub fn carry_in(&self, synced: &mut Synced) -> Result<Vec<String>, SetupError> {
        let source = HostFilesOfGit::open(self.host)?;
        let host = match self.host.common.join("reftable").exists() {
            true => refs::by_git(&source, &Git::find()?)?,
            false => refs::of_files(&source)?,
        };
        let now = host.shown();
        let mut notes = Vec::new();
        if now == synced.refs && host.head() == synced.head {
            return Ok(notes);
        }
        if host.head() != synced.head {
            match self.switch(&host, synced)? {
                Carried::Yes => synced.head = host.head().to_string(),
                Carried::No(note) => notes.push(note),
                Carried::Later => return Ok(notes),
            }
        }
        if differing(&now, synced).count() > FEW_REFS {
            self.follow_packed(&now, synced)?;
        }
        let names: Vec<String> = differing(&now, synced).cloned().collect();
        for name in names {
            let (old, new) = (synced.refs.get(&name).cloned(), now.get(&name).cloned());
            match self.follow(&name, old.as_ref(), new.as_ref())? {
                Carried::Yes => {
                    synced.set_aside.remove(&name);
                    match new {
                        Some(new) => drop(synced.refs.insert(name, new)),
                        None => drop(synced.refs.remove(&name)),
                    }
                }
                Carried::No(note) => notes.push(note),
                Carried::Later => return Ok(notes),
            }
        }
        notes.retain(|note| !note.is_empty());
        Ok(notes)
    }

    /// The host's HEAD has moved: the sandbox's follows, unless the agent switched too.
    fn switch(&self, host: &Snapshot, synced: &mut Synced) -> Result<Carried, SetupError> {
        let Some(index) = self.lock("index")? else { return Ok(Carried::Later) };
        let inside = Inside::read(self.into)?;
        let name = host.head().strip_prefix("ref: refs/heads/").unwrap_or(host.head());
        if inside.head == read_head(host.head()) {
            return Ok(Carried::Yes);
        }
        if inside.head != read_head(&synced.head) || inside.unfinished.is_some() {
            return Ok(Carried::No(format!(
                "the host switched to {name}, and the sandbox is elsewhere: commits inside are kept beside the host's branches"
            )));
        }
        let all = host.shown();
        let new = match read_head(host.head()) {
            Some(Head::Branch(branch)) => all.get(&branch.full()).cloned(),
            Some(Head::Detached(commit)) => Some(commit),
            None => return Ok(Carried::Yes),
        };
        let Some(bytes) = self.index(inside.commit().as_ref(), new.as_ref())? else {
            return Ok(Carried::No(format!(
                "the host switched to {name}, and what is staged in the sandbox does not allow to follow"
            )));
        };
        // The target branch has to exist inside.
        if let Some(branch) = host.head().strip_prefix("ref: ") {
            let old = synced.refs.get(branch).cloned();
            match self.move_ref(branch, old.as_ref(), new.as_ref())? {
                Carried::Yes => drop(new.map(|new| synced.refs.insert(branch.to_string(), new))),
                other => return Ok(other),
            }
        }
        let Some(head) = self.lock("HEAD")? else { return Ok(Carried::Later) };
        head.commit(format!("{}\n", host.head()).as_bytes())?;
        index.commit(&bytes)?;
        Ok(Carried::Yes)
    }

    /// Moves all refs at once that have no file of their own inside: a fetch by the user may bring thousands of tags, and moving
    /// each alone would read all refs. Refs that the agent has made or moved, and the checked-out one, are left to
    /// [`Inflow::follow`].
    fn follow_packed(&self, now: &BTreeMap<String, ObjectId>, synced: &mut Synced) -> Result<(), SetupError> {
        let Some(lock) = self.lock("packed-refs")? else { return Ok(()) };
        let inside = Inside::read(self.into)?;
        let packed = self.into.read("packed-refs", MAX_PACKED_BYTES)?.unwrap_or_default();
        let lines = packed.split(|byte| *byte == b'\n').filter(|line| !line.starts_with(b"#"));
        let lines =
            lines.filter_map(|line| line.split_at_checked(line.iter().position(|byte| *byte == b' ')?));
        let mut lines: BTreeMap<&[u8], &[u8]> = lines.map(|(id, name)| (&name[1..], id)).collect();
        let is_free = |name: &str| {
            let is_moved = inside.refs.get(name) != synced.refs.get(name);
            let is_in_the_way = inside.excludes(name) || self.into.has(name);
            !is_moved && !is_in_the_way && !inside.is_current(name)
        };
        let moved: Vec<&String> = differing(now, synced).filter(|name| is_free(name)).collect();
        if moved.is_empty() {
            return Ok(());
        }
        for name in &moved {
            match now.get(*name) {
                Some(new) => drop(lines.insert(name.as_bytes(), new.as_str().as_bytes())),
                None => drop(lines.remove(name.as_bytes())),
            }
        }
        let lines = lines.into_iter().map(|(name, id)| [id, b" ", name, b"\n"].concat());
        let content =
            [refs::SORTED.as_bytes().to_vec()].into_iter().chain(lines).collect::<Vec<_>>().concat();
        let moved: Vec<String> = moved.into_iter().cloned().collect();
        lock.commit(&content)?;
        for name in moved {
            synced.set_aside.remove(&name);
            match now.get(&name) {
                Some(new) => drop(synced.refs.insert(name, new.clone())),
                None => drop(synced.refs.remove(&name)),
            }
        }
        Ok(())
    }

    /// Moves a ref inside that the agent did not move, and the index with it if the ref is checked out. The index stays locked
    /// meanwhile, so that no git inside commits in between.
    fn follow(
        &self,
        name: &str,
        old: Option<&ObjectId>,
        new: Option<&ObjectId>,
    ) -> Result<Carried, SetupError> {
        let inside = Inside::read(self.into)?;
        // Both moved, and the host contains the sandbox's commits: the user or belljar merged them.
        let here = inside.refs.get(name).filter(|here| Some(*here) != old);
        let old = match (here, new) {
            (Some(here), Some(new)) if self.is_part(here, new)? => Some(here),
            _ => old,
        };
        if !inside.is_current(name) {
            return self.move_ref(name, old, new);
        }
        let Some(index) = self.lock("index")? else { return Ok(Carried::Later) };
        let inside = Inside::read(self.into)?;
        if !inside.is_current(name) || inside.refs.get(name) != old {
            drop(index);
            return self.move_ref(name, old, new);
        }
        // A branch that is checked out inside stays when the host deletes it, since it still has its commits.
        let Some(new) = new else { return Ok(Carried::Yes) };
        match self.index(old, Some(new))? {
            Some(bytes) => {
                let carried = self.move_ref(name, old, Some(new))?;
                if carried == Carried::Yes {
                    index.commit(&bytes)?;
                }
                Ok(carried)
            }
            None => {
                let branch = name.strip_prefix("refs/heads/").unwrap_or(name);
                let note = format!(
                    "branch {branch} moved on the host, and what is staged in the sandbox does not allow to follow: it is `host/{branch}` inside"
                );
                Ok(if self.show_beside(name, new)? { Carried::No(note) } else { Carried::No(String::new()) })
            }
        }
    }

    /// Whether a commit is in the history of one of the host's commits.
    fn is_part(&self, commit: &ObjectId, of: &ObjectId) -> Result<bool, SetupError> {
        let call = self.host.call(&Git::find()?);
        let checked = call.args(["merge-base", "--is-ancestor", commit.as_str(), of.as_str()]).run()?;
        Ok(commit == of || checked.code == Some(0))
    }

    /// Moves a ref that is still where both sides last agreed; otherwise shows the host's beside it.
    fn move_ref(
        &self,
        name: &str,
        old: Option<&ObjectId>,
        new: Option<&ObjectId>,
    ) -> Result<Carried, SetupError> {
        if new.is_some() && Inside::read(self.into)?.excludes(name) {
            return Ok(Carried::No(String::new()));
        }
        let Some(lock) = self.lock(name)? else { return Ok(Carried::Later) };
        let inside = Inside::read(self.into)?;
        let here = inside.refs.get(name);
        match (new, name.strip_prefix("refs/heads/").and_then(|branch| branch.parse().ok())) {
            (new, _) if here == new => Ok(Carried::Yes),
            (Some(new), _) if here == old => {
                self.into.make_room(name)?;
                lock.commit(format!("{new}\n").as_bytes())?;
                Ok(Carried::Yes)
            }
            (None, Some(branch)) if here == old => {
                drop(lock);
                self.into.remove_branch(&branch)?;
                Ok(Carried::Yes)
            }
            // The import merges them, or reports that the sandbox's commits are set aside.
            (Some(new), Some(_)) => {
                drop(lock);
                self.show_beside(name, new)?;
                Ok(Carried::No(String::new()))
            }
            // A tag, or a branch that the host deleted and the agent moved.
            (_, _) => Ok(Carried::No(String::new())),
        }
    }

    /// Shows the host's branch as a remote branch. Returns whether it has moved.
    fn show_beside(&self, name: &str, new: &ObjectId) -> Result<bool, SetupError> {
        let branch = name.strip_prefix("refs/heads/").unwrap_or(name);
        let shown = format!("refs/remotes/host/{branch}");
        let text = format!("{new}\n");
        if self.into.read(&shown, MAX_REF_BYTES)?.as_deref() == Some(text.as_bytes()) {
            return Ok(false);
        }
        self.into.write(&shown, text.as_bytes())?;
        Ok(true)
    }

    /// Git's lock of a file inside; `None` if a git inside holds it.
    fn lock(&self, path: &str) -> Result<Option<Locked>, SetupError> {
        for _ in 0..LOCK_TRIES {
            if let Some(locked) = self.into.lock(path)? {
                return Ok(Some(locked));
            }
            std::thread::sleep(LOCK_INTERVAL);
        }
        Ok(None)
    }

    /// The index inside, with entries as in `old` replaced by those of `new`; staged changes stay. `None` if that is impossible.
    fn index(&self, old: Option<&ObjectId>, new: Option<&ObjectId>) -> Result<Option<Vec<u8>>, SetupError> {
        let failed = || SetupError::make(self.scratch);
        let _ = fs::remove_file(self.scratch);
        if let Some(file) = self.into.file("index")? {
            let found = file.metadata().map_err(failed())?;
            if found.len() > MAX_INDEX_BYTES {
                return Ok(None);
            }
            let mut bytes = Vec::new();
            file.take(MAX_INDEX_BYTES).read_to_end(&mut bytes).map_err(failed())?;
            // Git trusts an index, and would read beyond its end.
            if gitlinks(&bytes).is_err() {
                return Ok(None);
            }
            fs::write(self.scratch, bytes).map_err(failed())?;
            let copy = fs::File::options().write(true).open(self.scratch).map_err(failed())?;
            copy.set_modified(found.modified().map_err(failed())?).map_err(failed())?;
        }
        if let Some(new) = new.filter(|new| Some(*new) != old) {
            let empty = match new.format() {
                ObjectFormat::Sha1 => EMPTY_TREE_SHA1,
                ObjectFormat::Sha256 => EMPTY_TREE_SHA256,
            };
            let git = Git::find()?;
            let git = self.leash.map_or(git.clone(), |leash| git.on_leash(leash));
            let place = self.scratch.parent().unwrap_or(self.scratch);
            let call = self
                .host
                .call(&git)
                .reaching(Reach::default().write(&fs::canonicalize(place).map_err(failed())?))
                .config("core.splitIndex", "false")
                .env("GIT_INDEX_FILE", self.scratch)
                .args(["read-tree", "-m", "-i", old.map_or(empty, ObjectId::as_str), new.as_str()]);
            if call.run()?.code != Some(0) {
                return Ok(None);
            }
        }
        let bytes = match fs::read(self.scratch) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            read => read.map_err(failed())?,
        };
        let _ = fs::remove_file(self.scratch);
        Ok(Some(bytes))
    }
}

/// The host's refs that moved since both sides last agreed.
fn differing<'r>(
    now: &'r BTreeMap<String, ObjectId>,
    synced: &'r Synced,
) -> impl Iterator<Item = &'r String> {
    let gone = synced.refs.keys().filter(|name| !now.contains_key(*name));
    // Deleted refs first: they may make room for others.
    gone.chain(now.iter().filter(|(name, id)| synced.refs.get(*name) != Some(*id)).map(|(name, _)| name))
}

/// The outcome of one move on the host.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Carried {
    /// Both sides agree.
    Yes,
    /// Both sides moved; the message, if it is new.
    No(String),
    /// A git inside is writing.
    Later,
}

/// Git knows these objects without having them (`hash-object -t tree /dev/null`).
const EMPTY_TREE_SHA1: &str = "4b825dc642cb6eb9a060e54bf8d69288fbee4904";
const EMPTY_TREE_SHA256: &str = "6ef19b41225c5369f1c104d45d8d85efa9b057b53b14b4b9b939dd74decc5321";
const MAX_REF_BYTES: u64 = 4096;
const MAX_PACKED_BYTES: u64 = 128 << 20;
/// Each gets its own file.
const FEW_REFS: usize = 16;
/// Two million files.
const MAX_INDEX_BYTES: u64 = 256 << 20;
/// A git inside that only refreshes its index has the lock for a few milliseconds.
const LOCK_TRIES: u32 = 20;
const LOCK_INTERVAL: Duration = Duration::from_millis(10);
