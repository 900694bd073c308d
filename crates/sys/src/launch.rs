//! Starting a program in namespaces of its own.
//!
//! The child only makes system calls until it executes the program: it takes no lock and allocates nothing, so other
//! threads of this process do not matter, and it can borrow our memory where we wait for it.

use crate::caps::{check, last_errno, raise_ambient, raise_effective};
use crate::{clone3, descriptors, proc};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use rustix::fs::{Mode, OFlags, SealFlags, fcntl_add_seals};
use rustix::io::{Errno, fcntl_dupfd_cloexec};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Signal, WaitId, WaitIdOptions, pidfd_send_signal, waitid};
use std::ffi::CStr;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

/// The namespaces to make, as bits of clone(2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Namespaces(u64);

impl Namespaces {
    /// Stay in those of the parent.
    pub const NONE: Namespaces = Namespaces(0);
    /// Own users.
    pub const USER: Namespaces = Namespaces(libc::CLONE_NEWUSER as u64);
    /// Own mounts.
    pub const MOUNT: Namespaces = Namespaces(libc::CLONE_NEWNS as u64);
    /// User, mount, process, ipc, host name and cgroup: all but the one that takes longest to make, which
    /// [`crate::net::enter_new_namespace`] makes.
    pub const ALL_BUT_NETWORK: Namespaces = Namespaces(
        (libc::CLONE_NEWUSER
            | libc::CLONE_NEWNS
            | libc::CLONE_NEWPID
            | libc::CLONE_NEWIPC
            | libc::CLONE_NEWUTS
            | libc::CLONE_NEWCGROUP) as u64,
    );

    /// Both.
    pub const fn and(self, other: Namespaces) -> Namespaces {
        Namespaces(self.0 | other.0)
    }
}

/// What is executed.
#[derive(Clone, Copy)]
pub enum Program<'a> {
    /// An open file, which need not have a name anywhere.
    Open(BorrowedFd<'a>),
    /// An empty file in memory, which the child fills with this program and seals before it executes it: the copy
    /// takes as long as a tenth of a start, and the parent has other things to do meanwhile.
    Blank { file: BorrowedFd<'a>, content: &'static [u8] },
    /// A path.
    Path(&'a CStr),
}

/// A user and its group.
#[derive(Debug, Clone, Copy)]
pub struct Identity {
    pub uid: u32,
    pub gid: u32,
}

/// What happens to capabilities at the exec.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Capabilities {
    /// All of them survive it, for every user.
    Keep,
    /// What the kernel's rules say.
    Usual,
}

/// A program to start.
pub struct Launch<'a> {
    pub program: Program<'a>,
    pub argv: &'a [&'a CStr],
    pub env: &'a [&'a CStr],
    pub namespaces: Namespaces,
    /// Become this user, without any capability.
    pub identity: Option<Identity>,
    /// What the capabilities of a new user namespace are worth to the program.
    pub capabilities: Capabilities,
    /// Start inside this cgroup (version 2).
    pub cgroup: Option<BorrowedFd<'a>>,
    /// Move into these cgroups first (version 1): their `tasks` files, open for writing. A process of one thread
    /// that moves itself takes no lock that the whole machine waits for, as moving another one does.
    pub tasks_files: &'a [BorrowedFd<'a>],
    /// Descriptors the program gets, numbered from 3 on; no other is inherited.
    pub inherit: &'a [BorrowedFd<'a>],
    /// Its standard error; the rest of its standard streams is /dev/null.
    pub stderr: Option<BorrowedFd<'a>>,
}

