//! A cgroup's directory, and the lock that says a process holds it.

use belljar_spec::{ErrorCode, SandboxError, SandboxId};
use belljar_state::Lock;
use belljar_sys::rustix::process::{Pid, Signal, kill_process};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

/// Removed when dropped, so that a cgroup that could not be finished leaves nothing.
pub(super) struct Directory {
    path: PathBuf,
    pub(super) lock: Lock,
}

impl Directory {
    /// Makes and locks a directory in `home`. `None` where we may not.
    pub(super) fn create(home: &Path, id: SandboxId) -> Result<Option<Directory>, SandboxError> {
        let path = home.join(format!("{PREFIX}{id}"));
        let failed = |error: io::Error| {
            ErrorCode::StartFailed
                .error(format!("cannot make the cgroup `{}`: {error}", path.display()))
                .caused_by(error)
        };
        for _ in 0..ATTEMPTS {
            match fs::create_dir(&path) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) if is_refusal(&error) => return Ok(None),
                Err(error) => return Err(failed(error)),
            }
            // A sweep may take a directory that is not locked yet: then it is made again.
            match Lock::try_directory(&path) {
                Ok(Some(lock)) => return Ok(Some(Directory { path, lock })),
                Ok(None) => thread::sleep(Duration::from_millis(1)),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    thread::sleep(Duration::from_millis(1));
                }
                Err(error) => {
                    let _ = fs::remove_dir(&path);
                    return Err(failed(error));
                }
            }
        }
        Err(failed(io::ErrorKind::AlreadyExists.into()))
    }

    pub(super) fn write(&self, file: &str, value: &str) -> Result<(), SandboxError> {
        fs::write(self.path.join(file), value).map_err(|error| self.failed(file, &error))
    }

    /// A file of it, for writing.
    pub(super) fn open(&self, file: &str) -> Result<File, SandboxError> {
        File::options().write(true).open(self.path.join(file)).map_err(|error| self.failed(file, &error))
    }

    fn failed(&self, file: &str, error: &io::Error) -> SandboxError {
        let place = self.path.join(file);
        if matches!(error.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::ResourceBusy) {
            let message = format!("the kernel does not take this value for `{}`: {error}", place.display());
            return ErrorCode::LimitUnavailable
                .error(message)
                .hint("ask for less, or omit the limit: a cgroup around this one may allow no more");
        }
        let message = format!("cannot write to `{}`: {error}", place.display());
        ErrorCode::LimitUnavailable.error(message).hint(super::delegation_hint())
    }

    pub(super) fn has(&self, file: &str) -> bool {
        self.path.join(file).exists()
    }

    /// The number behind `key` in a file of lines `key number`.
    pub(super) fn read_count(&self, file: &str, key: &str) -> Option<u64> {
        let text = fs::read_to_string(self.path.join(file)).ok()?;
        let line = text.lines().find(|line| line.split(' ').next() == Some(key))?;
        line.split(' ').nth(1)?.trim().parse().ok()
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        remove(&self.path);
    }
}

/// Removes what no process holds in `home`; returns how many.
pub(super) fn sweep(home: &Path) -> usize {
    let entries = fs::read_dir(home).into_iter().flatten().flatten();
    let ours = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(PREFIX));
    ours.filter(
        |entry| matches!(Lock::try_directory(&entry.path()), Ok(Some(_lock)) if remove(&entry.path())),
    )
    .count()
}

/// Removes a cgroup whose processes are gone or not worth keeping.
fn remove(path: &Path) -> bool {
    for attempt in 0..REMOVAL_ATTEMPTS {
        match fs::remove_dir(path) {
            Ok(()) => return true,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return true,
            Err(_) => {}
        }
        for pid in fs::read_to_string(path.join("cgroup.procs")).unwrap_or_default().lines() {
            if let Some(pid) = pid.parse().ok().and_then(Pid::from_raw) {
                let _ = kill_process(pid, Signal::KILL);
            }
        }
        thread::sleep(Duration::from_micros(100 << attempt.min(6)));
    }
    false
}

fn is_refusal(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::NotFound
    )
}

/// What the directories of sandboxes begin with; what follows is the sandbox's id.
const PREFIX: &str = "belljar-";
/// A millisecond each. Two sandboxes never share an id, but a sweep that comes in between holds the directory until the kernel has
/// removed it, which can take half a second on a busy machine.
const ATTEMPTS: u32 = 2000;
/// Dying takes the kernel up to some milliseconds: half a second in all.
const REMOVAL_ATTEMPTS: u32 = 100;

#[cfg(test)]
mod tests {
    use super::*;
    use belljar_sys::rustix::io::Errno;

    #[test]
    fn a_directory_that_is_no_longer_held_is_removed() {
        let home = tempfile::tempdir().expect("a folder");
        let directory = Directory::create(home.path(), SandboxId::from_random([2; 8])).expect("made");
        assert!(directory.is_some());
        assert_eq!(fs::read_dir(home.path()).expect("ours").count(), 1);
        drop(directory);
        assert_eq!(fs::read_dir(home.path()).expect("ours").count(), 0);
    }

    #[test]
    fn a_value_that_the_kernel_refuses_is_not_a_lack_of_rights() {
        let home = tempfile::tempdir().expect("a folder");
        let directory =
            Directory::create(home.path(), SandboxId::from_random([3; 8])).expect("made").expect("ours");
        let refused = directory.failed("cpu.max", &Errno::INVAL.into());
        assert_eq!(refused.code, ErrorCode::LimitUnavailable);
        let unwritable = directory.failed("cpu.max", &Errno::ACCESS.into());
        assert_eq!(
            (unwritable.code, unwritable.hint),
            (ErrorCode::LimitUnavailable, Some(super::super::delegation_hint()))
        );
    }
}
