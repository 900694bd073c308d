//! Starting a command so that its whole tree can be found and killed.
//!
//! Two processes are made: a supervisor, and the command as its child. The supervisor is a child subreaper: a process of
//! the tree that forks twice, starts a session or clears its environment still ends up below it, so "the tree" is what
//! descends from the supervisor. The supervisor does nothing but reap: it writes the command's status to its guest and
//! exits when no descendant is left. Where no namespace ends the tree together with the process that started it, the
//! supervisor waits for that process's end as well, and becomes the program that clears up.

use crate::caps::{check, last_errno, prctl};
use crate::launch::{BlockedSignals, pointers};
use crate::mark;
use rustix::fd::{AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
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
    /// What the command and all that descends from it are marked with ([`crate::mark`]), where orphans do not stay in their
    /// tree.
    pub mark: Option<u64>,
    /// The process that the tree must not outlive; `None` where the kernel sees to that.
    pub owner: Option<Owner<'a>>,
}

impl Command<'_> {
    /// Whether the supervisor leads the command's session, and so is a parent of its process group in the same session.
    ///
    /// With a terminal, job control needs such a parent: the kernel drops SIGTSTP for a group without one, and a program that stops
    /// itself at ctrl-Z would wait for ever. The kernel that needs marks, gVisor's, gives a terminal to the leader of a session
    /// alone; but there a group without such a parent is hung up on when a process leaves it while another one is stopped, as
    /// happens all the time while a sandbox is paused.
    fn has_its_supervisors_session(&self) -> bool {
        match (self.mark, self.terminal) {
            (None, Terminal::Controlling) | (Some(_), Terminal::Absent) => true,
            (None, Terminal::Absent) | (Some(_), Terminal::Controlling) => false,
        }
    }

    /// Whether the supervisor leads a session with a terminal.
    fn has_job_control(&self) -> bool {
        self.terminal == Terminal::Controlling && self.has_its_supervisors_session()
    }
}

/// A process that is not survived by the commands it starts.
pub struct Owner<'a> {
    /// Its pidfd.
    pub process: BorrowedFd<'a>,
    /// What the supervisor becomes when it has ended: a program that kills whatever descends from it. It stays the
    /// subreaper that it was (prctl(2)); a copy of a process with threads could not look around by itself.
    pub then: &'a [CString],
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
    /// The command's process id, also that of its process group.
    pub command: i32,
    /// Gives four bytes, the status of wait(2), when the command ended, and each time when a signal of job control stopped
    /// it; an end of file before the end means that the supervisor was killed.
    pub status: OwnedFd,
}

/// Starts a command. The error is that of the exec (or of what comes before it).
pub fn spawn_supervised(command: &Command<'_>) -> Result<Supervised, Errno> {
    let (status, status_inside) = line()?;
    let (report, report_inside) = line()?;
    let as_strs = |strings: &[CString]| pointers(&strings.iter().map(CString::as_c_str).collect::<Vec<_>>());
    let prepared = Prepared {
        command,
        argv: &as_strs(command.argv),
        env: &as_strs(command.env),
        then: &as_strs(command.owner.as_ref().map_or(&[], |owner| owner.then)),
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
    // The command reports before the supervisor, which is suspended until the exec: the first report decides.
    match read_report(&report)? {
        Some((COMMAND_STARTED, command)) => Ok(Supervised { supervisor, command, status }),
        Some((_, errno)) => Err(Errno::from_raw_os_error(errno)),
        None => Err(Errno::CHILD),
    }
}

/// A channel for reports to us alone. Not a pipe: where /proc does not guard our descriptors (gVisor), a command could open
/// that and report in place of another command's supervisor. A socket cannot be opened.
fn line() -> Result<(OwnedFd, OwnedFd), Errno> {
    socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
}

struct Prepared<'a> {
    command: &'a Command<'a>,
    argv: &'a [*const libc::c_char],
    env: &'a [*const libc::c_char],
    then: &'a [*const libc::c_char],
    status: &'a OwnedFd,
    report: &'a OwnedFd,
    /// For the command until its exec.
    stack: RefCell<Vec<u8>>,
}

