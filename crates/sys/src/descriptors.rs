//! A table of descriptors that a child shares with its parent at first.

use crate::caps::check;
use rustix::io::Errno;

/// Gives this process a table of its own, with these descriptors and the numbers that they have in the shared one. Of all
/// others at most a few are in it. Nothing was changed in the shared one; where this fails, it still is the shared one.
///
/// What is left out costs nothing, and that is the widest gap between two that are kept: a process with thousands of files
/// has them there, since the kernel gives the lowest free number, and new ones are above.
pub(crate) fn part(kept: &mut [i32]) -> Result<(), Errno> {
    kept.sort_unstable();
    let mut widest = (kept.last().map_or(0, |last| last + 1), i32::MAX);
    let mut width = 0;
    let mut from = 0;
    for number in kept.iter().copied() {
        if number - from > width {
            (widest, width) = ((from, number - 1), number - from);
        }
        from = number + 1;
    }
    // SAFETY: numbers only; the table that they are closed in is a new one, of this process alone.
    check(unsafe { libc::syscall(libc::SYS_close_range, widest.0, widest.1, libc::CLOSE_RANGE_UNSHARE) })
}
