//! One sandbox at a time makes mount points.

use super::no_place;
use crate::Plan;
use crate::layout::Layout;
use belljar_spec::{ErrorCode, SandboxError};
use belljar_state::{Lock, create_private, lock_holder};
use std::fs;
use std::path::Path;
use std::time::Duration;

/// The right to make mount points, of one sandbox at a time.
#[derive(Debug)]
pub(crate) struct Turn {
    _directory: Option<Lock>,
}

impl Turn {
    /// Waits for other processes that are making mount points, which takes a moment, and no longer than a sandbox may take
    /// to be ready. The kernel ends the turn of a process that is killed.
    pub(crate) fn take(plan: &Plan, layout: &Layout) -> Result<Turn, SandboxError> {
        let is_needed = layout.missing.iter().any(|missing| !missing.shields.is_empty());
        match plan.mountpoints().filter(|_| is_needed) {
            Some(directory) => Turn::take_in(directory, plan.limits.ready.value),
            None => Ok(Turn { _directory: None }),
        }
    }

    fn take_in(directory: &Path, timeout: Duration) -> Result<Turn, SandboxError> {
        if create_private(directory).is_err() {
            // Then there are no notes, and no sandbox can make mount points.
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
    let (process, hint) = match lock_holder(directory).ok().flatten() {
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
}
