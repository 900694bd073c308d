//! The repository on the host: reading it.

use super::QuarantineError;
use crate::foreign::Foreign;
use crate::inert::{Call, Git, Leash};
use crate::private_git::beyond;
use belljar_git::{ObjectFormat, ObjectId};
use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A repository of the host's, or a bare one of ours, that a sandbox fetches from and pushes to. No agent could have written its
/// config and hooks.
#[derive(Debug, Clone)]
pub struct HostRepository {
    pub(super) git: Git,
    pub(super) directory: PathBuf,
    pub(super) objects: PathBuf,
    pub(super) format: ObjectFormat,
    pub(super) owner: Owner,
}

/// Its owner: files that we add as root are given to this user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Owner {
    pub(super) user: u32,
    pub(super) group: u32,
}

/// The present state of a ref.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostRef {
    /// The full name, as bytes: git accepts any.
    pub name: Vec<u8>,
    pub id: ObjectId,
    /// A symbolic ref.
    pub is_symbolic: bool,
}

impl HostRef {
    /// May a sandbox see it? Branches and tags; no stash, no notes, no commits that landed beside a branch.
    pub fn is_shown(&self) -> bool {
        SHOWN.iter().any(|prefix| self.name.starts_with(prefix.as_bytes()))
    }

    /// Is it one of belljar's own refs?
    pub(crate) fn is_own(&self) -> bool {
        self.name.starts_with(b"refs/belljar/")
    }
}

impl HostRepository {
    /// The repository with this git directory; that of a linked worktree stands for its main repository.
    pub fn open(git: &Git, directory: &Path) -> Result<HostRepository, QuarantineError> {
        HostRepository::ask(git, git.on(directory), directory)
    }

    fn ask(git: &Git, call: Call, directory: &Path) -> Result<HostRepository, QuarantineError> {
        let question = ["rev-parse", "--path-format=absolute", "--git-common-dir", "--show-object-format"];
        let answer = call.args(question).time_limit(OPEN_TIMEOUT).output()?;
        let unusable = |why: &str| QuarantineError::Unusable(format!("`{}` {why}", directory.display()));
        let text = String::from_utf8(answer).map_err(|_| unusable("has a name that is not valid UTF-8"))?;
        let (common, format) = match text.lines().collect::<Vec<_>>()[..] {
            [common, "sha1"] => (PathBuf::from(common), ObjectFormat::Sha1),
            [common, "sha256"] => (PathBuf::from(common), ObjectFormat::Sha256),
            _ => return Err(unusable("names its objects in a way that is not known here")),
        };
        let common = fs::canonicalize(&common).map_err(QuarantineError::file("look at", &common))?;
        let objects = common.join("objects");
        let about = fs::metadata(&objects).map_err(QuarantineError::file("look at", &objects))?;
        let owner = Owner { user: about.uid(), group: about.gid() };
        Ok(HostRepository { git: git.clone(), directory: common, objects, format, owner })
    }

    /// The repository whose common git directory is this one, and no other that a file in it leads to.
    pub fn open_exactly(git: &Git, common: &Path) -> Result<HostRepository, QuarantineError> {
        let real = fs::canonicalize(common).map_err(QuarantineError::file("look at", common))?;
        let found =
            HostRepository::ask(git, git.on(&real).reaching(beyond(&real, &real).read(&real)), common)?;
        match real == found.directory {
            true => Ok(found),
            false => {
                let (common, found) = (common.display(), found.directory.display());
                Err(QuarantineError::Unusable(format!("`{common}` leads to another repository, `{found}`")))
            }
        }
    }

    /// The same, with this git for what follows.
    pub fn with(self, git: Git) -> HostRepository {
        HostRepository { git, ..self }
    }

    /// The same, with every git for it on a leash.
    pub(crate) fn on_leash(self, leash: &Leash) -> HostRepository {
        HostRepository { git: self.git.on_leash(leash), ..self }
    }

    /// Which hash names its objects.
    pub fn format(&self) -> ObjectFormat {
        self.format
    }

    /// A call of git on it.
    pub(crate) fn call(&self) -> Call {
        self.call_in(&self.directory)
    }

    /// A call of git on one of its worktrees, by the worktree's own git directory.
    pub(crate) fn call_in(&self, own: &Path) -> Call {
        let reach = beyond(own, &self.directory);
        // If we are root, the repository may belong to another user, on whose behalf we run.
        let call = self.git.on(own).config("safe.directory", "*");
        call.reaching(reach.write(&self.directory).write(own))
    }

