//! Descriptors that a program was given by the one that started it: open from number 3 on, and owned by nothing in the program yet.

use std::os::fd::{FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

/// The right to own what was inherited. There is one in a process, so that no descriptor gets two owners.
#[derive(Debug)]
pub struct Inherited(());

static IS_TAKEN: AtomicBool = AtomicBool::new(false);

impl Inherited {
    /// To be taken at the beginning of a program, before it opens anything.
    ///
    /// # Panics
    ///
    /// Where it was taken before.
    pub fn take() -> Inherited {
        assert!(!IS_TAKEN.swap(true, Ordering::AcqRel), "inherited descriptors were taken before");
        Inherited(())
    }

    /// The first `count` of them, or as many as there are. They are not for programs that this one starts.
    pub fn first(self, count: usize) -> Vec<OwnedFd> {
        // SAFETY: numbers only.
        unsafe { libc::syscall(libc::SYS_close_range, 3, u32::MAX, libc::CLOSE_RANGE_CLOEXEC) };
        let is_open = |number: &i32| {
            // SAFETY: a number that is not open is an error, and nothing else.
            unsafe { libc::fcntl(*number, libc::F_GETFD) != -1 }
        };
        // SAFETY: they are open, and owned by this value alone: there is no second one, and nothing was opened before it was taken.
        (3..).take(count).filter(is_open).map(|number| unsafe { OwnedFd::from_raw_fd(number) }).collect()
    }

    /// The same, and all others are closed: for a program that runs long after the one that started it.
    pub fn only(self, count: usize) -> Vec<OwnedFd> {
        let above = u32::try_from(count).unwrap_or(u32::MAX - 3) + 3;
        // SAFETY: what is closed is owned by this value alone, as above.
        unsafe { libc::syscall(libc::SYS_close_range, above, u32::MAX, 0) };
        self.first(count)
    }
}