/// Starts `launch`, does something else `meanwhile`, and returns when the program was executed, or could not be. The
/// other thing is told the process id.
pub fn launch<R>(launch: &Launch<'_>, meanwhile: impl FnOnce(u32) -> R) -> Result<(Started, R), Errno> {
    let (argv, env) = (pointers(launch.argv), pointers(launch.env));
    let (failure, failure_inside) = pipe_with(PipeFlags::CLOEXEC)?;
    let has_parted = AtomicBool::new(launch.identity.is_some());
    let failure_number = failure_inside.as_raw_fd();
    let procs = joined_by_itself(launch)?;
    let plan = ChildPlan {
        launch,
        argv: &argv,
        env: &env,
        failure: failure_number,
        procs: procs.as_ref().map(AsFd::as_fd),
        has_parted: &has_parted,
        signals: changed_signals(),
    };
    let mut pidfd: libc::c_int = -1;
    let mut args = arguments(launch, &mut pidfd)?;
    let mut stack = vec![0u128; STACK / size_of::<u128>()];
    let signals = BlockedSignals::all();
    let pid = match launch.identity {
        None => {
            args.share_descriptors();
            clone3::start_borrowing(args, &mut stack, &plan, child)?
        }
        // A process that changes its user id makes its memory undumpable: not ours, so it gets a copy.
        Some(_) => clone3::run_in_copy(args, &plan, child)?,
    };
    drop(signals);
    // SAFETY: on success the kernel stored a new descriptor in `pidfd`.
    let started = Started { pidfd: unsafe { OwnedFd::from_raw_fd(pidfd) }, failure };
    // What the child borrows lives in this frame: it is not left before the child has let go of it.
    let borrowed =
        Borrowed { started: &started, failure_inside: Some(failure_inside), has_parted: &has_parted };
    let other = meanwhile(pid);
    drop(borrowed);
    Ok((started, other))
}

/// Waits, when dropped, until the child has executed its program or ended.
struct Borrowed<'s> {
    started: &'s Started,
    /// The child's end of the pipe, as long as it has none of its own.
    failure_inside: Option<OwnedFd>,
    has_parted: &'s AtomicBool,
}

impl Drop for Borrowed<'_> {
    fn drop(&mut self) {
        let a_moment = Timespec { tv_sec: 0, tv_nsec: 100_000 };
        while !self.has_parted.load(Ordering::Acquire) {
            // Mostly it was faster than what was done meanwhile. It may also have been killed.
            let mut dead = [PollFd::new(&self.started.pidfd, PollFlags::IN)];
            if let Ok(1) = poll(&mut dead, Some(&a_moment)) {
                break;
            }
        }
        // Ours would hide the end of the child's own.
        self.failure_inside = None;
        let mut waiting = [PollFd::new(&self.started.failure, PollFlags::IN)];
        while let Err(Errno::INTR) = poll(&mut waiting, None) {}
    }
}

/// Makes a process in a user namespace of its own, which only waits, does something `meanwhile` with its process id, and
/// kills it: a namespace needs a process to exist before it can be named. The process borrows what the second value owns,
/// which waits for its end when it is dropped: dying takes longer than all of the rest, and nothing has to wait for it.
pub fn with_user_namespace<R>(meanwhile: impl FnOnce(u32) -> R) -> Result<(R, Dying), Errno> {
    let (gate_inside, gate) = pipe_with(PipeFlags::CLOEXEC)?;
    let mut pidfd: libc::c_int = -1;
    let mut args = clone3::Args::new(Namespaces::USER.0, &mut pidfd);
    args.share_descriptors();
    let mut stack = vec![0u128; HOLDER_STACK / size_of::<u128>()];
    let gate_number = Box::new(gate_inside.as_raw_fd());
    let signals = BlockedSignals::all();
    let pid = clone3::start_borrowing(args, &mut stack, &*gate_number, wait_at)?;
    drop(signals);
    // SAFETY: on success the kernel stored a new descriptor in `pidfd`.
    let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd) };
    let dying = Dying { pidfd, _stack: stack, _gate_number: gate_number };
    let outcome = meanwhile(pid);
    let _ = pidfd_send_signal(&dying.pidfd, Signal::KILL);
    drop(gate);
    Ok((outcome, dying))
}

/// A process that was killed, and what it borrows until it is dead.
pub struct Dying {
    pidfd: OwnedFd,
    _stack: Vec<u128>,
    _gate_number: Box<i32>,
}

