//! Lets a later process find the git that unpacks, after we were killed.
//!
//! That git ends by itself when its relay is gone, but not at once; until then it writes, and makes its directory again if that was
//! removed.

use super::{Quarantine, QuarantineError};
use belljar_sys::rustix::event::{PollFd, PollFlags, Timespec, poll};
use belljar_sys::rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::fs;
use std::path::Path;

impl Quarantine {
    /// Records the unpacking process, before it gets any input.
    pub(super) fn note_indexer(&self, process: u32) -> Result<(), QuarantineError> {
        let path = self.directory.join(FILE);
        let began = began(process).unwrap_or_default();
        fs::write(&path, format!("{process} {began}\n")).map_err(QuarantineError::file("write", &path))
    }
}

/// Kills the process that unpacks into this directory, if it still runs.
pub(super) fn end(quarantine: &Path) -> Option<()> {
    let text = fs::read_to_string(quarantine.join(FILE)).ok()?;
    let (process, noted) = text.trim_end().split_once(' ')?;
    let process: u32 = process.parse().ok()?;
    let handle = pidfd_open(Pid::from_raw(process.cast_signed())?, PidfdFlags::empty()).ok()?;
    // The process id may have been reused; the start time tells, and the pidfd stays with the process that has it now.
    if began(process)? != noted {
        return None;
    }
    pidfd_send_signal(&handle, Signal::KILL).ok()?;
    let mut files = [PollFd::new(&handle, PollFlags::IN)];
    poll(&mut files, Some(&Timespec { tv_sec: 1, tv_nsec: 0 })).ok()?;
    Some(())
}

/// When a process began, as the kernel counts it (proc_pid_stat(5), field 22). The name in field 2 may contain any character.
fn began(process: u32) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    let (_, behind_name) = stat.rsplit_once(')')?;
    behind_name.split_whitespace().nth(19).map(str::to_string)
}

/// The file name in the quarantine's directory.
const FILE: &str = "indexer";
