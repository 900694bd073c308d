//! Starting a command: program, directory and standard streams; then the relay has it.

use crate::relay::{Output, Relay, Watch};
use crate::serve::World;
use crate::stream::{Stream, fault};
use crate::tree;
use belljar_sys::rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use belljar_sys::rustix::io::Errno;
use belljar_sys::rustix::pipe::{PipeFlags, pipe_with};
use belljar_sys::rustix::process::{Pid, PidfdFlags, Resource, getpid, getrlimit, pidfd_open};
use belljar_sys::spawn::{Command, Owner, Supervised, Terminal, spawn_supervised};
use belljar_sys::terminal;
use belljar_wire::message::{Bytes, Exec, ExecEvent, Fault, OPEN_TERMINAL, Stdio};
use std::ffi::CString;
use std::io;

/// Runs a command to its end over `stream`; says when it was `started`, or could not be.
pub(crate) fn run(
    world: &World,
    request: Exec,
    mut stream: Stream,
    watch: Watch<'_>,
    started: &dyn Fn(),
) -> io::Result<()> {
    let outcome = {
        let Some(_going) = world.pause.going() else {
            started();
            return stream.send_message(&ExecEvent::Paused);
        };
        start(world, &request)
    };
    started();
    match outcome {
        Ok((running, ends)) => Relay::new(stream, running, ends, world.place.is_private(), watch)?.run(),
        // It was killed before it could say anything: by what it started.
        Err(fault) if fault.errno == Errno::CHILD.raw_os_error() => {
            tree::kill_below_us();
            stream.send_message(&ExecEvent::SupervisorLost)
        }
        Err(fault) => stream.send_message(&ExecEvent::NotStarted(fault)),
    }
}

/// A command, and how all that descends from it is found.
pub(crate) struct Running {
    pub(crate) supervised: Supervised,
    pub(crate) mark: Option<u64>,
}

/// Our ends of a command's standard streams.
pub(crate) struct Ends {
    pub(crate) stdin: OwnedFd,
    pub(crate) outputs: Vec<Output>,
    /// Set when all of them are one terminal.
    pub(crate) terminal: Option<OwnedFd>,
}

fn start(world: &World, request: &Exec) -> Result<(Running, Ends), Fault> {
    let program = request.argv.first().ok_or_else(|| fault("run an empty command", Errno::INVAL))?;
    let name = String::from_utf8_lossy(&program.0);
    let strings = |list: &mut dyn Iterator<Item = Vec<u8>>| -> Result<Vec<CString>, Fault> {
        list.map(|bytes| CString::new(bytes).map_err(|_| fault(format!("run {name}"), Errno::INVAL)))
            .collect()
    };
    let argv = strings(&mut request.argv.iter().map(|arg| arg.0.clone()))?;
    let env = strings(&mut request.env.iter().map(|(key, value)| [&key.0, &b"="[..], &value.0].concat()))?;
    let candidates = strings(&mut candidates(&program.0, &request.env).into_iter())?;
    let cwd = world
        .place
        .directory(&request.cwd)
        .map_err(|errno| fault(format!("enter {}", request.cwd), errno))?;
    let doing = |errno: Errno| fault(format!("run {name}"), errno);

    let streams = Streams::open(request.stdio).map_err(|errno| match request.stdio {
        Stdio::Terminal(_) => fault(OPEN_TERMINAL, errno),
        Stdio::Pipes => doing(errno),
    })?;
    let us = match getpid() {
        Pid::INIT => None,
        us => Some(pidfd_open(us, PidfdFlags::empty()).map_err(doing)?),
    };
    let mark = tree::new_mark();
    let limits = world.limits.clone();
    let starting = Starting { candidates, argv, env, cwd, streams, limits, mark, us };
    let (supervised, streams) =
        world.spawner.run(move || starting.spawn()).unwrap_or(Err(Errno::CHILD)).map_err(doing)?;
    let ends = streams.into_ours().map_err(doing)?;
    Ok((Running { supervised, mark }, ends))
}

/// A command with all that it is started with, which may be the work of another thread.
struct Starting {
    candidates: Vec<CString>,
    argv: Vec<CString>,
    env: Vec<CString>,
    cwd: OwnedFd,
    streams: Streams,
    limits: Vec<(Resource, u64)>,
    mark: Option<u64>,
    /// This process, where commands do not end with it by themselves.
    us: Option<OwnedFd>,
}