impl Drop for Dying {
    fn drop(&mut self) {
        // Again, for the case that the other one was not reached.
        let _ = pidfd_send_signal(&self.pidfd, Signal::KILL);
        while let Err(Errno::INTR) = waitid(WaitId::PidFd(self.pidfd.as_fd()), WaitIdOptions::EXITED) {}
    }
}

/// Waits for the parent to let go of the gate, or to die.
fn wait_at(gate: &i32) -> ! {
    // Our copies of the parent's descriptors must go, its end of this gate and of others' gates among them, or no gate would
    // report that the parent died.
    if descriptors::part(&mut [*gate]).is_ok() {
        // SAFETY: numbers only, of this process's own copies; the gate is open.
        unsafe {
            libc::dup2(*gate, 0);
            libc::syscall(libc::SYS_close_range, 1, u32::MAX, 0);
        }
        let _ = rustix::io::read(rustix::stdio::stdin(), &mut [0]);
    }
    // SAFETY: ends this process without running anything of the parent's.
    unsafe { libc::_exit(0) }
}

fn arguments(launch: &Launch<'_>, pidfd: &mut libc::c_int) -> Result<clone3::Args, Errno> {
    if launch.inherit.len() > MAX_INHERITED || launch.tasks_files.len() > MAX_TASKS_FILES {
        return Err(Errno::TOOBIG);
    }
    let mut args = clone3::Args::new(launch.namespaces.0, pidfd);
    if let Some(cgroup) = launch.cgroup.filter(|_| clone3::is_available()) {
        args.set_cgroup(cgroup);
    }
    Ok(args)
}

/// Where no process can be born in a cgroup, it moves itself there: what it writes to. Opened out here, since the kernel asks
/// whether the opener's cgroup namespace has both places.
fn joined_by_itself(launch: &Launch<'_>) -> Result<Option<OwnedFd>, Errno> {
    let cgroup = launch.cgroup.filter(|_| !clone3::is_available());
    let open =
        |cgroup| rustix::fs::openat(cgroup, c"cgroup.procs", OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty());
    cgroup.map(open).transpose()
}

/// A program on its way.
pub struct Started {
    /// A handle that never means another process.
    pub pidfd: OwnedFd,
    failure: OwnedFd,
}

impl Started {
    /// Waits until the program was executed, or says which step before that failed.
    pub fn executed(&self) -> io::Result<Result<(), LaunchFailure>> {
        let mut report = [0; 5];
        let length = loop {
            match rustix::io::read(&self.failure, &mut report) {
                Err(Errno::INTR) => continue,
                other => break other?,
            }
        };
        if length == 0 {
            return Ok(Ok(()));
        }
        let [step, a, b, c, d] = report;
        let errno = Errno::from_raw_os_error(i32::from_ne_bytes([a, b, c, d]));
        let step = STEPS.get(usize::from(step)).copied().unwrap_or("start");
        Ok(Err(LaunchFailure { step, errno }))
    }
}

/// A program that never ran.
#[derive(Debug, Clone, Copy)]
pub struct LaunchFailure {
    /// What was being done.
    pub step: &'static str,
    /// What the kernel said.
    pub errno: Errno,
}

/// What the child needs. Descriptors are numbers: they mean its own copies, whatever becomes of ours.
struct ChildPlan<'a> {
    launch: &'a Launch<'a>,
    argv: &'a [*const libc::c_char],
    env: &'a [*const libc::c_char],
    failure: i32,
    /// The cgroup that it moves itself to (version 2), if it was not born there.
    procs: Option<BorrowedFd<'a>>,
    /// Set when the child has a table of descriptors of its own.
    has_parted: &'a AtomicBool,
    /// Those that it resets.
    signals: u64,
}

