//! A process that stands by until this one is dead, and then becomes a program that cleans up after it.
//!
//! It borrows our memory, which stays as long as it lives: nothing is copied and nothing is loaded for a case that is rare.

use crate::caps::check;
use crate::clone3;
use crate::launch::{BlockedSignals, MAX_INHERITED, STACK, pointers, reset_signals};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd};
use rustix::fs::{Mode, OFlags};
use rustix::io::{Errno, FdFlags, fcntl_dupfd_cloexec, fcntl_setfd, read};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Signal, WaitId, WaitIdOptions, pidfd_send_signal, setsid, waitid};
use std::ffi::{CStr, CString};

/// Such a process. Dropped, it is gone, and nothing was executed.
pub struct StandBy {
    pidfd: OwnedFd,
    /// It sees this one close, whatever becomes of us.
    pipe: Option<OwnedFd>,
    _order: Box<Order>,
    _stack: Vec<u128>,
}

/// What it borrows. Descriptors are numbers: they mean its own copies, whatever becomes of ours.
struct Order {
    argv: Vec<*const libc::c_char>,
    env: [*const libc::c_char; 1],
    _words: Vec<CString>,
    /// What the program gets, from 3 on; then our pipe, the process to wait for, the program.
    descriptors: Vec<i32>,
}

// SAFETY: the pointers lead to the words beside them, which nothing changes.
unsafe impl Send for Order {}
// SAFETY: as above.
unsafe impl Sync for Order {}

/// Starts one. When this process is dead, and then `after` as well, it becomes `program` with these words, no environment,
/// and the descriptors `inherit` from 3 on.
pub fn stand_by(
    program: BorrowedFd<'_>,
    words: Vec<CString>,
    inherit: &[BorrowedFd<'_>],
    after: BorrowedFd<'_>,
) -> Result<StandBy, Errno> {
    if inherit.len() + WAITED_WITH > MAX_INHERITED {
        return Err(Errno::TOOBIG);
    }
    let (theirs, pipe) = pipe_with(PipeFlags::CLOEXEC)?;
    let descriptors =
        inherit.iter().chain(&[theirs.as_fd(), after, program]).map(AsRawFd::as_raw_fd).collect();
    let argv = pointers(&words.iter().map(CString::as_c_str).collect::<Vec<&CStr>>());
    let order = Box::new(Order { argv, env: [std::ptr::null()], _words: words, descriptors });
    let mut stack = vec![0u128; STACK / size_of::<u128>()];
    let mut pidfd: libc::c_int = -1;
    let args = clone3::Args::new(0, &mut pidfd);
    let signals = BlockedSignals::all();
    clone3::start_borrowing(args, &mut stack, &*order, wait_and_execute)?;
    drop(signals);
    // SAFETY: on success the kernel stored a new descriptor in `pidfd`.
    let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd) };
    let started = StandBy { pidfd, pipe: Some(pipe), _order: order, _stack: stack };
    Ok(started)
}

impl StandBy {
    /// Has it do its work although this process lives, as soon as the other one is dead. The caller does not wait for that.
    pub fn let_go(mut self) {
        // It takes us for dead.
        self.pipe = None;
        // It borrows our memory for as long as it lives. Where no thread can be started, it is dropped, and its work is not done.
        let _ = std::thread::Builder::new().spawn(move || self.wait());
    }

    fn wait(&self) {
        while let Err(Errno::INTR) = waitid(WaitId::PidFd(self.pidfd.as_fd()), WaitIdOptions::EXITED) {}
    }
}

impl Drop for StandBy {
    fn drop(&mut self) {
        // What it borrows is freed behind this.
        let _ = pidfd_send_signal(&self.pidfd, Signal::KILL);
        self.wait();
    }
}

/// The process: system calls only, and none of the C library's that could fail on the way.
fn wait_and_execute(order: &Order) -> ! {
    if arrange(order).is_ok() {
        let first_waited_with = 3 + (order.descriptors.len() - WAITED_WITH) as i32;
        // SAFETY: `arrange` put descriptors at these numbers, and nothing closes them.
        let [host, after, program] =
            [0, 1, 2].map(|place| unsafe { BorrowedFd::borrow_raw(first_waited_with + place) });
        while matches!(read(host, &mut [0; 1]), Ok(1) | Err(Errno::INTR)) {}
        while let Err(Errno::INTR) = poll(&mut [PollFd::new(&after, PollFlags::IN)], None) {}
        reset_signals(u64::MAX);
        // SAFETY: the descriptor is open; argv and env are NULL-terminated arrays of NUL-terminated strings.
        unsafe {
            libc::syscall(
                libc::SYS_execveat,
                program.as_raw_fd(),
                c"".as_ptr(),
                order.argv.as_ptr(),
                order.env.as_ptr(),
                libc::AT_EMPTY_PATH,
            )
        };
    }
    // SAFETY: ends this process without running anything of the parent's.
    unsafe { libc::_exit(127) }
}

/// Keeps what the order names, from 3 on, and nothing else: a copy of anything that others wait to see closed would keep
/// them waiting.
fn arrange(order: &Order) -> Result<(), Errno> {
    let above = 3 + order.descriptors.len() as i32;
    let mut moved = [-1; MAX_INHERITED];
    for (slot, number) in moved.iter_mut().zip(&order.descriptors) {
        // SAFETY: the number is that of an open descriptor of this process.
        let source = unsafe { BorrowedFd::borrow_raw(*number) };
        *slot = fcntl_dupfd_cloexec(source, above)?.into_raw_fd();
    }
    // It may sit on a number that is about to mean something else, and must not be closed as that.
    let opened = rustix::fs::open(c"/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?.into_raw_fd();
    // SAFETY: it was opened just now.
    let null = fcntl_dupfd_cloexec(unsafe { BorrowedFd::borrow_raw(opened) }, above)?.into_raw_fd();
    let moves = [null; 3].into_iter().chain(moved.into_iter().take(order.descriptors.len()));
    for (target, source) in moves.enumerate() {
        // SAFETY: only numbers go in; what this process, a copy, had at the target is closed.
        check(unsafe { libc::dup2(source, target as i32) }.into())?;
    }
    // SAFETY: closes numbers of this process only.
    check(unsafe { libc::syscall(libc::SYS_close_range, above, u32::MAX, 0) })?;
    for number in above - WAITED_WITH as i32..above {
        // SAFETY: put there just now.
        fcntl_setfd(unsafe { BorrowedFd::borrow_raw(number) }, FdFlags::CLOEXEC)?;
    }
    // A session of its own: ctrl-C in our terminal is not for it.
    setsid().map(drop)
}

/// Our pipe, the process to wait for, the program.
const WAITED_WITH: usize = 3;
