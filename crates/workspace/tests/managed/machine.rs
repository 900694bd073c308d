//! The setup of every test here.

use crate::repository::{Repository, directory};
use belljar_spec::git::BranchName;
use belljar_workspace::managed::{self, Provisioned};
use std::fs;
use std::path::{Path, PathBuf};

/// A host with a repository, and a state directory.
pub(crate) struct Machine {
    pub(crate) base: PathBuf,
    pub(crate) host: Repository,
    _directory: tempfile::TempDir,
}

impl Machine {
    pub(crate) fn new() -> Machine {
        let (guard, base) = directory();
        let host = Repository::with_commit(&base.join("host"));
        Machine { base, host, _directory: guard }
    }

    pub(crate) fn state(&self) -> PathBuf {
        self.base.join("state")
    }

    pub(crate) fn provision(&self, branch: &str) -> Provisioned {
        managed::provision(&self.state(), &self.host.folder, Some(&name(branch))).unwrap()
    }

    pub(crate) fn clone_dir(&self) -> PathBuf {
        let mut entries = fs::read_dir(self.state().join("shelf")).unwrap();
        entries.next().unwrap().unwrap().path()
    }
}

pub(crate) fn name(branch: &str) -> BranchName {
    branch.parse().unwrap()
}

/// The worktree as its agent sees it.
pub(crate) fn inside(provisioned: &Provisioned) -> Repository {
    Repository { folder: provisioned.folder.clone() }
}

pub(crate) fn read(provisioned: &Provisioned, file: &str) -> String {
    fs::read_to_string(provisioned.folder.join(file)).unwrap()
}

pub(crate) fn walk(root: &Path, visit: &mut impl FnMut(&Path)) {
    for entry in fs::read_dir(root).unwrap() {
        let path = entry.unwrap().path();
        if path.symlink_metadata().unwrap().is_dir() {
            walk(&path, visit);
        } else {
            visit(&path);
        }
    }
}
