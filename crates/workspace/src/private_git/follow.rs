//! Moves the host's refs, index and HEAD together.
//!
//! The index goes first, under git's own lock and between the two halves of a ref transaction. If we are killed in between, the
//! change shows as staged, which is harmless; the other way round its reverse would, and the user's next commit would undo the
//! work. No file of the work tree is read, so no filter of the host's runs.

use super::{HostGit, host_state, large_index, staged, step};
use crate::foreign::Head;
use crate::inert::{Call, Running};
use crate::quarantine::{HostRepository, IndexFiles, Landing, Quarantine, QuarantineError};
use belljar_git::{ObjectFormat, ObjectId};
use belljar_sys::rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::fs::{self, File, FileTimes};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// The move of refs, index and HEAD.
#[derive(Debug)]
pub(super) struct Follow<'a> {
    /// The journal of the steps to come.
    pub(super) quarantine: &'a Quarantine,
    pub(super) repository: &'a HostRepository,
    pub(super) host: &'a HostGit,
    pub(super) files: &'a IndexFiles,
    pub(super) landings: &'a [Landing],
    pub(super) head: Option<&'a HeadMove>,
    pub(super) trees: Option<&'a Trees>,
    /// HEAD of the host's worktree when this was decided.
    pub(super) on: Option<&'a Head>,
    /// The reflog message.
    pub(super) message: &'a str,
}

/// The index moves from one commit to another; `None` before the first commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Trees {
    pub(super) old: Option<ObjectId>,
    pub(super) new: ObjectId,
}

/// The move of HEAD.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct HeadMove {
    pub(super) old: Head,
    /// The commit of the old HEAD.
    pub(super) commit: Option<ObjectId>,
    pub(super) new: Head,
}

/// Why nothing moved.
#[derive(Debug)]
pub(super) enum Obstacle {
    /// A ref or the index has changed since it was read.
    Moved(String),
    /// The git that moves refs died, perhaps leaving locks.
    Died,
    /// The index cannot follow.
    Index(String),
    Failed(QuarantineError),
}

impl<E: Into<QuarantineError>> From<E> for Obstacle {
    fn from(error: E) -> Obstacle {
        Obstacle::Failed(error.into())
    }
}

