//! A guest as its host sees it: a process, and a control socket through which streams are opened.

use crate::Plan;
use crate::cgroup::{Cgroup, Counters};
pub(crate) use crate::control_socket::ControlSocket;
use crate::control_socket::not_opened;
use crate::landlock::PrivateDir;
use crate::landlock::supervisor::Supervisor;
use crate::layout::Layout;
use crate::mountpoints::{Mountpoints, Turn};
use crate::native::PreparedRoot;
use belljar_spec::{ErrorCode, Limits, SandboxError, SandboxId, Term, hint};
use belljar_sys::before_exec::CgroupEntry;
use belljar_sys::launch::{LaunchFailure, Started};
use belljar_sys::rustix::event::{PollFd, PollFlags, Timespec, poll};
use belljar_sys::rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use belljar_sys::rustix::io::Errno;
use belljar_sys::rustix::process::{Signal, WaitId, WaitIdOptions, pidfd_send_signal, waitid};
use belljar_wire::frame::{Frame, FrameReader, Tag};
use belljar_wire::message::{self, Confined, EgressReport, Fault, Setup, SetupReply};
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A guest that takes requests. Dropped, it is killed, with everything it started.
pub struct Guest {
    control_socket: ControlSocket,
    process: Process,
    cgroup: Option<Cgroup>,
    /// A cgroup for the host's programs that work for it, where its own is the Docker daemon's.
    helpers: Option<Cgroup>,
    confined: Confined,
    first: Option<UnixStream>,
    egress_sockets: Vec<OwnedFd>,
    /// What was made for it in folders of the host.
    mountpoints: Option<Mountpoints>,
    started: Instant,
    /// How long it may take until it is ready.
    time_limit: Duration,
    behind: Option<Box<dyn Behind>>,
    /// Makes connections to its ports, where that is not the guest's or a supervisor's work.
    dial: Option<Arc<Dial>>,
    /// The listener of its filter, until a supervisor has it.
    listener: Option<OwnedFd>,
    supervised: Option<Supervised>,
    /// The root that it has in common with others, held so that no other process removes it.
    _root: Option<PreparedRoot>,
}

/// Makes connections to ports of a sandbox.
pub type Dial = Box<dyn Fn(u16) -> std::io::Result<TcpStream> + Send + Sync>;

/// What answers the system calls of a sandbox without namespaces, and the folders that it has on the host.
pub(crate) struct Supervised {
    pub(crate) supervisor: Supervisor,
    /// Removed last.
    pub(crate) _private: PrivateDir,
}

/// Something that stands behind a guest, and has to be removed after it: a container. Dropped, it is gone.
pub(crate) trait Behind: Send + Sync {
    /// What the kernel counted of the sandbox's limits.
    fn counters(&self) -> Counters;

    /// The same when the guest has ended by itself, where the kernel that counted went with it.
    fn at_end(&self) -> AtEnd {
        let counters = self.counters();
        Box::new(move || counters)
    }

    /// The guest is dying and so is this process: sees to what nothing else would remove, and waits for nothing else.
    fn leave(&mut self);
}

/// What was counted until the end. It may wait for other processes, so its caller must hold nothing that they need.
pub(crate) type AtEnd = Box<dyn FnOnce() -> Counters + Send>;

impl Guest {
    /// A guest that was just started and knows nothing yet.
    pub(crate) fn starting(control_socket: ControlSocket, process: Process, cgroup: Option<Cgroup>) -> Guest {
        Guest {
            control_socket,
            process,
            cgroup,
            helpers: None,
            confined: Confined { landlock_abi: 0, egress: None, is_supervised: false },
            first: None,
            egress_sockets: Vec::new(),
            mountpoints: None,
            started: Instant::now(),
            time_limit: Limits::DEFAULT_READY,
            behind: None,
            dial: None,
            listener: None,
            supervised: None,
            _root: None,
        }
    }

    /// Holds a prepared root until it is gone.
    pub(crate) fn hold(&mut self, root: Option<PreparedRoot>) {
        self._root = root;
    }

    /// The same, with as much time to get ready as its plan says.
    pub(crate) fn ready_within(mut self, plan: &Plan) -> Guest {
        self.time_limit = plan.limits.ready.value;
        self
    }

    /// The same, with something behind it, and with what was made for it in folders of the host before it was there.
    pub(crate) fn in_front_of(mut self, behind: Box<dyn Behind>, mountpoints: Option<Mountpoints>) -> Guest {
        self.behind = Some(behind);
        self.mountpoints = mountpoints;
        self
    }

