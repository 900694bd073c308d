//! The journal of a quarantine: its changes to the host's repository, recorded before it makes them.

use super::store::write_durably;
use super::{Quarantine, QuarantineError};
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::{Path, PathBuf};

/// The files to remove if we are killed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Journal {
    /// The pack that moves, if there is one.
    pub(super) pack: Option<Moving>,
    /// Files by which git locks the refs that move.
    pub(super) locks: Vec<GitLock>,
    /// The temporary file of a loose object.
    #[serde(default)]
    pub(super) loose: Option<PathBuf>,
    /// The files that an import makes beside the index of a worktree.
    #[serde(default)]
    pub(super) index: Option<IndexFiles>,
}

/// The files beside the index of a worktree while an import changes it. Their names and content are unique to this quarantine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct IndexFiles {
    /// The copy that becomes the index.
    pub(crate) copy: PathBuf,
    /// git's own lock of the index, with [`keep_content`] in it while it is ours.
    pub(crate) lock: PathBuf,
    /// The content of the lock.
    pub(crate) content: String,
}

impl IndexFiles {
    /// Removes those that exist and are ours.
    pub(crate) fn clear(&self) {
        let _ = fs::remove_file(&self.copy);
        let _ = fs::remove_file(self.lock_of_copy());
        if fs::read_to_string(&self.lock).is_ok_and(|content| content == self.content) {
            let _ = fs::remove_file(&self.lock);
        }
    }

    /// git's lock while it writes the copy.
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

/// One of git's locks: the file that becomes the ref.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct GitLock {
    pub(super) path: PathBuf,
    /// The file's content between writing and renaming.
    pub(super) content: String,
}

impl Journal {
    pub(super) fn write(&self, quarantine: &Quarantine) -> Result<(), QuarantineError> {
        let path = quarantine.directory.join(FILE);
        let text = serde_json::to_vec(self).map_err(|error| QuarantineError::Unusable(error.to_string()))?;
        write_durably(&path, &text)
    }

    /// The journal of the quarantine in this directory; `None` if it was not written yet.
    pub(super) fn read(quarantine: &Path) -> Option<Journal> {
        serde_json::from_slice(&fs::read(quarantine.join(FILE)).ok()?).ok()
    }
}

impl Moving {
    /// A file of the pack.
    pub(super) fn file(&self, extension: &str) -> PathBuf {
        self.directory.join(format!("{}.{extension}", self.name))
    }

    /// The temporary name of a file; `git gc` removes such names too.
    pub(super) fn passing(&self, quarantine: &str, extension: &str) -> PathBuf {
        self.directory.join(format!("tmp_belljar_{quarantine}_{extension}"))
    }
}

/// The content of our `.keep` files.
pub(super) fn keep_content(quarantine: &str) -> String {
    format!("belljar {quarantine}\n")
}

/// The file name in the quarantine's directory.
pub(super) const FILE: &str = "journal.json";
/// In the order in which they are moved: git uses a pack as soon as its index exists.
pub(super) const MOVED: [&str; 3] = ["pack", "rev", "idx"];