    /// A call that writes: its files belong to the repository's owner.
    pub(crate) fn as_owner(&self, call: Call) -> Call {
        match self.owner.is_another() {
            true => call.as_user(self.owner.user, self.owner.group),
            false => call,
        }
    }

    /// The git that runs on it.
    pub(crate) fn git(&self) -> &Git {
        &self.git
    }

    /// Its owner.
    pub(crate) fn owner(&self) -> Owner {
        self.owner
    }

    /// A call that moves refs, and writes the reflogs.
    pub(crate) fn moving_refs(&self, call: Call, message: &str) -> Call {
        let call = call
            .args(["update-ref", "--create-reflog", "--no-deref", "-m", message, "--stdin"])
            .env("GIT_COMMITTER_NAME", "belljar")
            .env("GIT_COMMITTER_EMAIL", "belljar@localhost")
            .config("core.fsync", "all")
            .time_limit(MOVE_TIMEOUT)
            // If it were killed half done, it would leave locks behind, or refs that moved although we report that they did not.
            .to_its_end();
        self.as_owner(call)
    }

    /// Its git directory.
    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    /// All refs.
    pub fn refs(&self) -> Result<Vec<HostRef>, QuarantineError> {
        let list =
            self.call().args(["for-each-ref", "--format=%(objectname) %(refname) %(symref)"]).output()?;
        Ok(list.split(|byte| *byte == b'\n').filter_map(one_ref).collect())
    }

    /// Branches in use on the host: checked out in a worktree, or being rebased or bisected there. Moving one would make the work
    /// look like its reversal.
    pub fn busy_branches(&self) -> Result<HashSet<String>, QuarantineError> {
        let list = self.call().args(["worktree", "list", "--porcelain"]).output()?;
        let mut branches = HashSet::new();
        for worktree in list.split(|byte| *byte == b'\n').collect::<Vec<_>>().split(|line| line.is_empty()) {
            // A bare repository has a HEAD but no work tree.
            if !worktree.contains(&&b"bare"[..]) {
                let names = worktree.iter().filter_map(|line| line.strip_prefix(b"branch "));
                branches.extend(names.map(|name| String::from_utf8_lossy(name).into_owned()));
            }
        }
        branches.extend(self.set_aside());
        Ok(branches)
    }

    /// While a branch is rebased or bisected HEAD is detached; a file names the branch that it returns to.
    fn set_aside(&self) -> Vec<String> {
        let Ok(directory) = Foreign::open(&self.directory) else { return Vec::new() };
        let linked = directory.names("worktrees").unwrap_or_default();
        let places = linked.iter().map(|name| format!("worktrees/{name}/")).chain([String::new()]);
        let files = places.flat_map(|place| SET_ASIDE.map(|file| format!("{place}{file}")));
        let names = files.filter_map(|file| directory.read(&file, MAX_NAME_BYTES).ok().flatten());
        let names = names.map(|name| match String::from_utf8_lossy(&name).trim_end() {
            whole if whole.starts_with("refs/heads/") => whole.to_string(),
            short => format!("refs/heads/{short}"),
        });
        names.collect()
    }
}

fn one_ref(line: &[u8]) -> Option<HostRef> {
    let mut words = line.splitn(3, |byte| *byte == b' ');
    let id = ObjectId::parse(words.next()?).ok()?;
    let name = words.next()?.to_vec();
    Some(HostRef { name, id, is_symbolic: words.next().is_some_and(|target| !target.is_empty()) })
}

/// It takes milliseconds, unless config names a file on which git waits.
const OPEN_TIMEOUT: Duration = Duration::from_secs(20);
/// A busy disk takes seconds to write a few refs.
const MOVE_TIMEOUT: Duration = Duration::from_secs(60);
/// The refs that a sandbox may see.
pub(crate) const SHOWN: [&str; 2] = ["refs/heads/", "refs/tags/"];
/// The length limit of a path, which a ref name is.
const MAX_NAME_BYTES: u64 = 4096;
/// The files that name the branch on which a rebase or a bisection started.
const SET_ASIDE: [&str; 3] = ["rebase-merge/head-name", "rebase-apply/head-name", "BISECT_START"];