impl ChildPlan<'_> {
    /// The numbers that mean something to the child before its exec.
    fn part(&self) -> Result<(), Errno> {
        if self.has_parted.load(Ordering::Relaxed) {
            return Ok(());
        }
        let Launch { program, tasks_files, inherit, stderr, .. } = self.launch;
        let program = match program {
            Program::Open(file) | Program::Blank { file, .. } => Some(file.as_raw_fd()),
            Program::Path(_) => None,
        };
        let given = [*tasks_files, *inherit].into_iter().flatten().chain(stderr).chain(&self.procs);
        let given = given.map(AsRawFd::as_raw_fd);
        let mut kept = [self.failure; 4 + MAX_TASKS_FILES + MAX_INHERITED];
        for (slot, number) in kept.iter_mut().zip(given.chain(program)) {
            *slot = number;
        }
        // The rest of it, and so at least the last, is the pipe.
        descriptors::part(&mut kept)?;
        self.has_parted.store(true, Ordering::Release);
        Ok(())
    }

    /// The first number that the program does not get.
    fn first_free(&self) -> i32 {
        3 + self.launch.inherit.len() as i32
    }
}

/// The child: system calls only.
fn child(plan: &ChildPlan<'_>) -> ! {
    if let Err(errno) = plan.part() {
        // SAFETY: the number is that of an open descriptor, which the parent holds until we are gone.
        report(unsafe { BorrowedFd::borrow_raw(plan.failure) }, 2, errno);
    }
    // Moved out of the way of the numbers that the program gets.
    // SAFETY: the number is that of an open descriptor of this process.
    let failure = fcntl_dupfd_cloexec(unsafe { BorrowedFd::borrow_raw(plan.failure) }, plan.first_free());
    let (step, errno) = match run_child(plan) {
        Ok(never) => match never {},
        Err(failed) => failed,
    };
    match &failure {
        Ok(failure) => report(failure.as_fd(), step, errno),
        // SAFETY: ends this process without running anything of the parent's.
        Err(_) => unsafe { libc::_exit(127) },
    }
}

/// Says which step failed, and ends this process.
fn report(failure: BorrowedFd<'_>, step: u8, errno: Errno) -> ! {
    let [a, b, c, d] = errno.raw_os_error().to_ne_bytes();
    let _ = rustix::io::write(failure, &[step, a, b, c, d]);
    // SAFETY: ends this process without running anything of the parent's.
    unsafe { libc::_exit(127) }
}

fn run_child(plan: &ChildPlan<'_>) -> Result<std::convert::Infallible, (u8, Errno)> {
    let at = |step: u8| move |errno: Errno| (step, errno);
    for tasks in plan.launch.tasks_files.iter().chain(&plan.procs) {
        rustix::io::write(tasks, b"0").map_err(at(4))?;
    }
    if let Some(identity) = plan.launch.identity {
        become_user(identity).map_err(at(1))?;
    }
    if plan.launch.capabilities == Capabilities::Keep {
        raise_ambient().map_err(at(1))?;
    }
    if let Program::Blank { file, content } = plan.launch.program {
        fill(file, content).map_err(at(5))?;
    }
    let open_program = match plan.launch.program {
        Program::Open(file) | Program::Blank { file, .. } => {
            Some(fcntl_dupfd_cloexec(file, plan.first_free()).map_err(at(2))?)
        }
        Program::Path(_) => None,
    };
    arrange_descriptors(plan).map_err(at(2))?;
    // A session of its own: ctrl-C in our terminal is for us, not for what we started.
    rustix::process::setsid().map_err(at(2))?;
    reset_signals(plan.signals);
    let errno = match (plan.launch.program, &open_program) {
        (Program::Path(path), _) => {
            // SAFETY: path, argv and env are NUL-terminated strings and NULL-terminated arrays of them.
            unsafe { libc::execve(path.as_ptr(), plan.argv.as_ptr(), plan.env.as_ptr()) };
            last_errno()
        }
        (Program::Open(_) | Program::Blank { .. }, None) => Errno::BADF,
        (Program::Open(_) | Program::Blank { .. }, Some(file)) => {
            // SAFETY: the descriptor is open; argv and env as above.
            unsafe {
                libc::syscall(
                    libc::SYS_execveat,
                    file.as_raw_fd(),
                    c"".as_ptr(),
                    plan.argv.as_ptr(),
                    plan.env.as_ptr(),
                    libc::AT_EMPTY_PATH,
                )
            };
            last_errno()
        }
    };
    Err((3, errno))
}