    /// Makes what its mounts need in folders of the host. `stage` is where they are mounted on the host itself, if they are.
    pub(crate) fn make_mountpoints(
        &mut self,
        plan: &Plan,
        layout: &Layout,
        stage: &[PathBuf],
    ) -> Result<(), SandboxError> {
        let _turn = Turn::take(plan, layout)?;
        self.mountpoints = Mountpoints::begin(plan, layout, self.process.handle(), stage)?;
        let Some(mountpoints) = &mut self.mountpoints else { return Ok(()) };
        // Ours already: where this fails they are removed after the guest, and not before.
        mountpoints.make(layout)?;
        mountpoints.hold(layout)
    }

    /// Its process.
    pub(crate) fn process(&self) -> BorrowedFd<'_> {
        self.process.handle()
    }

    /// What it made, for another that comes after it.
    pub(crate) fn take_mountpoints(&mut self) -> Option<Mountpoints> {
        self.mountpoints.take()
    }

    /// Tells it everything, with the mounts that belong to it.
    pub(crate) fn send_setup(
        &self,
        setup: &Setup,
        mounts: &[BorrowedFd<'_>],
    ) -> Result<PendingSetup, SandboxError> {
        let pending = self.control_socket.send_setup(setup, mounts);
        let pending = pending.map_err(|gone| self.process.cause_of_death().unwrap_or(gone))?;
        Ok(PendingSetup {
            deadline: Deadline { at: self.started + self.time_limit, time_limit: self.time_limit },
            ..pending
        })
    }

    /// Sends the plan's first request, if it has one, behind the setup.
    pub(crate) fn send_first(&mut self, plan: &Plan, layout: &Layout) -> Result<(), SandboxError> {
        if let Some(request) = plan.first_request(layout) {
            let stream = self.open_stream()?;
            let deadline = Deadline { at: self.started + self.time_limit, time_limit: self.time_limit };
            write_by(&stream, &request, &deadline).inspect_err(|error| {
                if error.code == ErrorCode::NotReady {
                    // A guest that hangs does not notice that the control socket closes.
                    self.process.end = End::Killed;
                }
            })?;
            self.first = Some(stream);
        }
        Ok(())
    }

    /// The stream of the plan's first request.
    pub fn take_first(&mut self) -> Option<UnixStream> {
        self.first.take()
    }

    /// Waits until it is confined.
    pub(crate) fn finish(&mut self, pending: PendingSetup) -> Result<(), SetupFailure> {
        self.confined = pending.wait().map_err(|failure| match failure {
            SetupFailure::Silent => match self.process.launch_failure() {
                Some(LaunchFailure { step, errno }) => {
                    SetupFailure::Step(Fault { doing: step.into(), errno: errno.raw_os_error() })
                }
                None => SetupFailure::Silent,
            },
            SetupFailure::Late(time_limit) => {
                // A guest that hangs does not notice that the control socket closes.
                self.process.end = End::Killed;
                SetupFailure::Late(time_limit)
            }
            SetupFailure::Step(fault) => SetupFailure::Step(fault),
        })?;
        if self.confined.is_supervised {
            let mut passed = self.control_socket.take_egress().ok_or(SetupFailure::Silent)?;
            self.listener = Some(passed.pop().ok_or(SetupFailure::Silent)?);
        }
        if self.confined.egress.is_some() {
            self.egress_sockets = self.control_socket.take_egress().ok_or(SetupFailure::Silent)?;
        }
        Ok(())
    }

    /// The listener of its filter.
    pub(crate) fn take_listener(&mut self) -> Option<OwnedFd> {
        self.listener.take()
    }

    /// Has it supervised until it is gone.
    pub(crate) fn supervise(&mut self, supervised: Supervised) {
        self.supervised = Some(supervised);
    }

    /// Connects to ports that programs inside listen at, where the guest is not needed for it. It may block.
    pub fn dial(&self) -> Option<Dial> {
        if let Some(dial) = self.dial.clone() {
            return Some(Box::new(move |port| dial(port)));
        }
        self.supervised.as_ref().map(|supervised| supervised.supervisor.dial())
    }

    /// Its ports are reached like this.
    pub(crate) fn dialled_by(&mut self, dial: Dial) {
        self.dial = Some(Arc::new(dial));
    }

    /// Takes note of the egress sockets that another process opened for it.
    pub(crate) fn has_egress(&mut self, report: EgressReport, sockets: Vec<OwnedFd>) {
        self.confined.egress = Some(report);
        self.egress_sockets = sockets;
    }

    /// Its egress sockets, if it has any.
    pub fn take_egress(&mut self) -> Option<(EgressReport, Vec<OwnedFd>)> {
        Some((self.confined.egress.clone()?, std::mem::take(&mut self.egress_sockets)))
    }

    /// A new stream to the guest, for one request.
    pub fn open_stream(&self) -> Result<UnixStream, SandboxError> {
        self.control_socket.open_stream(&[]).map_err(not_opened)
    }

    /// A stream that becomes a connection when the guest has said that it dialled one; `None` where the guest hands the
    /// connection itself over.
    pub fn open_connection(&self) -> Result<Option<TcpStream>, SandboxError> {
        let failed = |error| not_opened(Errno::from_io_error(&error).unwrap_or(Errno::IO));
        self.control_socket.open_connection().map_err(failed)
    }

    /// Whether it will never answer again: its process has ended, or its end of the control socket is closed.
    pub fn is_gone(&self) -> bool {
        wait_for_end(self.process.handle(), Duration::ZERO) || self.control_socket.is_closed()
    }

    /// How a program of the host that works for the sandbox enters its cgroup, which is removed with the guest; `None`
    /// where no cgroup is ours to use. A container's cgroup belongs to the Docker daemon, which removes it while such
    /// programs may still run: they have another one with the same limits.
    pub fn cgroup_entry(
        &mut self,
        limits: &Limits,
        id: SandboxId,
    ) -> Result<Option<CgroupEntry>, SandboxError> {
        if self.cgroup.is_none() && self.helpers.is_none() && self.behind.is_some() {
            self.helpers = Cgroup::create(id, limits)?;
        }
        self.cgroup.as_ref().or(self.helpers.as_ref()).map(Cgroup::entry).transpose()
    }

    /// What the kernel counted of this sandbox's limits; zeros where it counts none.
    pub fn counters(&self) -> Counters {
        match (&self.cgroup, &self.behind) {
            (Some(cgroup), _) => cgroup.counters(),
            (None, Some(behind)) => behind.counters(),
            (None, None) => Counters::default(),
        }
    }

    /// The same for a guest that is gone: where the sandbox has a kernel of its own, one limit may end all of it.
    pub fn counters_at_end(&self) -> AtEnd {
        let counters = || -> AtEnd {
            let counters = self.counters();
            Box::new(move || counters)
        };
        self.behind.as_ref().map_or_else(counters, |behind| behind.at_end())
    }

    /// The version of Landlock, the second layer of isolation; 0 for none.
    pub fn landlock_abi(&self) -> u32 {
        self.confined.landlock_abi
    }

    /// Kills the guest and everything it started, where that needs no other process, and waits for nothing.
    pub fn kill(&self) {
        if self.process.end == End::Killed {
            self.process.kill();
        }
    }

    /// Kills the guest and everything it started, and waits until they are gone.
    pub fn stop(self) {
        drop(self);
    }

    /// Kills the guest and everything it started, and waits only where something has to be removed after them. For a
    /// process that is about to exit, and so leaves no child unreaped.
    pub fn abandon(mut self) {
        if self.cgroup.is_none()
            && self.helpers.is_none()
            && self.mountpoints.is_none()
            && self.process.end == End::Killed
        {
            self.process.kill();
            self.process.end = End::Over;
        }
        if let Some(behind) = &mut self.behind {
            behind.leave();
        }
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.control_socket.close();
        self.process.end();
        // Only now can they be removed.
        self.cgroup = None;
        self.helpers = None;
        self.mountpoints = None;
        self.behind = None;
        self.supervised = None;
    }
}

