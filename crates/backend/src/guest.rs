//! A guest as its host sees it: a process, and a door through which streams are opened.

use crate::Plan;
use crate::cgroup::{Cgroup, Counters};
use crate::layout::Layout;
use crate::stubs::{Stubs, Turn};
use belljar_spec::SandboxError;
use belljar_sys::launch::{LaunchFailure, Started};
use belljar_sys::passing;
use belljar_sys::rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use belljar_sys::rustix::io::Errno;
use belljar_sys::rustix::net::{AddressFamily, Shutdown, SocketFlags, SocketType, shutdown, socketpair};
use belljar_sys::rustix::process::{Signal, WaitId, WaitIdOptions, pidfd_send_signal, waitid};
use belljar_wire::frame::{self, Frame, FrameReader, Tag};
use belljar_wire::message::{self, Fault, IntakeReport, Sealed, Setup, SetupReply};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

/// A guest that takes requests. Dropped, it is killed, with everything it started.
pub struct Guest {
    door: Door,
    process: Process,
    cgroup: Option<Cgroup>,
    sealed: Sealed,
    first: Option<UnixStream>,
    way_out: Vec<OwnedFd>,
    /// What was made for it in folders of the host.
    stubs: Option<Stubs>,
}

impl Guest {
    /// A guest that was just started and knows nothing yet.
    pub(crate) fn starting(door: Door, process: Process, cgroup: Option<Cgroup>) -> Guest {
        Guest {
            door,
            process,
            cgroup,
            sealed: Sealed { landlock_abi: 0, intake: None },
            first: None,
            way_out: Vec::new(),
            stubs: None,
        }
    }

    /// Makes what its mounts need in folders of the host.
    pub(crate) fn make_stubs(&mut self, plan: &Plan, layout: &Layout) -> Result<(), SandboxError> {
        let turn = Turn::take(plan, layout)?;
        self.stubs = Stubs::begin(plan, layout, self.process.handle())?;
        // Held by us already: where this fails they go away after the guest, and not before.
        self.stubs.as_ref().map_or(Ok(()), |stubs| stubs.make(layout))?;
        turn.check(layout)
    }

    /// Tells it everything, with the mounts that belong to it.
    pub(crate) fn send_setup(
        &self,
        setup: &Setup,
        mounts: &[BorrowedFd<'_>],
    ) -> Result<PendingSetup, SandboxError> {
        self.door.send_setup(setup, mounts).map_err(|gone| self.process.cause_of_death().unwrap_or(gone))
    }

    /// Sends the plan's first request, if it has one, behind the setup.
    pub(crate) fn send_first(&mut self, plan: &Plan, layout: &Layout) -> Result<(), SandboxError> {
        if let Some(request) = plan.first_request(layout) {
            let mut stream = self.open_stream()?;
            stream.write_all(&request).map_err(|_| guest_gone())?;
            self.first = Some(stream);
        }
        Ok(())
    }

    /// The stream of the plan's first request.
    pub fn take_first(&mut self) -> Option<UnixStream> {
        self.first.take()
    }

    /// Waits until it is sealed.
    pub(crate) fn finish(&mut self, pending: PendingSetup) -> Result<(), SetupFailure> {
        self.sealed = pending.wait().map_err(|failure| match (failure, self.process.launch_failure()) {
            (SetupFailure::Silent, Some(failure)) => {
                SetupFailure::Step(Fault { doing: failure.step.into(), errno: failure.errno.raw_os_error() })
            }
            (failure, _) => failure,
        })?;
        if self.sealed.intake.is_some() {
            // It was sent before the answer.
            self.way_out = passing::receive(&self.door.0).ok().flatten().ok_or(SetupFailure::Silent)?;
        }
        Ok(())
    }

    /// The sockets of its way out, if it has one.
    pub fn take_way_out(&mut self) -> Option<(IntakeReport, Vec<OwnedFd>)> {
        Some((self.sealed.intake.clone()?, std::mem::take(&mut self.way_out)))
    }

    /// A new stream to the guest, for one request.
    pub fn open_stream(&self) -> Result<UnixStream, SandboxError> {
        self.door.open_stream(&[]).map_err(|errno| match errno {
            Errno::PIPE | Errno::CONNRESET | Errno::NOTCONN => guest_gone(),
            other => {
                SandboxError::runtime("guest_stream", format!("cannot open a stream to the guest: {other}"))
            }
        })
    }

    /// What the kernel counted of this sandbox's limits; zeros where it counts none.
    pub fn counters(&self) -> Counters {
        self.cgroup.as_ref().map(Cgroup::counters).unwrap_or_default()
    }

    /// The version of the second wall, Landlock; 0 for none.
    pub fn landlock_abi(&self) -> u32 {
        self.sealed.landlock_abi
    }

    /// Kills the guest and everything it started, where that needs nobody's help, and waits for nothing.
    pub fn kill(&self) {
        if self.process.end == End::Killed {
            self.process.kill();
        }
    }

    /// Kills the guest and everything it started, and waits until they are gone.
    pub fn stop(self) {
        drop(self);
    }

    /// Kills the guest and everything it started, and waits only where something has to be taken away after them. For
    /// a process that is about to exit, and so leaves nobody unreaped.
    pub fn abandon(mut self) {
        if self.cgroup.is_none() && self.stubs.is_none() && self.process.end == End::Killed {
            self.process.kill();
            self.process.end = End::Over;
        }
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.door.close();
        self.process.end();
        // Only now can they be removed.
        self.cgroup = None;
        self.stubs = None;
    }
}

/// The process of a guest, or of the program that started it.
pub(crate) struct Process {
    started: Started,
    /// The guest itself, where another program started it and ends after it.
    guest: Option<OwnedFd>,
    end: End,
}

/// How a guest's process ends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    /// By our signal: killing process 1 takes its whole namespace along.
    Killed,
    /// By itself, when the door closes: it has a tree to kill first.
    Leaves,
    /// It did.
    Over,
}

