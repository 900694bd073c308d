//! A mark that a process cannot shed, and passes on to all that it starts: the hard limit on resident memory, which no kernel
//! has held since 2.4 (getrlimit(2)). It can be lowered and never raised again, so whoever tampers with it can be told as well.
//!
//! For kernels without PR_SET_CHILD_SUBREAPER, where an orphan becomes process 1's and nobody knows whose it was.

use crate::caps::check;
use rustix::io::Errno;
use rustix::process::{Pid, Resource, Rlimit, child_subreaper, setrlimit};

/// Whether orphans stay below whoever asked for them, so that no mark is needed.
pub fn orphans_stay() -> bool {
    child_subreaper().is_ok()
}

/// Marks the calling process. Only a system call: may run between fork and exec.
pub(crate) fn put_on_us(mark: u64) -> Result<(), Errno> {
    setrlimit(Resource::Rss, Rlimit { current: Some(mark), maximum: Some(mark) })
}

/// The mark of a process of our user.
pub fn of(process: Pid) -> Result<u64, Errno> {
    // SAFETY: all-zero is a valid `rlimit`.
    let mut limit: libc::rlimit = unsafe { std::mem::zeroed() };
    let pid = process.as_raw_nonzero().get();
    // SAFETY: nothing is set, and `limit` is live.
    let done = unsafe { libc::prlimit(pid, libc::RLIMIT_RSS, std::ptr::null(), &raw mut limit) };
    check(done.into())?;
    Ok(limit.rlim_max)
}