/// The process of a guest, or of the program that started it.
pub(crate) struct Process {
    started: Begun,
    /// The guest itself, where another program started it and ends after it.
    guest: Option<OwnedFd>,
    end: End,
}

/// Which process started another.
enum Begun {
    /// We did.
    ByUs(Started),
    /// Another process did, which waits for it as well; this is a handle to it.
    ByOthers(OwnedFd),
}

/// How a guest's process ends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    /// By our signal: killing process 1 takes its whole namespace along.
    Killed,
    /// By itself, when the control socket closes: it has a tree to kill first.
    Leaves,
    /// It did.
    Over,
}

impl Process {
    /// Process 1 of a namespace.
    pub(crate) fn init(started: Started) -> Process {
        Process { started: Begun::ByUs(started), guest: None, end: End::Killed }
    }

    /// Process 1 of a namespace that another program made. Without a handle to it, it still leaves when the control socket closes.
    pub(crate) fn behind(started: Started, guest: Option<OwnedFd>) -> Process {
        let end = if guest.is_some() { End::Killed } else { End::Leaves };
        Process { started: Begun::ByUs(started), guest, end }
    }

    /// A guest without a namespace.
    pub(crate) fn without_namespace(started: Started) -> Process {
        Process { started: Begun::ByUs(started), guest: None, end: End::Leaves }
    }

