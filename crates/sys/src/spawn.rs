//! Starting a command so that its whole tree can be found and killed.
//!
//! Two processes are made: a supervisor, and the command as its child. The supervisor is a child subreaper: a
//! process of the tree that forks twice, starts a session or clears its environment still ends up below it, so
//! "the tree" is what descends from the supervisor. The supervisor does nothing but reap: it writes the
//! command's status into a pipe and exits when no descendant is left.

use crate::caps::{check, last_errno, prctl};
use crate::launch::{BlockedSignals, pointers};
use rustix::fd::{AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::cell::RefCell;
use std::ffi::{CStr, CString};

/// A command, with everything that allocates already done.
pub struct Command<'a> {
    /// Paths to try in order, as a shell does with PATH.
    pub candidates: &'a [CString],
    pub argv: &'a [CString],
    pub env: &'a [CString],
    /// Where it starts.
    pub cwd: BorrowedFd<'a>,
    /// Its descriptors 0, 1 and 2.
    pub stdio: [BorrowedFd<'a>; 3],
    /// Whether 0 becomes its controlling terminal.
    pub terminal: Terminal,
    /// Soft and hard at once; lowered to the hard limit that is there.
    pub limits: &'a [(Resource, u64)],
}

/// Whether a command has a controlling terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Terminal {
    /// Descriptor 0.
    Controlling,
    /// None.
    Absent,
}

/// A command that runs under its supervisor.
pub struct Supervised {
    /// The supervisor's process id; the tree descends from it.
    pub supervisor: i32,
    /// The command's process id, also that of its session and process group.
    pub command: i32,
    /// Gives four bytes, the status of wait(2), when the command ended; an end of file before that means that
    /// the supervisor was killed.
    pub status: OwnedFd,
}

/// Starts a command. The error is that of the exec (or of what comes before it).
pub fn spawn_supervised(command: &Command<'_>) -> Result<Supervised, Errno> {
    let (status, status_inside) = pipe_with(PipeFlags::CLOEXEC)?;
    let (report, report_inside) = pipe_with(PipeFlags::CLOEXEC)?;
    let as_strs = |strings: &[CString]| pointers(&strings.iter().map(CString::as_c_str).collect::<Vec<_>>());
    let prepared = Prepared {
        command,
        argv: &as_strs(command.argv),
        env: &as_strs(command.env),
        status: &status_inside,
        report: &report_inside,
        stack: RefCell::new(vec![0; COMMAND_STACK]),
    };
    let signals = BlockedSignals::all();
    // SAFETY: the child is a copy that only makes system calls until it executes or ends.
    let supervisor = unsafe { libc::fork() };
    if supervisor == 0 {
        supervise(&prepared);
    }
    check(supervisor.into())?;
    drop(signals);
    drop(status_inside);
    drop(report_inside);
    // The command reports before the supervisor, which stands still until the exec: the first word decides.
    match read_report(&report)? {
        Some((COMMAND_STARTED, command)) => Ok(Supervised { supervisor, command, status }),
        Some((_, errno)) => Err(Errno::from_raw_os_error(errno)),
        None => Err(Errno::CHILD),
    }
}

struct Prepared<'a> {
    command: &'a Command<'a>,
    argv: &'a [*const libc::c_char],
    env: &'a [*const libc::c_char],
    status: &'a OwnedFd,
    report: &'a OwnedFd,
    /// For the command until its exec.
    stack: RefCell<Vec<u8>>,
}

/// The supervisor. Every signal that can be blocked is (by the caller of fork).
fn supervise(prepared: &Prepared<'_>) -> ! {
    let _ = prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0);
    let _ = prctl(libc::PR_SET_NAME, c"belljar-exec".as_ptr() as u64, 0);
    let pid = start_command(prepared);
    if pid < 0 {
        write_report(prepared.report, FAILED, last_errno().raw_os_error());
        exit(1);
    }
    write_report(prepared.report, COMMAND_STARTED, pid);
    // Keep nothing but the status pipe: an open end of the command's output would hide its end.
    keep_only(prepared.status);
    loop {
        let mut status = 0;
        // SAFETY: `status` is live.
        let reaped = unsafe { libc::waitpid(-1, &raw mut status, 0) };
        if reaped == pid {
            // SAFETY: descriptor 3 is the status pipe, the buffer is live.
            unsafe { libc::write(KEPT, (&raw const status).cast(), size_of::<i32>()) };
        } else if reaped < 0 && last_errno() == Errno::CHILD {
            exit(0);
        }
    }
}