impl Starting {
    fn spawn(self) -> Result<(Supervised, Streams), Errno> {
        let orphaned = [c"/proc/self/exe", tree::ORPHANED].map(CString::from);
        let supervised = spawn_supervised(&Command {
            candidates: &self.candidates,
            argv: &self.argv,
            env: &self.env,
            cwd: self.cwd.as_fd(),
            stdio: self.streams.theirs(),
            terminal: self.streams.terminal(),
            limits: &self.limits,
            mark: self.mark,
            owner: self.us.as_ref().map(|us| Owner { process: us.as_fd(), then: &orphaned }),
        })?;
        Ok((supervised, self.streams))
    }
}

/// The kernel's numbers as its names: asm-generic/resource.h. No command may get a higher limit than the guest itself has;
/// a lower one satisfies the request too.
pub(crate) fn limits(numbers: &[(u32, u64)]) -> Result<Vec<(Resource, u64)>, Fault> {
    let known = [
        (2, Resource::Data),
        (4, Resource::Core),
        (6, Resource::Nproc),
        (7, Resource::Nofile),
        (11, Resource::Sigpending),
        (12, Resource::Msgqueue),
    ];
    let named = |(number, value): &(u32, u64)| {
        let resource = known.iter().find(|(known, _)| known == number).map(|(_, resource)| *resource);
        let held = |resource| getrlimit(resource).maximum.map_or(*value, |most| most.min(*value));
        resource
            .map(|resource| (resource, held(resource)))
            .ok_or_else(|| fault(format!("set limit {number}"), Errno::INVAL))
    };
    numbers.iter().map(named).collect()
}

/// Where to look for a program, in order: as a shell does.
fn candidates(program: &[u8], env: &[(Bytes, Bytes)]) -> Vec<Vec<u8>> {
    if program.contains(&b'/') {
        return vec![program.to_vec()];
    }
    let path =
        env.iter().find(|(key, _)| key.0 == b"PATH").map_or(&b"/usr/bin:/bin"[..], |(_, value)| &value.0);
    path.split(|byte| *byte == b':')
        .filter(|directory| !directory.is_empty())
        .map(|directory| [directory, b"/", program].concat())
        .collect()
}

/// Both ends of a command's standard streams.
enum Streams {
    Pipes { stdin: (OwnedFd, OwnedFd), stdout: (OwnedFd, OwnedFd), stderr: (OwnedFd, OwnedFd) },
    Terminal(terminal::Pair),
}

impl Streams {
    fn open(stdio: Stdio) -> Result<Streams, Errno> {
        Ok(match stdio {
            Stdio::Pipes => Streams::Pipes {
                stdin: pipe_with(PipeFlags::CLOEXEC)?,
                stdout: pipe_with(PipeFlags::CLOEXEC)?,
                stderr: pipe_with(PipeFlags::CLOEXEC)?,
            },
            Stdio::Terminal(size) => Streams::Terminal(terminal::open_pair(size.rows, size.cols)?),
        })
    }

    fn theirs(&self) -> [BorrowedFd<'_>; 3] {
        match self {
            Streams::Pipes { stdin, stdout, stderr } => [stdin.0.as_fd(), stdout.1.as_fd(), stderr.1.as_fd()],
            Streams::Terminal(pair) => [pair.terminal.as_fd(), pair.terminal.as_fd(), pair.terminal.as_fd()],
        }
    }

    fn terminal(&self) -> Terminal {
        match self {
            Streams::Pipes { .. } => Terminal::Absent,
            Streams::Terminal(_) => Terminal::Controlling,
        }
    }

    /// Ours; theirs are closed.
    fn into_ours(self) -> Result<Ends, Errno> {
        Ok(match self {
            Streams::Pipes { stdin, stdout, stderr } => Ends {
                stdin: stdin.1,
                outputs: vec![Output::stdout(stdout.0), Output::stderr(stderr.0)],
                terminal: None,
            },
            Streams::Terminal(pair) => Ends {
                stdin: pair.controller.try_clone().map_err(|_| Errno::MFILE)?,
                outputs: vec![Output::stdout(pair.controller.try_clone().map_err(|_| Errno::MFILE)?)],
                terminal: Some(pair.controller),
            },
        })
    }
}
