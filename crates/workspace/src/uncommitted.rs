//! The uncommitted files of a sandbox in a worktree of belljar: files that differ from a commit, and untracked ones.
//!
//! Called at the end of a run, for managed clones and clones. git works on our repository, with our index and with attributes that
//! cannot run any program. Files on which git would hang are kept from it: then all uncommitted files are listed, even ignored
//! ones.

use crate::inert::{Call, Git, GitError, PLAIN_DIFF};
use crate::traps::{self, Found, Ground};
use belljar_git::ObjectId;
use belljar_spec::egress::Printable;
use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

/// A worktree, and the repository of ours that has its commit.
pub(crate) struct Beside<'a> {
    pub(crate) git: &'a Git,
    pub(crate) ours: &'a Path,
    pub(crate) work: &'a Path,
    /// A path for our own index; an existing file is removed, before and after.
    pub(crate) index: &'a Path,
}

/// Why the files are not known.
#[derive(Debug)]
pub(crate) enum BesideError {
    Git(GitError),
    Io(io::Error),
}

impl From<GitError> for BesideError {
    fn from(error: GitError) -> BesideError {
        BesideError::Git(error)
    }
}

impl Beside<'_> {
    /// The names of the first files, up to a limit.
    pub(crate) fn uncommitted(
        &self,
        tip: Option<&ObjectId>,
        most: usize,
    ) -> Result<Vec<Printable>, BesideError> {
        Ok(self.names(tip, most)?.iter().map(|name| Printable::new(name)).collect())
    }

    /// The same names, as bytes.
    pub(crate) fn names(&self, tip: Option<&ObjectId>, most: usize) -> Result<Vec<Vec<u8>>, BesideError> {
        self.clear();
        let named = self.named(tip, most);
        self.clear();
        let mut names = named?;
        names.truncate(most);
        Ok(names)
    }

    fn named(&self, tip: Option<&ObjectId>, most: usize) -> Result<Vec<Vec<u8>>, BesideError> {
        let mut ground = Ground::at(self.work).map_err(BesideError::Io)?;
        let committed = match tip {
            Some(tip) => traps::committed(self.git.on(self.ours), tip)?,
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
            self.call().args(["read-tree", tip.as_str()]).output()?;
            let unseen_by_git = self.call().args(["update-index", "--assume-unchanged", "-z", "--stdin"]);
            unseen_by_git.output_with(&unseen)?;
            self.call().args(["update-index", "-q", "--refresh"]).run()?;
        }
        names
            .extend(split(&self.call().args(["diff-files", "--name-only", "-z"]).args(PLAIN_DIFF).output()?));
        names.extend(match ground.trap_anywhere() {
            None => split(&self.call().args(["ls-files", "-z", "--others", "--exclude-standard"]).output()?),
            Some(_) => {
                let known = committed.iter().map(|file| &file.path).collect();
                ground.others(&known, most).iter().map(|path| path.as_bytes().to_vec()).collect()
            }
        });
        Ok(names)
    }

    fn call(&self) -> Call {
        let call = self.git.on(self.ours).env("GIT_INDEX_FILE", self.index).env("GIT_WORK_TREE", self.work);
        call.in_directory(self.work).time_limit(LOOKING).limit(MAX_NAMES).env("GIT_ALLOC_LIMIT", MAX_MEMORY)
    }

    fn clear(&self) {
        let mut lock = self.index.as_os_str().to_os_string();
        lock.push(".lock");
        let _ = fs::remove_file(self.index);
        let _ = fs::remove_file(lock);
    }
}

fn split(names: &[u8]) -> Vec<Vec<u8>> {
    names.split(|byte| *byte == 0).filter(|name| !name.is_empty()).map(<[u8]>::to_vec).collect()
}

/// Limit of the names' bytes.
const MAX_NAMES: u64 = 64 << 20;
/// Only small files are read completely, and the index of a million files is a tenth of this limit.
const MAX_MEMORY: &str = "1g";
/// A tree of any size is walked in less time.
const LOOKING: Duration = Duration::from_secs(120);
