//! A directory for an index of ours while a worktree is compared, without the shelf's lock.

use super::ManagedCloneError;
use super::managed_dir::ManagedCloneDir;
use belljar_state::Lock;
use std::fs;
use std::path::PathBuf;

/// A directory of one comparison. Removed when it is dropped; after a kill, by the next one that locks the shelf.
#[derive(Debug)]
pub(super) struct Look {
    directory: PathBuf,
    _hold: Lock,
}

impl Look {
    /// A name for an index.
    pub(super) fn index(&self) -> PathBuf {
        self.directory.join("index")
    }
}

impl Drop for Look {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.directory);
    }
}

impl ManagedCloneDir {
    /// A directory for a comparison. The shelf's lock is held until the directory has one of its own.
    pub(super) fn look(&self, _managed: &Lock) -> Result<Look, ManagedCloneError> {
        let directory = self.looks().join(self.unique());
        fs::create_dir_all(&directory).map_err(ManagedCloneError::io(&directory))?;
        let hold = Lock::share(&directory.join(LOCK)).map_err(ManagedCloneError::io(&directory))?;
        Ok(Look { directory, _hold: hold })
    }

    /// Removes the directories of comparisons whose process was killed. The shelf is locked.
    pub(super) fn sweep_looks(&self) {
        for entry in fs::read_dir(self.looks()).into_iter().flatten().flatten() {
            if !Lock::is_held(&entry.path().join(LOCK)) {
                let _ = fs::remove_dir_all(entry.path());
            }
        }
    }

    fn looks(&self) -> PathBuf {
        self.root.join("looks")
    }
}

const LOCK: &str = "lock";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_managed_clone_that_is_compared_can_be_locked_and_keeps_the_index() {
        let state = tempfile::tempdir().unwrap();
        let place = ManagedCloneDir::of(state.path(), state.path());
        let lock = place.lock().unwrap();
        let look = place.look(&lock).unwrap();
        drop(lock);
        fs::write(look.index(), "").unwrap();
        drop(place.lock().unwrap());
        assert!(look.index().exists());
        let directory = look.directory.clone();
        drop(look);
        assert!(!directory.exists());
    }

    #[test]
    fn a_comparison_that_was_killed_leaves_nothing_behind_the_next_lock() {
        let state = tempfile::tempdir().unwrap();
        let place = ManagedCloneDir::of(state.path(), state.path());
        let left = place.looks().join("1-0");
        fs::create_dir_all(&left).unwrap();
        fs::write(left.join(LOCK), "").unwrap();
        drop(place.lock().unwrap());
        assert!(!left.exists());
    }
}
