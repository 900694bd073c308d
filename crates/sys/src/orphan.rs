//! Programs that must not outlive the process or thread that started them. Every program that belljar starts and waits for is started so.

use crate::caps::prctl;
use rustix::process::getpid;
use std::io::{self, PipeWriter, pipe};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, id};

/// What a program gets when the process or thread that started it is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Farewell {
    /// Asked to end: it removes its locks and unfinished files.
    Terminate,
    /// Killed: for what computes long and has nothing to put in order.
    Kill,
}

impl Farewell {
    fn signal(self) -> libc::c_int {
        match self {
            Farewell::Terminate => libc::SIGTERM,
            Farewell::Kill => libc::SIGKILL,
        }
    }
}

/// Our end of a pipe: when it is closed, and so when this process ends, the kernel signals the group at the other end.
#[derive(Debug)]
pub struct Lifeline {
    _writer: PipeWriter,
}

/// Has the kernel signal the program's whole process group when the [`Lifeline`] is closed, however this process ends: unlike the
/// signal of [`end_with_thread`], it also reaches programs that the program has started and that stayed in its group. The program
/// has to lead a group of its own (`process_group(0)`).
///
/// The program and all that it starts inherit the pipe's reading end, whose owner is the group: the kernel signals the owner when
/// the last writing end is closed (fcntl(2), `F_SETOWN`, `F_SETSIG` and `O_ASYNC`; `pipe_release`, fs/pipe.c). No process watches,
/// so that none can be killed first, and the kernel holds the group itself, not its number.
pub fn end_group_with_us(command: &mut Command, farewell: Farewell) -> io::Result<Lifeline> {
    let (reader, writer) = pipe()?;
    let signal = farewell.signal();
    let hold = move || {
        // An ignored signal stays ignored over exec, and so would be the farewell (a shell's `trap '' TERM`).
        // SAFETY: sets the default action; no handler, and no memory of ours, is involved.
        if unsafe { libc::signal(signal, libc::SIG_DFL) } == libc::SIG_ERR && signal != libc::SIGKILL {
            return Err(io::Error::last_os_error());
        }
        let reader = reader.as_raw_fd();
        let group = getpid().as_raw_nonzero().get();
        fcntl(reader, libc::F_SETOWN, -group)?;
        fcntl(reader, F_SETSIG, signal)?;
        let flags = fcntl(reader, libc::F_GETFL, 0)?;
        fcntl(reader, libc::F_SETFL, flags | libc::O_ASYNC)?;
        // Not closed by exec: the kernel forgets the owner with the last copy of it.
        fcntl(reader, libc::F_SETFD, 0)?;
        Ok(())
    };
    // SAFETY: between fork and exec some system calls are made, and nothing is allocated.
    unsafe { command.pre_exec(hold) };
    Ok(Lifeline { _writer: writer })
}

fn fcntl(file: RawFd, operation: libc::c_int, argument: libc::c_int) -> io::Result<libc::c_int> {
    // SAFETY: none of the operations used here takes a pointer, and a descriptor that is not open is an error.
    match unsafe { libc::fcntl(file, operation, argument) } {
        -1 => Err(io::Error::last_os_error()),
        value => Ok(value),
    }
}

/// asm-generic/fcntl.h.
const F_SETSIG: libc::c_int = 10;

/// Has the kernel end the program when the thread that started it has ended, however it ended (prctl(2), PR_SET_PDEATHSIG):
/// the caller waits for it, on the same thread. Costs a fork where there would have been none.
pub fn end_with_thread(command: &mut Command, farewell: Farewell) -> &mut Command {
    let parent = id();
    let signal = farewell.signal();
    let promise = move || {
        prctl(libc::PR_SET_PDEATHSIG, signal as u64, 0)?;
        // A parent that ended before that sends no signal.
        // SAFETY: getppid takes nothing and cannot fail.
        match unsafe { libc::getppid() }.cast_unsigned() == parent {
            true => Ok(()),
            false => Err(io::ErrorKind::BrokenPipe.into()),
        }
    };
    // SAFETY: between fork and exec two system calls are made, and nothing is allocated.
    unsafe { command.pre_exec(promise) }
}
