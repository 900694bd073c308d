//! Programs that must not outlive who started them. Every program that belljar starts and waits for is started so.

use crate::caps::prctl;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Command, id};

/// What a program gets when who started it is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Farewell {
    /// Asked to end: it takes its locks and unfinished files away.
    Terminate,
    /// Killed: for what computes long and has nothing to put in order.
    Kill,
}

/// Has the kernel end the program when the thread that started it has ended, however it ended (prctl(2),
/// PR_SET_PDEATHSIG): whoever starts it waits for it, on the same thread. Costs a fork where there would have been none.
pub fn end_with_thread(command: &mut Command, farewell: Farewell) -> &mut Command {
    let parent = id();
    let signal = match farewell {
        Farewell::Terminate => libc::SIGTERM,
        Farewell::Kill => libc::SIGKILL,
    };
    let promise = move || {
        prctl(libc::PR_SET_PDEATHSIG, signal as u64, 0)?;
        // Who ended before that sends no signal.
        // SAFETY: getppid takes nothing and cannot fail.
        match unsafe { libc::getppid() }.cast_unsigned() == parent {
            true => Ok(()),
            false => Err(io::ErrorKind::BrokenPipe.into()),
        }
    };
    // SAFETY: between fork and exec two system calls are made, and nothing is allocated.
    unsafe { command.pre_exec(promise) }
}