/// A child that shares our memory and runs while we stand still, as posix_spawn(3) does it: nothing is copied for a
/// process that is about to become another.
fn start_command(prepared: &Prepared<'_>) -> i32 {
    extern "C" fn run(prepared: *mut libc::c_void) -> libc::c_int {
        // SAFETY: `start_command` passes a live `Prepared` and does not go on before this process executed or ended.
        become_command(unsafe { &*prepared.cast::<Prepared<'_>>() })
    }
    let mut stack = prepared.stack.borrow_mut();
    let end = stack.len() - stack.as_ptr().wrapping_add(stack.len()).addr() % 16;
    // SAFETY: the stack is ours alone, large enough for `execute`, aligned to 16 bytes and used downwards from its end;
    // with CLONE_VFORK it stays until the child does not need it any more.
    unsafe {
        let top = stack.as_mut_ptr().add(end);
        let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
        libc::clone(run, top.cast(), flags, std::ptr::from_ref(prepared).cast_mut().cast())
    }
}

/// The command, up to its exec.
fn become_command(prepared: &Prepared<'_>) -> ! {
    let errno = match execute(prepared) {
        Ok(never) => match never {},
        Err(errno) => errno,
    };
    write_report(prepared.report, FAILED, errno.raw_os_error());
    exit(127);
}

fn execute(prepared: &Prepared<'_>) -> Result<std::convert::Infallible, Errno> {
    let Prepared { command, argv, env, .. } = prepared;
    rustix::process::setsid()?;
    for (target, source) in command.stdio.iter().enumerate() {
        // SAFETY: only numbers go in; the guest's own 0, 1 and 2 are /dev/null, so no source is among them.
        check(unsafe { libc::dup2(source.as_raw_fd(), target as i32) }.into())?;
    }
    if command.terminal == Terminal::Controlling {
        // SAFETY: TIOCSCTTY takes an integer.
        check(unsafe { libc::ioctl(0, libc::TIOCSCTTY, 0) }.into())?;
    }
    rustix::process::fchdir(command.cwd)?;
    default_signals();
    for (resource, value) in command.limits {
        let value = getrlimit(*resource).maximum.map_or(*value, |hard| hard.min(*value));
        setrlimit(*resource, Rlimit { current: Some(value), maximum: Some(value) })?;
    }
    prefer_as_oom_victim();
    // A second lock beside CLOEXEC on each of them.
    // SAFETY: numbers only; this process has a table of its own.
    check(unsafe { libc::syscall(libc::SYS_close_range, 3, u32::MAX, libc::CLOSE_RANGE_CLOEXEC) })?;
    let mut refusal = Errno::NOENT;
    for candidate in command.candidates {
        match run(candidate, argv, env) {
            Errno::NOENT | Errno::NOTDIR => {}
            // A file that may not be run hides none further down PATH, but it is what we say in the end.
            Errno::ACCESS => refusal = Errno::ACCESS,
            other => return Err(other),
        }
    }
    Err(refusal)
}

fn run(path: &CStr, argv: &[*const libc::c_char], env: &[*const libc::c_char]) -> Errno {
    // SAFETY: path, argv and env are NUL-terminated strings and NULL-terminated arrays of them.
    unsafe { libc::execve(path.as_ptr(), argv.as_ptr(), env.as_ptr()) };
    last_errno()
}

/// What a program expects to find: nothing ignored, nothing blocked.
fn default_signals() {
    // SAFETY: this process's own dispositions and mask.
    unsafe {
        libc::signal(libc::SIGPIPE, libc::SIG_DFL);
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut());
    }
}

/// When memory runs out, a command goes before the guest does. Where this cannot be said, the kernel guesses.
fn prefer_as_oom_victim() {
    if let Ok(score) =
        rustix::fs::open(c"/proc/self/oom_score_adj", OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())
    {
        let _ = rustix::io::write(score, b"500");
    }
}

fn keep_only(fd: &OwnedFd) {
    // SAFETY: numbers only; everything but the copy at `KEPT` is closed in this process.
    unsafe {
        libc::dup2(fd.as_raw_fd(), KEPT);
        libc::syscall(libc::SYS_close_range, 0, KEPT - 1, 0);
        libc::syscall(libc::SYS_close_range, KEPT + 1, u32::MAX, 0);
    }
}

fn read_report(pipe: &OwnedFd) -> Result<Option<(i32, i32)>, Errno> {
    let mut bytes = [0; 8];
    loop {
        match rustix::io::read(pipe, &mut bytes) {
            Err(Errno::INTR) => continue,
            // Eight bytes are written at once, and a pipe does not split them.
            Ok(8) => break,
            Ok(_) => return Ok(None),
            Err(errno) => return Err(errno),
        }
    }
    let [a, b, c, d, e, f, g, h] = bytes;
    Ok(Some((i32::from_ne_bytes([a, b, c, d]), i32::from_ne_bytes([e, f, g, h]))))
}

fn write_report(pipe: &OwnedFd, about: i32, value: i32) {
    let [a, b, c, d] = about.to_ne_bytes();
    let [e, f, g, h] = value.to_ne_bytes();
    // The reader learns from the end of file when this cannot be written.
    let _ = rustix::io::write(pipe, &[a, b, c, d, e, f, g, h]);
}

fn exit(code: i32) -> ! {
    // SAFETY: ends this process without running anything of the one it was copied from.
    unsafe { libc::_exit(code) }
}

/// Far more than a chain of system calls needs.
const COMMAND_STACK: usize = 32 * 1024;
/// A report of the command's process id.
const COMMAND_STARTED: i32 = 0;
/// A report of an error number.
const FAILED: i32 = 1;
/// Where the supervisor keeps its one descriptor.
const KEPT: i32 = 3;
