//! A mark that a process cannot shed, and passes on to all that it starts: hard limits that have no effect where they are
//! needed. A hard limit can be lowered and never raised again, and one of them makes the same sum with each of the others:
//! a process that lowers it would have to raise the others to turn the mark into another one. Some programs lower one of
//! the others for reasons of their own (`ulimit -c 0`); as long as one sum is right, so is the mark.
//!
//! For kernels without PR_SET_CHILD_SUBREAPER (gVisor), where an orphan becomes process 1's, and its origin is lost. No
//! kernel has enforced the limit of resident memory since 2.4 (getrlimit(2)), gVisor writes no core files, and no file is
//! that long.

use crate::caps::check;
use rustix::io::Errno;
use rustix::process::{Pid, Resource, Rlimit, child_subreaper, setrlimit};

/// Whether orphans stay below a subreaper, so that no mark is needed.
pub fn orphans_stay() -> bool {
    child_subreaper().is_ok()
}

/// What a process bears.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mark {
    /// It has no limits that could be one.
    Absent,
    Of(u64),
    /// It had one.
    Tampered,
}

/// Marks the calling process. Only system calls: may run between fork and exec.
pub(crate) fn put_on_us(mark: u64) -> Result<(), Errno> {
    // Until the last limit is set there is no mark: no reader sees half of one.
    setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(SUM - mark) })?;
    setrlimit(Resource::Fsize, Rlimit { current: Some(SUM - mark), maximum: Some(SUM - mark) })?;
    setrlimit(Resource::Rss, Rlimit { current: Some(mark), maximum: Some(mark) })
}

/// The mark of a process of our user.
pub fn of(process: Pid) -> Result<Mark, Errno> {
    let pid = process.as_raw_nonzero().get();
    let hard_limit = |resource| {
        // SAFETY: all-zero is a valid `rlimit`.
        let mut limit: libc::rlimit = unsafe { std::mem::zeroed() };
        // SAFETY: nothing is set, and `limit` is live.
        let done = unsafe { libc::prlimit(pid, resource, std::ptr::null(), &raw mut limit) };
        check(done.into()).map(|_| limit.rlim_max)
    };
    let mark = hard_limit(libc::RLIMIT_RSS)?;
    if mark == libc::RLIM_INFINITY {
        return Ok(Mark::Absent);
    }
    for other in [libc::RLIMIT_CORE, libc::RLIMIT_FSIZE] {
        if mark.checked_add(hard_limit(other)?) == Some(SUM) {
            return Ok(Mark::Of(mark));
        }
    }
    Ok(Mark::Tampered)
}

/// The first of all marks: more than any machine has of memory, so no program asks for such a limit.
pub const FIRST: u64 = 1 << 60;
/// What the first limit of a mark makes with each of the others.
const SUM: u64 = 1 << 62;