/// The supervisor. Every signal that can be blocked is (by the caller of fork).
fn supervise(prepared: &Prepared<'_>) -> ! {
    let _ = prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0);
    let _ = prctl(libc::PR_SET_NAME, c"belljar-exec".as_ptr() as u64, 0);
    if prepared.command.has_its_supervisors_session() {
        // A new process leads no group yet, so it may.
        let _ = rustix::process::setsid();
    }
    if prepared.command.has_job_control() {
        // SAFETY: TIOCSCTTY takes an integer. If it fails, the command cannot take the terminal either, and says so.
        unsafe { libc::ioctl(prepared.command.stdio[0].as_raw_fd(), libc::TIOCSCTTY, 0) };
    }
    let pid = start_command(prepared);
    if pid < 0 {
        write_report(prepared.report, FAILED, last_errno().raw_os_error());
        exit(1);
    }
    write_report(prepared.report, COMMAND_STARTED, pid);
    // Keep nothing else: an open end of the command's output would hide its end.
    keep_only(prepared.status, prepared.command.owner.as_ref());
    // A child that ends before this process waits for the signal has left it pending.
    let children = prepared.command.owner.as_ref().map(|_| child_signals());
    loop {
        if let Some(children) = children
            && wait_for_child_or_owner(children) == Woken::OwnerEnded
        {
            become_program(prepared.then);
        }
        reap(pid, prepared.command, if children.is_some() { libc::WNOHANG } else { 0 });
    }
}

/// Takes in every child that has ended, at least one if it may wait for it, and says how the command did. Ends this
/// process after the last. At a terminal it also says when a signal of job control stopped the command: not SIGSTOP, which
/// pauses a sandbox.
fn reap(command: i32, how: &Command<'_>, flags: i32) {
    let has_terminal = how.terminal == Terminal::Controlling;
    let flags = if has_terminal { flags | libc::WUNTRACED } else { flags };
    loop {
        let mut status = 0;
        // SAFETY: `status` is live.
        let reaped = unsafe { libc::waitpid(-1, &raw mut status, flags) };
        let is_stopped = reaped > 0 && libc::WIFSTOPPED(status);
        if is_stopped && (reaped != command || libc::WSTOPSIG(status) == libc::SIGSTOP) {
            continue;
        }
        if reaped == command && how.has_job_control() && !is_stopped {
            give_up_the_terminal();
        }
        if reaped == command {
            // SAFETY: descriptor 3 leads to the guest, the buffer is live.
            while unsafe { libc::write(KEPT, (&raw const status).cast(), size_of::<i32>()) } < 0
                && last_errno() == Errno::INTR
            {}
        } else if reaped < 0 && last_errno() == Errno::CHILD {
            exit(0);
        } else if reaped <= 0 {
            return;
        }
    }
}

/// As the kernel does when the leader of a session ends: what else has the terminal gets SIGHUP. The supervisor, which leads the
/// session, does not end with its command.
fn give_up_the_terminal() {
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    if let Ok(terminal) = rustix::fs::open(c"/dev/tty", flags, Mode::empty()) {
        // SAFETY: TIOCNOTTY takes nothing.
        unsafe { libc::ioctl(terminal.as_raw_fd(), libc::TIOCNOTTY) };
    }
}

/// Readable when a child has ended. -1, which poll(2) passes over, cannot happen with as few descriptors as these.
fn child_signals() -> i32 {
    // SAFETY: the set is live; the signal is blocked, as all are.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, libc::SIGCHLD);
        libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK)
    }
}

#[derive(PartialEq, Eq)]
enum Woken {
    ChildEnded,
    OwnerEnded,
}

fn wait_for_child_or_owner(children: i32) -> Woken {
    let waiting = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    let mut fds = [waiting(children), waiting(KEPT_OWNER)];
    let mut taken = [0; size_of::<libc::signalfd_siginfo>()];
    // SAFETY: both arrays are live and as long as said. Signals of several children may be one: all are looked for.
    unsafe {
        libc::poll(fds.as_mut_ptr(), fds.len() as libc::nfds_t, -1);
        libc::read(children, taken.as_mut_ptr().cast::<libc::c_void>(), taken.len());
    }
    let [_, owner] = fds;
    if owner.revents == 0 { Woken::ChildEnded } else { Woken::OwnerEnded }
}

/// The first word of `argv` is its path.
fn become_program(argv: &[*const libc::c_char]) -> ! {
    let env = [std::ptr::null()];
    if let Some(path) = argv.first() {
        // SAFETY: NUL-terminated strings, and NULL-terminated arrays of them.
        unsafe { libc::execve(*path, argv.as_ptr(), env.as_ptr()) };
    }
    exit(1);
}

