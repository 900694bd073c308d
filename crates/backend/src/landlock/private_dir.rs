//! The folders of a sandbox among the host's paths: home, temporary files and belljar's own. Made before it starts, removed after its last
//! process; what a killed process left is removed by the next sweep, which finds it unlocked.

use crate::layout::{HOME, OWN_FILES, TEMPORARY, WORK};
use crate::plan::TRIAL;
use belljar_spec::{ErrorCode, SandboxError, SandboxId};
use belljar_state::{Lock, create_private, remove_whole, sweep_removed};
use belljar_sys::rustix::process::geteuid;
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// One sandbox's. Dropped, it is removed.
pub(crate) struct PrivateDir {
    path: PathBuf,
    /// Held as long as it is needed.
    lock: Option<Lock>,
}

/// Where it is, by the sandbox's id.
pub(crate) fn place(directory: &Path, id: SandboxId) -> PathBuf {
    directory.join(id.to_string())
}

impl PrivateDir {
    /// Makes it, with these files (path below it, content).
    pub(crate) fn make(path: &Path, files: &[(String, Vec<u8>)]) -> Result<PrivateDir, SandboxError> {
        let failed = |error: io::Error| {
            let message = format!("cannot make the sandbox's folder `{}`: {error}", path.display());
            ErrorCode::StateFailed.error(message).caused_by(error)
        };
        let make = || -> io::Result<PrivateDir> {
            if let Some(parent) = path.parent() {
                create_private(parent)?;
            }
            let mut private = DirBuilder::new();
            private.mode(0o700);
            let lock = make_locked(&private, path)?;
            let made = PrivateDir { path: path.to_path_buf(), lock: Some(lock) };
            for name in [HOME, TEMPORARY, WORK, OWN_FILES] {
                private.create(path.join(name))?;
            }
            for (name, content) in files {
                let mut file =
                    OpenOptions::new().write(true).create_new(true).mode(0o644).open(path.join(name))?;
                file.write_all(content)?;
            }
            Ok(made)
        };
        make().map_err(failed)
    }
}

/// Makes a directory and locks it. A sweep of another process may find it between the two, take it for one that was left, and remove it: then
/// it is made again.
fn make_locked(private: &DirBuilder, path: &Path) -> io::Result<Lock> {
    let mut tries = TRIES;
    loop {
        let made = private.create(path).and_then(|()| Lock::try_directory(path));
        match made {
            Ok(Some(lock)) if lock.is_at(path) => return Ok(lock),
            Err(error) if !matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::AlreadyExists) => {
                return Err(error);
            }
            Ok(_) | Err(_) if tries == 0 => return Err(io::ErrorKind::WouldBlock.into()),
            Ok(_) | Err(_) => {
                tries -= 1;
                std::thread::sleep(RETRY_INTERVAL);
            }
        }
    }
}

impl Drop for PrivateDir {
    fn drop(&mut self) {
        // A removal takes the lock itself. What cannot be removed now is left to the sweep.
        drop(self.lock.take());
        let _ = remove_whole(&self.path);
    }
}

/// Removes what no process holds.
pub(crate) fn sweep_private_dirs(directory: &Path) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let is_ours = entry.file_name().to_str().is_some_and(|name| SandboxId::parse(name).is_some());
        if is_ours && let Ok(Some(lock)) = Lock::try_directory(&entry.path()) {
            drop(lock);
            let _ = remove_whole(&entry.path());
        }
    }
    sweep_removed(directory);
}

/// Removes what killed trials of ours have left among the temporary files.
pub(super) fn sweep_trials(directory: &Path) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let id = name.to_str().and_then(|name| name.strip_prefix(TRIAL));
        let is_ours = id.is_some_and(|id| SandboxId::parse(id).is_some())
            && entry.metadata().is_ok_and(|found| found.is_dir() && found.uid() == geteuid().as_raw());
        if is_ours && let Ok(Some(lock)) = Lock::try_directory(&entry.path()) {
            drop(lock);
            let _ = remove_whole(&entry.path());
        }
    }
}

const TRIES: u32 = 20;
/// As long as a sweep takes to remove an empty directory.
const RETRY_INTERVAL: Duration = Duration::from_millis(2);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sweep_of_another_process_takes_nothing_that_is_being_made() {
        let folder = tempfile::tempdir().expect("a folder");
        let is_over = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                    sweep_private_dirs(folder.path());
                }
            });
            for _ in 0..300 {
                let path = place(folder.path(), belljar_state::new_id().expect("an id"));
                let made = PrivateDir::make(&path, &[("home/.rc".into(), b"x".to_vec())]);
                let is_there = made.as_ref().is_ok_and(|_| path.join("home/.rc").exists());
                if !is_there {
                    is_over.store(true, std::sync::atomic::Ordering::Relaxed);
                }
                assert!(is_there, "{:?}", made.err());
            }
            is_over.store(true, std::sync::atomic::Ordering::Relaxed);
        });
    }

    #[test]
    fn a_sweep_takes_only_what_no_process_holds() {
        let folder = tempfile::tempdir().expect("a folder");
        let [held, left] = [(); 2].map(|()| place(folder.path(), belljar_state::new_id().expect("an id")));
        let living = PrivateDir::make(&held, &[("home/.rc".into(), b"x".to_vec())]).expect("made");
        fs::create_dir_all(left.join(HOME)).expect("made");
        let other = folder.path().join("not-ours");
        fs::create_dir(&other).expect("made");
        sweep_private_dirs(folder.path());
        assert!(held.join("home/.rc").exists() && other.exists() && !left.exists());
        drop(living);
        let left: Vec<_> =
            fs::read_dir(folder.path()).expect("a folder").flatten().map(|entry| entry.file_name()).collect();
        assert_eq!(left, ["not-ours"]);
    }
}
