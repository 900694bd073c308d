//! Removes our directories: for other processes at once, and from the disk as soon as possible.

use crate::Lock;
use belljar_sys::remove_tree::{remove, remove_until};
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Removes one of our directories: its name disappears for other processes at once, and the files are removed under another name.
/// [`sweep_removed`] continues after a kill, or if a sandbox made so many files that removing takes longer than [`REMOVAL_TIME`].
pub fn remove_whole(directory: &Path) -> io::Result<()> {
    remove_alone(&set_aside(directory)?, Instant::now() + REMOVAL_TIME)
}

/// Removes a directory from [`set_aside`], without a time limit.
pub fn remove_set_aside(gone: &Path) -> io::Result<()> {
    alone(gone, || remove(gone))
}

fn remove_alone(gone: &Path, deadline: Instant) -> io::Result<()> {
    match alone(gone, || remove_until(gone, deadline)) {
        Err(error) if error.kind() == ErrorKind::TimedOut => Ok(()),
        removed => removed,
    }
}

/// Removes it, unless another process is doing so: two of them would disturb each other.
fn alone(gone: &Path, remove: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
    match Lock::try_directory(gone) {
        Ok(None) => Ok(()),
        Ok(Some(_alone)) => remove(),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        // The removal makes an unreadable directory readable, if it is ours.
        Err(_) => remove(),
    }
}

/// Renames a directory, and returns the name that it has until it is removed. From here on other processes do not see it;
/// [`sweep_removed`] removes what is not removed now.
pub fn set_aside(directory: &Path) -> io::Result<PathBuf> {
    let name = directory.file_name().unwrap_or_default().to_string_lossy();
    let mut number = 0;
    loop {
        let gone = directory.with_file_name(format!("{GONE}{}-{number}-{name}", std::process::id()));
        match fs::rename(directory, &gone) {
            // The last one of this name could not be removed completely yet.
            Err(error) if matches!(error.kind(), ErrorKind::DirectoryNotEmpty | ErrorKind::AlreadyExists) => {
                number += 1;
            }
            renamed => return renamed.map(|()| gone),
        }
    }
}

/// Continues with the leftovers of [`remove_whole`] in a directory, for at most [`SWEEP_TIME`]: a start waits for it.
pub fn sweep_removed(parent: &Path) {
    let deadline = Instant::now() + SWEEP_TIME;
    let entries = fs::read_dir(parent).into_iter().flatten().flatten();
    for entry in entries.filter(|entry| entry.file_name().as_encoded_bytes().starts_with(GONE.as_bytes())) {
        // Then it stays for the next sweep, and does no harm.
        let _ = remove_alone(&entry.path(), deadline);
    }
}

const GONE: &str = ".gone-";
/// Several times what the largest honest work tree takes.
const REMOVAL_TIME: Duration = Duration::from_secs(10);
const SWEEP_TIME: Duration = Duration::from_millis(500);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_killed_removal_left_is_swept_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for name in ["removed/below", "kept/below", ".gone-1-killed/below"] {
            fs::create_dir_all(at(name)).unwrap();
        }
        remove_whole(&at("removed")).unwrap();
        assert!(!at("removed").exists() && remove_whole(&at("removed")).is_err());
        sweep_removed(folder.path());
        let left: Vec<_> =
            fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left, ["kept"]);
    }

    #[test]
    fn a_removal_that_runs_out_of_time_is_continued_by_the_next() {
        let folder = tempfile::tempdir().unwrap();
        let gone = folder.path().join(".gone-1-0-deep");
        for number in 0..3 {
            fs::create_dir_all(gone.join(number.to_string()).join("d/".repeat(20))).unwrap();
        }
        // Each makes some progress, even with little time.
        for _ in 0..1000 {
            remove_alone(&gone, Instant::now()).unwrap();
        }
        assert!(!gone.exists());
    }

    /// A start sweeps what `discard` is still removing.
    #[test]
    fn sweeps_beside_a_removal_change_nothing() {
        let folder = tempfile::tempdir().unwrap();
        for _ in 0..2 {
            let directory = folder.path().join("deep");
            fs::create_dir_all(directory.join("d/".repeat(150))).unwrap();
            std::thread::scope(|scope| {
                let removal = scope.spawn(|| remove_set_aside(&set_aside(&directory)?));
                while !removal.is_finished() {
                    sweep_removed(folder.path());
                }
                removal.join().unwrap().unwrap();
            });
            assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
        }
    }

    #[test]
    fn a_name_that_is_used_again_can_be_set_aside_again() {
        let folder = tempfile::tempdir().unwrap();
        let directory = folder.path().join("one");
        let mut aside = Vec::new();
        for _ in 0..3 {
            fs::create_dir_all(directory.join("below")).unwrap();
            aside.push(set_aside(&directory).unwrap());
        }
        assert!(aside.iter().all(|gone| gone.join("below").exists()));
        assert!(!directory.exists());
        sweep_removed(folder.path());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