/// Writes a program to an empty file in memory, and makes sure that it never changes again.
fn fill(file: BorrowedFd<'_>, mut content: &[u8]) -> Result<(), Errno> {
    while !content.is_empty() {
        match rustix::io::write(file, content) {
            Ok(0) => return Err(Errno::IO),
            Ok(length) => content = &content[length..],
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    fcntl_add_seals(file, SEALED)
}

/// The seals of a program in memory: no process can write to it any more, nor remove a seal.
pub const SEALED: SealFlags =
    SealFlags::WRITE.union(SealFlags::SHRINK).union(SealFlags::GROW).union(SealFlags::SEAL);

/// Becomes another user for good, and leaves every group behind. The process must have one thread; raw calls, since the C
/// library would try to change other threads too. In a new user namespace, capabilities stay: the process was not its root
/// before.
pub fn become_user(identity: Identity) -> Result<(), Errno> {
    let Identity { uid, gid } = identity;
    // SAFETY: an empty list may have any pointer.
    check(unsafe { libc::syscall(libc::SYS_setgroups, 0, std::ptr::null::<u32>()) })?;
    // SAFETY: plain integers.
    check(unsafe { libc::syscall(libc::SYS_setresgid, gid, gid, gid) })?;
    // SAFETY: plain integers.
    check(unsafe { libc::syscall(libc::SYS_setresuid, uid, uid, uid) })
}

/// Makes files as another user from now on, and keeps every capability, those that the change of a user takes among them. For
/// the calling thread.
pub fn act_as(identity: Identity) -> Result<(), Errno> {
    let Identity { uid, gid } = identity;
    // SAFETY: an empty list may have any pointer.
    check(unsafe { libc::syscall(libc::SYS_setgroups, 0, std::ptr::null::<u32>()) })?;
    // SAFETY: plain integers. What comes back is who it was before, whether it worked or not: setfsuid(2).
    unsafe { libc::syscall(libc::SYS_setfsgid, gid) };
    // SAFETY: as above.
    unsafe { libc::syscall(libc::SYS_setfsuid, uid) };
    // SAFETY: no user has this id: the call changes nothing, and returns the present one.
    let now = unsafe { libc::syscall(libc::SYS_setfsuid, u32::MAX) };
    if now != i64::from(uid) {
        return Err(Errno::PERM);
    }
    raise_effective()
}

/// 0, 1, 2 and the inherited ones from 3 on; everything else closes at exec.
fn arrange_descriptors(plan: &ChildPlan<'_>) -> Result<(), Errno> {
    let above = plan.first_free();
    let opened = rustix::fs::open(c"/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    let null = fcntl_dupfd_cloexec(&opened, above)?;
    // It may sit on a number that is about to mean something else, and must not be closed as that.
    drop(opened);
    let stderr = plan.launch.stderr.unwrap_or(null.as_fd());
    // Sources are first moved above every target, so that none is overwritten before its turn.
    let mut moved = [const { None }; 3 + MAX_INHERITED];
    let sources = [null.as_fd(), null.as_fd(), stderr];
    for (slot, source) in moved.iter_mut().zip(sources.iter().chain(plan.launch.inherit)) {
        *slot = Some(fcntl_dupfd_cloexec(source, above)?);
    }
    for (target, source) in moved.iter().flatten().enumerate() {
        // SAFETY: only numbers go in; what this process, a copy, had at the target is closed.
        check(unsafe { libc::dup2(source.as_raw_fd(), target as i32) }.into())?;
    }
    // SAFETY: marks numbers only; they close at exec.
    check(unsafe { libc::syscall(libc::SYS_close_range, above, u32::MAX, libc::CLOSE_RANGE_CLOEXEC) })
}

/// The signals that are handled or ignored here, as a mask: signal 1 in the lowest bit.
pub(crate) fn changed_signals() -> u64 {
    let status = proc::text("/proc/thread-self/status").unwrap_or_default();
    let mask = |name: &str| {
        let mask = status.lines().find_map(|line| line.strip_prefix(name))?;
        u64::from_str_radix(mask.trim(), 16).ok()
    };
    mask("SigIgn:").zip(mask("SigCgt:")).map_or(u64::MAX, |(ignored, caught)| ignored | caught)
}

/// Handlers fall to their defaults at exec by themselves, ignored signals do not; and nothing stays blocked.
pub(crate) fn reset_signals(changed: u64) {
    // SAFETY: changing this process's own dispositions.
    unsafe {
        // Not those that cannot be changed, nor those that C libraries keep for themselves: that would fail.
        for signal in (1..=31).chain(35..=64).filter(|signal| {
            changed & (1 << (signal - 1)) != 0 && ![libc::SIGKILL, libc::SIGSTOP].contains(signal)
        }) {
            libc::signal(signal, libc::SIG_DFL);
        }
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut());
    }
}

/// No signal handler of the parent may run in the child, which is a copy of it until it executes.
pub(crate) struct BlockedSignals(libc::sigset_t);

impl BlockedSignals {
    pub(crate) fn all() -> BlockedSignals {
        // SAFETY: both sets are live; blocking signals in the calling thread has no other effect.
        unsafe {
            let mut every: libc::sigset_t = std::mem::zeroed();
            let mut before: libc::sigset_t = std::mem::zeroed();
            libc::sigfillset(&raw mut every);
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const every, &raw mut before);
            BlockedSignals(before)
        }
    }
}

impl Drop for BlockedSignals {
    fn drop(&mut self) {
        // SAFETY: restores the set that pthread_sigmask gave us.
        unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.0, std::ptr::null_mut());
        }
    }
}

