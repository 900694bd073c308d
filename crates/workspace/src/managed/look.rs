//! A directory for our own index while a worktree is compared, without holding the managed clone's lock.

use super::ManagedCloneError;
use super::managed_dir::ManagedCloneDir;
use belljar_state::Lock;
use std::fs;
use std::path::PathBuf;

/// The directory of one comparison. Removed on drop; after a kill, by the next process that locks the managed clone.
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
    /// A directory for a comparison. The caller holds the managed clone's lock until the directory has its own.
    pub(super) fn look(&self, _managed: &Lock) -> Result<Look, ManagedCloneError> {
        let directory = self.looks().join(self.unique());
        fs::create_dir_all(&directory).map_err(ManagedCloneError::io(&directory))?;
        let hold = Lock::share(&directory.join(LOCK)).map_err(ManagedCloneError::io(&directory))?;
        Ok(Look { directory, _hold: hold })
    }

    /// Removes the directories of comparisons whose process was killed. The caller has locked the managed clone.
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