    /// What stands for a sandbox elsewhere: a descriptor that is at its end when the sandbox is gone.
    pub(crate) fn remote(alive: OwnedFd) -> Process {
        Process { started: Begun::ByOthers(alive), guest: None, end: End::Leaves }
    }

    /// Process 1 of a container.
    pub(crate) fn contained(handle: OwnedFd) -> Process {
        Process { started: Begun::ByOthers(handle), guest: None, end: End::Killed }
    }

    /// The step before the exec that failed, if one did. Waits for the exec.
    fn launch_failure(&self) -> Option<LaunchFailure> {
        match &self.started {
            Begun::ByUs(started) => started.executed().ok().and_then(Result::err),
            Begun::ByOthers(_) => None,
        }
    }

    fn cause_of_death(&self) -> Option<SandboxError> {
        let failure = self.launch_failure()?;
        let message = format!("the guest could not {}: {}", failure.step, failure.errno);
        Some(
            ErrorCode::StartFailed
                .error(message)
                .hint(hint!("{} tries each backend by itself", Term::Capabilities)),
        )
    }

    /// The guest itself, or the process that ends after it.
    fn handle(&self) -> BorrowedFd<'_> {
        match (&self.guest, &self.started) {
            (Some(guest), _) => guest.as_fd(),
            (None, Begun::ByUs(started)) => started.pidfd.as_fd(),
            (None, Begun::ByOthers(handle)) => handle.as_fd(),
        }
    }

    fn kill(&self) {
        let _ = pidfd_send_signal(self.handle(), Signal::KILL);
    }

    fn end(&mut self) {
        match std::mem::replace(&mut self.end, End::Over) {
            End::Over => return,
            End::Killed => self.kill(),
            End::Leaves => {}
        }
        match &self.started {
            Begun::ByUs(started) => {
                let pidfd = started.pidfd.as_fd();
                while let Err(Errno::INTR) = waitid(WaitId::PidFd(pidfd), WaitIdOptions::EXITED) {}
            }
            // Where this process may not signal it, it leaves because its control socket was closed. A frozen one dies when
            // it thaws, and what stands behind it (`Behind`) sees to that.
            Begun::ByOthers(handle) => {
                wait_for_end(handle, FROZEN);
            }
        }
    }
}

/// Waits until a process has ended, or for this long; gives whether it has.
pub(crate) fn wait_for_end(process: impl AsFd, time_limit: Duration) -> bool {
    let deadline = Instant::now() + time_limit;
    loop {
        let left = Timespec::try_from(deadline.saturating_duration_since(Instant::now())).ok();
        match poll(&mut [PollFd::new(&process, PollFlags::IN)], left.as_ref()) {
            Err(Errno::INTR) => {}
            ended => return ended.is_ok_and(|ready| ready > 0),
        }
    }
}

/// A process that was killed and is not gone by now does not run.
const FROZEN: Duration = Duration::from_secs(5);

impl Drop for Process {
    fn drop(&mut self) {
        self.end();
    }
}

/// A setup that the guest is carrying out.
pub(crate) struct PendingSetup {
    stream: UnixStream,
    deadline: Deadline,
}

impl PendingSetup {
    /// One that was just sent on this stream.
    pub(crate) fn sent(stream: UnixStream) -> PendingSetup {
        PendingSetup { stream, deadline: Deadline::usual() }
    }
}

/// When a guest has to be ready, and how long that was.
pub(crate) struct Deadline {
    at: Instant,
    time_limit: Duration,
}

impl Deadline {
    /// The usual one, from now on.
    pub(crate) fn usual() -> Deadline {
        let time_limit = Limits::DEFAULT_READY;
        Deadline { at: Instant::now() + time_limit, time_limit }
    }

    /// What is left of it; never zero, which would mean no end at all.
    fn left(&self) -> Duration {
        self.at.saturating_duration_since(Instant::now()).max(Duration::from_millis(1))
    }
}

/// Writes all of it to a guest that may not read: it may hang before it does.
pub(crate) fn write_by(
    mut stream: &UnixStream,
    bytes: &[u8],
    deadline: &Deadline,
) -> Result<(), SandboxError> {
    let limit = |time| stream.set_write_timeout(time).map_err(|_| guest_gone());
    limit(Some(deadline.left()))?;
    stream.write_all(bytes).map_err(|error| match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => not_ready(deadline.time_limit),
        _ => guest_gone(),
    })?;
    limit(None)
}