/// A NULL-terminated array for exec.
pub(crate) fn pointers(strings: &[&CStr]) -> Vec<*const libc::c_char> {
    strings.iter().map(|s| s.as_ptr()).chain([std::ptr::null()]).collect()
}

const STEPS: [&str; 6] = [
    "wait",
    "become the sandbox's user",
    "arrange file descriptors",
    "execute the program",
    "enter its cgroup",
    "copy the program to memory",
];
/// A process that makes three system calls.
const HOLDER_STACK: usize = 16 * 1024;
/// For the child until its exec: far more than a chain of system calls needs.
pub(crate) const STACK: usize = 64 * 1024;
/// Room for the descriptors of one launch.
pub const MAX_INHERITED: usize = 64;
/// One a controller.
const MAX_TASKS_FILES: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, File};
    use std::io::Read;

    /// A program that is given one descriptor, and nothing else of ours.
    fn giving<'a>(
        path: &'a CStr,
        argv: &'a [&'a CStr],
        given: &'a [BorrowedFd<'a>],
        stderr: Option<BorrowedFd<'a>>,
    ) -> Launch<'a> {
        Launch {
            program: Program::Path(path),
            argv,
            env: &[c"PATH=/usr/bin:/bin"],
            namespaces: Namespaces::NONE,
            identity: None,
            capabilities: Capabilities::Usual,
            cgroup: None,
            tasks_files: &[],
            inherit: given,
            stderr,
        }
    }

    /// Runs a script of a shell with one descriptor, and returns what it wrote to its standard error.
    fn stderr_of(script: &CStr, given: &File) -> String {
        let (ours, theirs) = pipe_with(PipeFlags::CLOEXEC).unwrap();
        let (argv, given) = ([c"sh", c"-c", script], [given.as_fd()]);
        let (started, ()) = launch(&giving(c"/bin/sh", &argv, &given, Some(theirs.as_fd())), |_| ()).unwrap();
        started.executed().unwrap().unwrap();
        drop(theirs);
        let mut stderr_of = String::new();
        File::from(ours).read_to_string(&mut stderr_of).unwrap();
        let _ = waitid(WaitId::PidFd(started.pidfd.as_fd()), WaitIdOptions::EXITED);
        stderr_of
    }

    #[test]
    fn a_program_has_what_it_is_given_and_nothing_else_wherever_that_lies() {
        // Not closed by an exec: other code of the process may have opened descriptors like this.
        let open = || rustix::io::dup(File::open("/dev/null").unwrap()).unwrap();
        for (below, above) in [(0, 0), (300, 0), (0, 300), (100, 300), (300, 100)] {
            let below_it: Vec<_> = (0..below).map(|_| open()).collect();
            let given = File::open("/proc/self/comm").unwrap();
            let above_it: Vec<_> = (0..above).map(|_| open()).collect();
            // Without a listing of the folder, which would be open itself.
            let stderr_text = stderr_of(
                c"exec >&2; n=0; while [ $n -lt 900 ]; do [ -e /proc/$$/fd/$n ] && echo $n; n=$((n + 1)); done; cat <&3",
                &given,
            );
            let mut words: Vec<&str> = stderr_text.split_whitespace().collect();
            let given = words.pop();
            assert_eq!(given, fs::read_to_string("/proc/self/comm").unwrap().split_whitespace().next());
            assert_eq!(words, ["0", "1", "2", "3"], "{below} below, {above} above");
            let is_open = |one: &OwnedFd| rustix::io::fcntl_getfd(one).is_ok();
            assert!(below_it.iter().chain(&above_it).all(is_open), "ours are as they were");
        }
    }

    #[test]
    fn a_program_that_cannot_be_executed_is_said() {
        let launched = giving(c"/nowhere", &[c"nowhere"], &[], None);
        let (started, ()) = launch(&launched, |_| ()).unwrap();
        let failure = started.executed().unwrap().unwrap_err();
        assert_eq!((failure.step, failure.errno), ("execute the program", Errno::NOENT));
        let _ = waitid(WaitId::PidFd(started.pidfd.as_fd()), WaitIdOptions::EXITED);
    }

    /// As Docker's default profile does it: seccomp(2), in the calling thread.
    fn refuse_clone3(errno: Errno) {
        let [number, errno] = [libc::SYS_clone3 as u32, errno.raw_os_error() as u32];
        let filter = [
            (0x20, 0, 0, 0),
            (0x15, 0, 1, number),
            (0x06, 0, 0, 0x5_0000 | errno),
            (0x06, 0, 0, 0x7fff_0000),
        ];
        let bytes: Vec<u8> = filter
            .iter()
            .flat_map(|(code, yes, no, word): &(u16, u8, u8, u32)| {
                [&code.to_ne_bytes()[..], &[*yes, *no], &word.to_ne_bytes()].concat()
            })
            .collect();
        crate::seccomp::no_new_privileges().unwrap();
        crate::seccomp::install(&bytes).unwrap();
    }

    #[test]
    fn programs_start_where_clone3_is_refused() {
        let given = File::open("/dev/null").unwrap();
        for refusal in [Errno::NOSYS, Errno::PERM] {
            std::thread::scope(|scope| {
                let refused = scope.spawn(|| {
                    assert!(clone3::is_available());
                    refuse_clone3(refusal);
                    assert!(!clone3::is_available());
                    assert_eq!(stderr_of(c"echo started >&2", &given), "started\n");
                    let (map, _dying) =
                        with_user_namespace(|pid| fs::read_to_string(format!("/proc/{pid}/uid_map")))
                            .unwrap();
                    assert_eq!(map.unwrap(), "", "a new namespace, which has no map yet");
                });
                refused.join().unwrap();
            });
        }
    }

    #[test]
    fn another_user_is_become_where_clone3_is_refused() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        refuse_clone3(Errno::NOSYS);
        let launched = giving(c"/nowhere", &[c"nowhere"], &[], None);
        let launched = Launch { identity: Some(Identity { uid: 65534, gid: 65534 }), ..launched };
        let (started, ()) = launch(&launched, |_| ()).unwrap();
        let failure = started.executed().unwrap().unwrap_err();
        assert_eq!((failure.step, failure.errno), ("execute the program", Errno::NOENT));
        let _ = waitid(WaitId::PidFd(started.pidfd.as_fd()), WaitIdOptions::EXITED);
    }
}
