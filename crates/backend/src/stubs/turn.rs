//! One sandbox at a time makes stubs.

use super::no_place;
use crate::Plan;
use crate::layout::Layout;
use belljar_spec::{ErrorCode, SandboxError};
use belljar_state::{Lock, create_private};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

/// The right to make stubs, of one sandbox at a time.
#[derive(Debug)]
pub(crate) struct Turn {
    _directory: Option<Lock>,
}

impl Turn {
    /// Waits for other processes that are making stubs, which takes a moment, and no longer than a sandbox may take to be ready. The
    /// kernel ends the turn of a process that is killed.
    pub(crate) fn take(plan: &Plan, layout: &Layout) -> Result<Turn, SandboxError> {
        let is_needed = layout.missing.iter().any(|missing| !missing.shields.is_empty());
        match plan.stubs().filter(|_| is_needed) {
            Some(directory) => Turn::take_in(directory, plan.limits.ready.value),
            None => Ok(Turn { _directory: None }),
        }
    }

    fn take_in(directory: &Path, timeout: Duration) -> Result<Turn, SandboxError> {
        if create_private(directory).is_err() {
            // Then there are no notes, and nobody can make stubs.
            return Ok(Turn { _directory: None });
        }
        match Lock::wait_directory_within(directory, timeout) {
            Ok(Some(lock)) => Ok(Turn { _directory: Some(lock) }),
            Ok(None) => Err(held(directory, timeout)),
            Err(error) => Err(no_place(&error.to_string())),
        }
    }
}

fn held(directory: &Path, timeout: Duration) -> SandboxError {
    let holder = fs::metadata(directory)
        .ok()
        .and_then(|found| holder(&fs::read_to_string("/proc/locks").ok()?, found.ino()));
    let (process, hint) = match holder {
        Some(id) => {
            let name = fs::read_to_string(format!("/proc/{id}/comm")).unwrap_or_default();
            let process = format!("process {id} (`{}`)", name.trim_end().escape_debug());
            (process, format!("see what process {id} does, and end it if it hangs: `kill {id}`"))
        }
        None => ("another process".to_string(), "try again".to_string()),
    };
    let message = format!(
        "{process} has held the lock of `{}` for {} seconds, and only one sandbox at a time can prepare protected paths",
        directory.display(),
        timeout.as_secs(),
    );
    ErrorCode::InUse.error(message).hint(hint)
}

/// The process that holds a lock of flock(2) on this inode, of lines `1: FLOCK  ADVISORY  WRITE 4711 fe:01:1234 0 EOF`
/// (proc_locks(5)). One in another process namespace is 0, or less.
fn holder(locks: &str, inode: u64) -> Option<u32> {
    let of_line = |line: &str| {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        match words[..] {
            [_, "FLOCK", _, _, process, file, ..] if file.rsplit(':').next()?.parse() == Ok(inode) => {
                process.parse().ok().filter(|id| *id > 0)
            }
            _ => None,
        }
    };
    locks.lines().find_map(of_line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_that_another_process_never_ends_is_told_with_that_process() {
        let place = tempfile::tempdir().unwrap();
        let _first = Turn::take_in(place.path(), Duration::ZERO).unwrap();
        let refused = Turn::take_in(place.path(), Duration::ZERO).unwrap_err();
        assert_eq!(refused.code, ErrorCode::InUse);
        assert!(refused.message.starts_with(&format!("process {} (`", std::process::id())), "{refused}");
    }

    #[test]
    fn a_holder_is_found_among_all_locks() {
        let locks = "1: POSIX  ADVISORY  WRITE 7 fe:01:42 0 EOF\n1: -> FLOCK  ADVISORY  WRITE 8 fe:01:42 0 EOF\n\
                     2: FLOCK  ADVISORY  WRITE 9 fe:01:142 0 EOF\n3: FLOCK  ADVISORY  WRITE 10 fe:01:42 0 EOF\n";
        assert_eq!(holder(locks, 42), Some(10));
        assert_eq!(holder(locks, 1), None);
        assert_eq!(holder("1: FLOCK  ADVISORY  WRITE 0 fe:01:42 0 EOF\n", 42), None);
    }
}