/// Why a guest is not ready.
pub(crate) enum SetupFailure {
    /// A step failed.
    Step(Fault),
    /// It ended without a word.
    Silent,
    /// It lives, and has not said in this time that it is ready.
    Late(Duration),
}

/// What a person is told of a guest that hangs. What hangs is mostly a filesystem that it has to look at.
pub(crate) fn not_ready(time_limit: Duration) -> SandboxError {
    ErrorCode::NotReady
        .error(format!("the sandbox was not ready within {time_limit:?}, and was removed"))
        .hint(hint!(
            "a folder it shows may be on a disk or network that does not answer; on a busy machine \
             allow more with {}",
            Term::ReadyTimeout
        ))
}

impl PendingSetup {
    /// Waits for the guest to be confined.
    pub(crate) fn wait(mut self) -> Result<Confined, SetupFailure> {
        let mut reader = FrameReader::default();
        let mut buffer = [0; 4096];
        loop {
            match reader.next_frame() {
                Ok(Some(Frame { tag: Tag::Message, payload })) => {
                    return match message::decode(&payload) {
                        Some(SetupReply::Ready(confined)) => Ok(confined),
                        Some(SetupReply::Failed(fault)) => Err(SetupFailure::Step(fault)),
                        None => Err(SetupFailure::Silent),
                    };
                }
                Ok(None) => {}
                Ok(Some(_)) | Err(_) => return Err(SetupFailure::Silent),
            }
            let Deadline { at, time_limit } = self.deadline;
            let left = at.saturating_duration_since(Instant::now());
            // A time of zero would mean none at all.
            if left.is_zero() || self.stream.set_read_timeout(Some(left)).is_err() {
                return Err(SetupFailure::Late(time_limit));
            }
            match self.stream.read(&mut buffer) {
                Ok(0) => return Err(SetupFailure::Silent),
                Ok(length) => reader.push(&buffer[..length]),
                Err(error) => match error.kind() {
                    ErrorKind::Interrupted => {}
                    ErrorKind::WouldBlock | ErrorKind::TimedOut => {
                        return Err(SetupFailure::Late(time_limit));
                    }
                    _ => return Err(SetupFailure::Silent),
                },
            }
        }
    }
}

/// The guest does not answer, or what comes from it makes no sense.
pub fn guest_gone() -> SandboxError {
    ErrorCode::GuestGone
        .error("the sandbox's first process is gone, and all its commands with it")
        .hint(hint!("make a new sandbox; if this happens again, run {}", Term::Capabilities))
}

#[cfg(test)]
mod tests {
    use super::*;
    use belljar_sys::passing;
    use belljar_wire::message::{Confinement, FileRoot, Privileges, Syscalls};

    fn setup() -> Setup {
        let confinement = Confinement {
            rlimits: Vec::new(),
            privileges: Privileges::Unchanged,
            syscalls: Syscalls::Default,
            landlock: None,
            supervision: None,
        };
        Setup {
            version: belljar_wire::VERSION,
            steps: Vec::new(),
            confinement,
            files: FileRoot::Sandbox,
            workspace: "/".into(),
        }
    }

    fn pending(time_limit: Duration) -> (PendingSetup, UnixStream) {
        let (control_socket, theirs) = ControlSocket::new().expect("a socket");
        let pending = control_socket.send_setup(&setup(), &[]).expect("sent");
        let got = passing::receive(&theirs).expect("received").expect("open");
        let stream = UnixStream::from(got.into_iter().next().expect("a stream"));
        let deadline = Deadline { at: Instant::now() + time_limit, time_limit };
        (PendingSetup { deadline, ..pending }, stream)
    }

    #[test]
    fn a_guest_that_says_nothing_is_late_and_one_that_says_half_a_word_too() {
        for half in [false, true] {
            let (pending, mut stream) = pending(Duration::from_millis(50));
            if half {
                stream.write_all(&[9, 0]).expect("written");
            }
            assert!(matches!(pending.wait(), Err(SetupFailure::Late(_))), "{half}");
        }
    }

    #[test]
    fn a_guest_that_does_not_read_blocks_no_caller() {
        let (ours, _theirs) = UnixStream::pair().expect("a pair");
        let time_limit = Duration::from_millis(50);
        let deadline = Deadline { at: Instant::now() + time_limit, time_limit };
        let written = write_by(&ours, &vec![0; 4 << 20], &deadline);
        assert_eq!(written.expect_err("it was not read").code, ErrorCode::NotReady);
    }

    #[test]
    fn a_guest_that_hangs_up_is_silent_and_not_late() {
        let (pending, stream) = pending(Duration::from_secs(600));
        drop(stream);
        assert!(matches!(pending.wait(), Err(SetupFailure::Silent)));
    }
}