impl Process {
    /// Process 1 of a namespace.
    pub(crate) fn init(started: Started) -> Process {
        Process { started, guest: None, end: End::Killed }
    }

    /// Process 1 of a namespace that another program made. Without a handle to it, it still leaves when the door closes.
    pub(crate) fn behind(started: Started, guest: Option<OwnedFd>) -> Process {
        let end = if guest.is_some() { End::Killed } else { End::Leaves };
        Process { started, guest, end }
    }

    /// A guest without a namespace.
    pub(crate) fn without_namespace(started: Started) -> Process {
        Process { started, guest: None, end: End::Leaves }
    }

    /// The step before the exec that failed, if one did. Waits for the exec.
    fn launch_failure(&self) -> Option<LaunchFailure> {
        self.started.executed().ok().and_then(Result::err)
    }

    fn cause_of_death(&self) -> Option<SandboxError> {
        let failure = self.launch_failure()?;
        let message = format!("the guest could not {}: {}", failure.step, failure.errno);
        Some(SandboxError::runtime("launch_failed", message))
    }

    /// The guest itself, or who ends after it.
    fn handle(&self) -> BorrowedFd<'_> {
        self.guest.as_ref().unwrap_or(&self.started.pidfd).as_fd()
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
        while let Err(Errno::INTR) = waitid(WaitId::PidFd(self.started.pidfd.as_fd()), WaitIdOptions::EXITED)
        {
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.end();
    }
}

/// Our end of the door.
pub(crate) struct Door(OwnedFd);

impl Door {
    /// Both ends: ours, and the guest's.
    pub(crate) fn new() -> Result<(Door, OwnedFd), SandboxError> {
        let (ours, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).map_err(
                |errno| SandboxError::runtime("door", format!("cannot make a socket pair: {errno}")),
            )?;
        Ok((Door(ours), theirs))
    }

    /// The guest on the other side leaves, if it is not killed first.
    fn close(&self) {
        let _ = shutdown(&self.0, Shutdown::Both);
    }

    fn open_stream(&self, more: &[BorrowedFd<'_>]) -> Result<UnixStream, Errno> {
        let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        let descriptors: Vec<_> = std::iter::once(theirs.as_fd()).chain(more.iter().copied()).collect();
        passing::send(&self.0, &descriptors)?;
        Ok(UnixStream::from(ours))
    }

    /// Sends the setup, with the mounts that belong to it; the answer is fetched from the result.
    pub(crate) fn send_setup(
        &self,
        setup: &Setup,
        mounts: &[BorrowedFd<'_>],
    ) -> Result<PendingSetup, SandboxError> {
        let mut bytes = Vec::new();
        frame::encode(Tag::Message, &message::encode(setup), &mut bytes);
        let mut stream = self.open_stream(mounts).map_err(|_| guest_gone())?;
        stream.write_all(&bytes).map_err(|_| guest_gone())?;
        Ok(PendingSetup(stream))
    }
}

/// A setup that the guest is carrying out.
pub(crate) struct PendingSetup(UnixStream);

/// Why a guest is not ready.
pub(crate) enum SetupFailure {
    /// A step failed.
    Step(Fault),
    /// It ended without a word.
    Silent,
}

impl PendingSetup {
    /// Waits for the guest to be sealed.
    pub(crate) fn wait(mut self) -> Result<Sealed, SetupFailure> {
        let mut reader = FrameReader::default();
        let mut buffer = [0; 4096];
        loop {
            match reader.next_frame() {
                Ok(Some(Frame { tag: Tag::Message, payload })) => {
                    return match message::decode(&payload) {
                        Some(SetupReply::Ready(sealed)) => Ok(sealed),
                        Some(SetupReply::Failed(fault)) => Err(SetupFailure::Step(fault)),
                        None => Err(SetupFailure::Silent),
                    };
                }
                Ok(None) => {}
                Ok(Some(_)) | Err(_) => return Err(SetupFailure::Silent),
            }
            match self.0.read(&mut buffer) {
                Ok(0) => return Err(SetupFailure::Silent),
                Ok(length) => reader.push(&buffer[..length]),
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(_) => return Err(SetupFailure::Silent),
            }
        }
    }
}

fn guest_gone() -> SandboxError {
    SandboxError::runtime("guest_gone", "the sandbox's first process is gone, and all its commands with it")
        .hint("make a new sandbox; if this happens again, run `belljar doctor`")
}
