//! The host's repository that a folder is in.
//!
//! Found by reading files, not by asking git: as root, git refuses repositories of other users, and the `.git` that git finds may
//! have been written by an agent.

use super::ManagedCloneError;
use crate::foreign::object;
use crate::inert::{Git, GitError, odd_file};
use belljar_git::ObjectId;
use belljar_spec::git::BranchName;
use belljar_state::damage::read_small;
use std::fs;
use std::path::{Path, PathBuf};

/// A worktree of the host's, and the repository that it belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostWorktree {
    /// Where objects, refs and config are.
    pub common: PathBuf,
    /// What belongs to the worktree alone; the same as `common` but for a linked worktree.
    pub own: PathBuf,
    /// The worktree's root.
    pub top: PathBuf,
    /// The folder it was found from, relative to the root.
    pub below: PathBuf,
}

/// What is checked out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Checkout {
    /// `None`: HEAD is detached.
    pub(super) branch: Option<BranchName>,
    /// `None`: there is no commit yet.
    pub(super) commit: Option<ObjectId>,
}

/// A branch or tag, and the object it names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Tip {
    pub(super) name: String,
    pub(super) hash: ObjectId,
}

impl HostWorktree {
    /// The worktree that a folder is in; a linked worktree or a submodule counts too.
    pub fn find(folder: &Path) -> Result<HostWorktree, ManagedCloneError> {
        let real = folder.canonicalize().map_err(ManagedCloneError::io(folder))?;
        let found = real.ancestors().find(|above| above.join(".git").symlink_metadata().is_ok());
        let top = found.ok_or_else(|| ManagedCloneError::NoRepository(real.clone()))?;
        let link = top.join(".git");
        let below = real.strip_prefix(top).unwrap_or(Path::new("")).to_path_buf();
        let own = match fs::metadata(&link) {
            Ok(metadata) if metadata.is_dir() => link.canonicalize().map_err(ManagedCloneError::io(&link))?,
            _ => pointed_to(&link)?,
        };
        let common = match read_line(&own.join("commondir")) {
            Some(line) => own.join(line).canonicalize().map_err(ManagedCloneError::io(&own))?,
            None => own.clone(),
        };
        let host = HostWorktree { common, own, top: top.to_path_buf(), below };
        host.check(&link)?;
        Ok(host)
    }

    /// A folder cannot make any directory its repository by naming it: the directory must know the folder.
    fn check(&self, link: &Path) -> Result<(), ManagedCloneError> {
        let refused = |why| ManagedCloneError::NotItsOwn { path: link.to_path_buf(), why };
        let is_repository = self.own.join("HEAD").exists() && self.common.join("objects").is_dir();
        if !is_repository {
            return Err(ManagedCloneError::NoRepository(self.top.clone()));
        }
        if self.common.as_os_str().as_encoded_bytes().contains(&b'\n') {
            return Err(ManagedCloneError::UnusablePath(self.common.clone()));
        }
        if self.own != self.common {
            // gitrepository-layout(5): the worktree's `.git`, as it was when it was made or last repaired.
            let back = read_line(&self.own.join("gitdir")).map(|line| self.own.join(line));
            let back = back.and_then(|back| back.canonicalize().ok());
            return match back == link.canonicalize().ok() && back.is_some() {
                true => Ok(()),
                false => Err(refused("its `gitdir` is another folder; try `git worktree repair`")),
            };
        }
        if link.is_dir() {
            return Ok(());
        }
        let setting = Git::find()?.anywhere().args(["config", "--file"]).arg(self.common.join("config"));
        let worktree = setting.args(["--get", "core.worktree"]).line().ok();
        let worktree = worktree.and_then(|worktree| self.common.join(worktree).canonicalize().ok());
        match worktree.as_deref() == Some(&self.top) {
            true => Ok(()),
            false => Err(refused("its `core.worktree` is another folder")),
        }
    }

    /// Refuses a git directory with a pipe, a socket or a device where git opens files: it would wait there for ever. A sandbox
    /// that works in the folder itself can put one there.
    pub(super) fn refuse_odd_files(&self) -> Result<(), ManagedCloneError> {
        HostWorktree::refuse_odd_files_in(&self.common)?;
        if self.own != self.common {
            HostWorktree::refuse_odd_files_in(&self.own)?;
        }
        Ok(())
    }

    pub(super) fn refuse_odd_files_in(directory: &Path) -> Result<(), ManagedCloneError> {
        match odd_file(directory).map_err(ManagedCloneError::io(directory))? {
            None => Ok(()),
            Some((path, what)) => Err(ManagedCloneError::NotAFile { path, what, expected: "a file" }),
        }
    }

    /// Are objects missing that git would fetch when it needs them?
    pub(super) fn is_partial(&self) -> bool {
        let packs = fs::read_dir(self.common.join("objects/pack")).into_iter().flatten().flatten();
        packs.map(|entry| entry.path()).any(|path| path.extension().is_some_and(|end| end == "promisor"))
    }

    /// What is checked out in this worktree.
    pub(super) fn checkout(&self, git: &Git) -> Result<Checkout, GitError> {
        let name = git.on(&self.own).args(["symbolic-ref", "-q", "HEAD"]).run()?;
        let name = String::from_utf8_lossy(&name.stdout);
        let commit = git.on(&self.own).args(["rev-parse", "-q", "--verify", "HEAD^{commit}"]).run()?;
        let commit = object(String::from_utf8_lossy(&commit.stdout).trim_end());
        Ok(Checkout { branch: BranchName::of_ref(name.trim_end()), commit })
    }

    /// The host's branches and tags. No other refs go to a managed clone: stashes and notes are private.
    pub(super) fn tips(&self, git: &Git) -> Result<Vec<Tip>, GitError> {
        let list = git.on(&self.common).args(["for-each-ref", "--format=%(objectname) %(refname)"]);
        let list = list.args(["refs/heads/", "refs/tags/"]).output()?;
        Ok(Tip::read(&list))
    }
}

impl Tip {
    /// One `HASH NAME` per line; other lines are skipped.
    pub(super) fn read(lines: &[u8]) -> Vec<Tip> {
        let tip = |line: &[u8]| {
            let (hash, name) = std::str::from_utf8(line).ok()?.split_once(' ')?;
            Some(Tip { name: name.to_string(), hash: object(hash)? })
        };
        lines.split(|byte| *byte == b'\n').filter_map(tip).collect()
    }

    /// The ref's name in a managed clone: branches as those of the remote `host`, tags unchanged.
    pub(super) fn name_in_managed(&self) -> String {
        match self.name.strip_prefix("refs/heads/") {
            Some(branch) => format!("refs/remotes/host/{branch}"),
            None => self.name.clone(),
        }
    }
}

/// The git directory that a file `.git` names.
fn pointed_to(link: &Path) -> Result<PathBuf, ManagedCloneError> {
    let refused =
        || ManagedCloneError::NotItsOwn { path: link.to_path_buf(), why: "there is nothing at its path" };
    let line = read_line(link).ok_or_else(refused)?;
    let path = line.strip_prefix("gitdir: ").ok_or_else(refused)?;
    let from = link.parent().unwrap_or(link);
    from.join(path).canonicalize().map_err(|_| refused())
}

/// The only line of a small file.
fn read_line(path: &Path) -> Option<String> {
    let text = String::from_utf8(read_small(path, 8192).ok()?).ok()?;
    Some(text.trim_end_matches(['\n', '\r']).to_string())
}
