//! What a quarantine is about to do to the host's repository, written down before it does it.

use super::store::write_durably;
use super::{Quarantine, QuarantineError};
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::{Path, PathBuf};

/// What would have to be cleared away if we were killed now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Journal {
    /// The pack that moves, if there is one.
    pub(super) pack: Option<Moving>,
    /// Files by which git locks the refs that move.
    pub(super) locks: Vec<GitLock>,
    /// A loose object on its way.
    #[serde(default)]
    pub(super) loose: Option<PathBuf>,
    /// What an import makes beside the index of a worktree.
    #[serde(default)]
    pub(super) index: Option<IndexFiles>,
}

/// The files beside the index of a worktree while an import changes it. Their names and their content are this
/// quarantine's alone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct IndexFiles {
    /// The copy that becomes the index.
    pub(crate) copy: PathBuf,
    /// git's own lock of the index, with [`keep_content`] in it while it is ours.
    pub(crate) lock: PathBuf,
    /// What the lock holds.
    pub(crate) content: String,
}

impl IndexFiles {
    /// Removes those that are there and ours.
    pub(crate) fn clear(&self) {
        let _ = fs::remove_file(&self.copy);
        let _ = fs::remove_file(self.lock_of_copy());
        if fs::read_to_string(&self.lock).is_ok_and(|content| content == self.content) {
            let _ = fs::remove_file(&self.lock);
        }
    }

    /// What git makes while it writes the copy.
    fn lock_of_copy(&self) -> PathBuf {
        let mut path = self.copy.clone().into_os_string();
        path.push(".lock");
        path.into()
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Moving {
    /// The host's `objects/pack`.
    pub(super) directory: PathBuf,
    /// `pack-HASH`.
    pub(super) name: String,
}

/// A lock of git's: the file that becomes the ref.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct GitLock {
    pub(super) path: PathBuf,
    /// What the file holds from when it is written until it is renamed.
    pub(super) content: String,
}

impl Journal {
    pub(super) fn write(&self, quarantine: &Quarantine) -> Result<(), QuarantineError> {
        let path = quarantine.directory.join(FILE);
        let text = serde_json::to_vec(self).map_err(|error| QuarantineError::Unusable(error.to_string()))?;
        write_durably(&path, &text)
    }

    /// The journal of the quarantine in this directory; none if it had not come that far.
    pub(super) fn read(quarantine: &Path) -> Option<Journal> {
        serde_json::from_slice(&fs::read(quarantine.join(FILE)).ok()?).ok()
    }
}

impl Moving {
    /// A file of the pack.
    pub(super) fn file(&self, extension: &str) -> PathBuf {
        self.directory.join(format!("{}.{extension}", self.name))
    }

    /// A file on its way; git's own cleaning takes names like this too.
    pub(super) fn passing(&self, quarantine: &str, extension: &str) -> PathBuf {
        self.directory.join(format!("tmp_belljar_{quarantine}_{extension}"))
    }
}

/// What stands in a `.keep` of ours.
pub(super) fn keep_content(quarantine: &str) -> String {
    format!("belljar {quarantine}\n")
}

/// In the quarantine's directory.
pub(super) const FILE: &str = "journal.json";
/// In the order in which they move: a pack counts for git as soon as its index is there.
pub(super) const MOVED: [&str; 3] = ["pack", "rev", "idx"];