impl Follow<'_> {
    /// Moves all or nothing.
    pub(super) fn carry_out(&self) -> Result<(), Obstacle> {
        let outcome = self.in_one_go(self.head);
        // git before 2.46 moves no symbolic ref in a transaction, and no version moves HEAD there together with its branch.
        let outcome = match (outcome, self.head) {
            (Err(Obstacle::Moved(reason)), Some(head))
                if reason.contains("unknown command") || reason.contains("multiple updates") =>
            {
                self.files.clear();
                self.in_one_go(None).and_then(|()| self.move_head(head))
            }
            (outcome, _) => outcome,
        };
        self.files.clear();
        match outcome {
            Err(Obstacle::Died) => {
                self.quarantine.clear_locks();
                Err(Obstacle::Moved("git on the host was killed".to_string()))
            }
            outcome => outcome,
        }
    }

    fn in_one_go(&self, head: Option<&HeadMove>) -> Result<(), Obstacle> {
        let seen = match self.trees {
            Some(trees) => Some(self.prepare_index(trees)?),
            None => None,
        };
        step("index");
        let mut transaction = Transaction::start(self.call())?;
        if let Some(seen) = &seen {
            self.lock_index()?;
            step("lock");
            if IndexSeen::look(&self.host.own.join("index"))?.0 != *seen {
                return Err(Obstacle::Moved("the index changed meanwhile".to_string()));
            }
        }
        transaction.prepare(&orders(self.landings, head))?;
        step("prepared");
        if seen.is_some() {
            // By now git holds the lock of HEAD if its branch moves. If HEAD was switched before that, its index stays.
            let is_on = host_state::head(self.repository, self.host)?;
            if is_on.as_ref() != self.on || host_state::unfinished(self.host).is_some() {
                transaction.abort()?;
                return Err(Obstacle::Moved("HEAD moved meanwhile".to_string()));
            }
            let index = self.host.own.join("index");
            fs::rename(&self.files.copy, &index).map_err(QuarantineError::file("write", &index))?;
            step("renamed");
        }
        transaction.commit()?;
        step("committed");
        if seen.is_some() {
            fs::remove_file(&self.files.lock).map_err(QuarantineError::file("remove", &self.files.lock))?;
        }
        Ok(())
    }

    fn call(&self) -> Call {
        self.repository.moving_refs(self.repository.call_in(&self.host.own), self.message)
    }

    fn move_head(&self, head: &HeadMove) -> Result<(), Obstacle> {
        let finished = match &head.new {
            Head::Branch(branch) => {
                let call = self.repository.as_owner(self.repository.call_in(&self.host.own));
                // An agent may have written the user name of the repository's config, and it goes into a log.
                let call =
                    call.env("GIT_COMMITTER_NAME", "belljar").env("GIT_COMMITTER_EMAIL", "belljar@localhost");
                call.args(["symbolic-ref", "-m", self.message, "HEAD", &branch.full()]).run()?
            }
            Head::Detached(commit) => self.call().run_with(format!("update HEAD {commit}\n").as_bytes())?,
        };
        match finished.code {
            Some(0) => Ok(()),
            _ => Err(Obstacle::Moved(finished.reason())),
        }
    }

    /// A copy of the index, moved from one commit to the other, and the state of the original.
    fn prepare_index(&self, trees: &Trees) -> Result<IndexSeen, Obstacle> {
        let path = self.host.own.join("index");
        let copy = &self.files.copy;
        let (seen, content) = IndexSeen::look(&path)?;
        let write = || {
            let _ = fs::remove_file(copy);
            let Some(about) = &seen.about else { return Ok(()) };
            let mut file = File::options().write(true).create_new(true).open(copy)?;
            file.write_all(&content)?;
            // From the index's time git knows which entries were written in the same moment as their files.
            file.set_times(FileTimes::new().set_modified(about.modified()?))
        };
        write().map_err(QuarantineError::file("write", copy))?;
        if seen.about.is_some() {
            self.repository.owner().take(copy)?;
        }
        step("copied");
        let empty = empty_tree(self.repository.format());
        let old = trees.old.as_ref().map_or(empty, ObjectId::as_str);
        let call = || {
            let call = self.repository.as_owner(self.repository.call_in(&self.host.own));
            call.env("GIT_INDEX_FILE", copy).config("core.untrackedCache", "keep")
        };
        if !large_index::carry_over(&call, &content, self.repository.format(), old, &trees.new)? {
            let read = call().args(["read-tree", "-m", "-i", old, trees.new.as_str()]).run()?;
            if read.code != Some(0) {
                staged::carry_over(&call, old, &trees.new)?;
            }
        }
        let finish = || {
            let file = File::open(copy)?;
            if let Some(about) = &seen.about {
                file.set_permissions(about.permissions())?;
                file.set_times(FileTimes::new().set_modified(about.modified()?))?;
            }
            file.sync_all()
        };
        finish().map_err(QuarantineError::file("write", copy))?;
        Ok(seen)
    }

    /// The user's git holds this lock briefly, or while an editor is open.
    fn lock_index(&self) -> Result<(), Obstacle> {
        let until = Instant::now() + INDEX_LOCK_TIMEOUT;
        loop {
            match File::options().write(true).create_new(true).open(&self.files.lock) {
                Ok(mut file) => {
                    let written = file.write_all(self.files.content.as_bytes());
                    written.map_err(QuarantineError::file("write", &self.files.lock))?;
                    return Ok(self.repository.owner().take(&self.files.lock)?);
                }
                Err(error) if error.kind() == ErrorKind::AlreadyExists && Instant::now() < until => {
                    std::thread::sleep(Duration::from_millis(10));
                }
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                    return Err(Obstacle::Index("another git on the host holds `index.lock`".to_string()));
                }
                Err(error) => return Err(QuarantineError::file("lock", &self.files.lock)(error).into()),
            }
        }
    }
}

/// Identifies a version of the index: git replaces the file, so these fields differ.
#[derive(Debug)]
struct IndexSeen {
    about: Option<fs::Metadata>,
    /// Its checksum at the end of the file.
    tail: Vec<u8>,
}

impl IndexSeen {
    fn look(path: &Path) -> Result<(IndexSeen, Vec<u8>), QuarantineError> {
        let mut content = Vec::new();
        let mut read = || {
            let mut file = File::open(path)?;
            let about = file.metadata()?;
            file.read_to_end(&mut content)?;
            Ok::<_, io::Error>(about)
        };
        let about = match read() {
            Ok(about) => Some(about),
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => return Err(QuarantineError::file("read", path)(error)),
        };
        let tail = content[content.len().saturating_sub(TAIL)..].to_vec();
        Ok((IndexSeen { about, tail }, content))
    }
}

impl PartialEq for IndexSeen {
    fn eq(&self, other: &IndexSeen) -> bool {
        let key = |seen: &IndexSeen| {
            let about = seen.about.as_ref();
            about.map(|about| (about.dev(), about.ino(), about.len(), about.mtime(), about.mtime_nsec()))
        };
        key(self) == key(other) && self.tail == other.tail
    }
}

