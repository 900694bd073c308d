//! Programs that must not outlive who started them.

use crate::caps::prctl;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Command, id};

/// Has the kernel kill the program when the thread that started it has ended, however it ended (prctl(2),
/// PR_SET_PDEATHSIG): whoever starts it waits for it, on the same thread. Costs a fork where there would have been none.
pub fn kill_with_thread(command: &mut Command) -> &mut Command {
    let parent = id();
    let promise = move || {
        prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL as u64, 0)?;
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