/// A child that shares our memory and runs while this process is suspended, as posix_spawn(3) does it: nothing is copied
/// for a process that is about to become another.
fn start_command(prepared: &Prepared<'_>) -> i32 {
    extern "C" fn run(prepared: *mut libc::c_void) -> libc::c_int {
        // SAFETY: `start_command` passes a live `Prepared` and does not continue before this process executed or ended.
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
    if command.has_its_supervisors_session() {
        rustix::process::setpgid(None, None)?;
    } else {
        rustix::process::setsid()?;
    }
    for (target, source) in command.stdio.iter().enumerate() {
        // SAFETY: only numbers go in; the guest's own 0, 1 and 2 are /dev/null, so no source is among them.
        check(unsafe { libc::dup2(source.as_raw_fd(), target as i32) }.into())?;
    }
    if command.has_job_control() {
        // SIGTTOU, which this raises in a group that is not in the foreground, is blocked like all signals.
        rustix::termios::tcsetpgrp(rustix::stdio::stdin(), rustix::process::getpid())?;
    } else if command.terminal == Terminal::Controlling {
        // SAFETY: TIOCSCTTY takes an integer.
        check(unsafe { libc::ioctl(0, libc::TIOCSCTTY, 0) }.into())?;
    }
    rustix::process::fchdir(command.cwd)?;
    default_signals();
    for (resource, value) in command.limits {
        if command.mark.is_some() && *resource == Resource::Core {
            continue; // It is a part of the mark.
        }
        let value = getrlimit(*resource).maximum.map_or(*value, |hard| hard.min(*value));
        setrlimit(*resource, Rlimit { current: Some(value), maximum: Some(value) })?;
    }
    if let Some(mark) = command.mark {
        mark::put_on_us(mark)?;
    }
    prefer_as_oom_victim();
    // A second lock beside CLOEXEC on each of them.
    // SAFETY: numbers only; this process has a table of its own.
    check(unsafe { libc::syscall(libc::SYS_close_range, 3, LAST_DESCRIPTOR, libc::CLOSE_RANGE_CLOEXEC) })?;
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

fn keep_only(status: &OwnedFd, owner: Option<&Owner<'_>>) {
    // SAFETY: numbers only; everything but the copies at `KEPT` and `KEPT_OWNER` is closed in this process. The owner's
    // pidfd is moved out of the way first: it may be where the other one goes.
    unsafe {
        let owner = owner.map(|owner| libc::fcntl(owner.process.as_raw_fd(), libc::F_DUPFD, KEPT_OWNER + 1));
        libc::dup2(status.as_raw_fd(), KEPT);
        let last = owner.map_or(KEPT, |owner| libc::dup2(owner, KEPT_OWNER).max(KEPT));
        libc::syscall(libc::SYS_close_range, 0, KEPT - 1, 0);
        libc::syscall(libc::SYS_close_range, last + 1, LAST_DESCRIPTOR, 0);
    }
}

fn read_report(line: &OwnedFd) -> Result<Option<(i32, i32)>, Errno> {
    let mut bytes = [0; 8];
    loop {
        match rustix::io::read(line, &mut bytes) {
            Err(Errno::INTR) => continue,
            // Written at once, and a packet is not split.
            Ok(8) => break,
            Ok(_) => return Ok(None),
            Err(errno) => return Err(errno),
        }
    }
    let [a, b, c, d, e, f, g, h] = bytes;
    Ok(Some((i32::from_ne_bytes([a, b, c, d]), i32::from_ne_bytes([e, f, g, h]))))
}

fn write_report(line: &OwnedFd, about: i32, value: i32) {
    let [a, b, c, d] = about.to_ne_bytes();
    let [e, f, g, h] = value.to_ne_bytes();
    // The reader learns from the end of file when this cannot be written.
    let _ = rustix::io::write(line, &[a, b, c, d, e, f, g, h]);
}

fn exit(code: i32) -> ! {
    // SAFETY: ends this process without running anything of the one it was copied from.
    unsafe { libc::_exit(code) }
}

/// No number is higher. gVisor takes nothing that is more than a signed number holds.
const LAST_DESCRIPTOR: i32 = i32::MAX;
/// Far more than a chain of system calls needs.
const COMMAND_STACK: usize = 32 * 1024;
/// A report of the command's process id.
const COMMAND_STARTED: i32 = 0;
/// A report of an error number.
const FAILED: i32 = 1;
/// Where the supervisor has its line to the guest.
const KEPT: i32 = 3;
/// And the pidfd of its owner.
const KEPT_OWNER: i32 = 4;