/// `git update-ref --stdin`, which removes its locks when its input ends early.
struct Transaction {
    running: Running,
}

impl Transaction {
    fn start(call: Call) -> Result<Transaction, Obstacle> {
        let mut transaction = Transaction { running: call.spawn()? };
        transaction.say("start\n", "start: ok")?;
        Ok(transaction)
    }

    fn prepare(&mut self, orders: &str) -> Result<(), Obstacle> {
        self.say(&format!("{orders}prepare\n"), "prepare: ok")
    }

    fn commit(mut self) -> Result<(), Obstacle> {
        self.say("commit\n", "commit: ok")?;
        drop(self.running.stdin.take());
        let output = self.running.wait_with_output().map_err(QuarantineError::Broken)?;
        match output.status.code() {
            Some(0) => Ok(()),
            Some(_) => Err(Obstacle::Moved(complaint(&output.stderr))),
            None => Err(Obstacle::Died),
        }
    }

    /// Releases the locks. If the value were only dropped, git would be killed while it holds them.
    fn abort(mut self) -> Result<(), Obstacle> {
        self.say("abort\n", "abort: ok")
    }

    fn say(&mut self, words: &str, answer: &str) -> Result<(), Obstacle> {
        let written = self.running.stdin.as_mut().map(|stdin| stdin.write_all(words.as_bytes()));
        let is_written = matches!(written, Some(Ok(())));
        if is_written && self.hear(answer) {
            return Ok(());
        }
        drop(self.running.stdin.take());
        let mut stderr_bytes = Vec::new();
        if let Some(mut stderr) = self.running.stderr.take() {
            let _ = stderr.by_ref().take(64 << 10).read_to_end(&mut stderr_bytes);
        }
        match stderr_bytes.is_empty() {
            true => Err(Obstacle::Died),
            false => Err(Obstacle::Moved(complaint(&stderr_bytes))),
        }
    }

    /// Whether git prints this line next, before any other or its end.
    fn hear(&mut self, answer: &str) -> bool {
        let Some(stdout) = self.running.stdout.as_mut() else { return false };
        let mut line = Vec::new();
        while !line.ends_with(b"\n") && line.len() < 100 {
            let mut files = [PollFd::new(&stdout, PollFlags::IN)];
            let timeout = Timespec { tv_sec: ANSWER_SECONDS, tv_nsec: 0 };
            let mut byte = [0];
            match poll(&mut files, Some(&timeout)) {
                Ok(1..) if stdout.read(&mut byte).is_ok_and(|count| count == 1) => line.push(byte[0]),
                _ => return false,
            }
        }
        line.trim_ascii_end() == answer.as_bytes()
    }
}

fn orders(landings: &[Landing], head: Option<&HeadMove>) -> String {
    let refs = landings.iter().map(|Landing { name, old, new }| match new.is_zero() {
        true => format!("delete {name} {old}\n"),
        false => format!("update {name} {new} {old}\n"),
    });
    let head = head.map(|head| match (&head.new, &head.old) {
        (Head::Branch(new), Head::Branch(old)) => {
            format!("symref-update HEAD {} ref {}\n", new.full(), old.full())
        }
        (Head::Branch(new), Head::Detached(old)) => format!("symref-update HEAD {} oid {old}\n", new.full()),
        (Head::Detached(new), _) => match &head.commit {
            Some(old) => format!("update HEAD {new} {old}\n"),
            None => format!("update HEAD {new}\n"),
        },
    });
    refs.chain(head).collect()
}

fn complaint(stderr: &[u8]) -> String {
    let finished = crate::inert::Finished { code: None, stdout: Vec::new(), stderr: stderr.to_vec() };
    finished.reason()
}

/// The empty tree, which git knows without having the object.
fn empty_tree(format: ObjectFormat) -> &'static str {
    match format {
        ObjectFormat::Sha1 => "4b825dc642cb6eb9a060e54bf8d69288fbee4904",
        ObjectFormat::Sha256 => "6ef19b41225c5369f1c104d45d8d85efa9b057b53b14b4b9b939dd74decc5321",
    }
}

/// As long as git itself waits for the lock of a ref, and a little more.
const INDEX_LOCK_TIMEOUT: Duration = Duration::from_millis(300);
/// A disk that is busy takes a while to write a ref.
const ANSWER_SECONDS: i64 = 30;
/// The length of the longest checksum.
const TAIL: usize = 32;
