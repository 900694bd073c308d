//! The process of a shim, as the daemon that started it sees it: its standard streams, and a handle to it.

use super::life;
use super::zygote::Zygote;
use crate::shim::zygote::Order;
use belljar_sys::rustix::fd::{AsFd, OwnedFd};
use belljar_sys::rustix::io::Errno;
use belljar_sys::rustix::pipe::{PipeFlags, pipe_with};
use belljar_sys::rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, pidfd_open, pidfd_send_signal, waitid,
};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use tokio::io::unix::AsyncFd;
use tokio::net::unix::pipe;
use tokio::task::spawn_blocking;

/// What starts shims.
#[derive(Debug, Clone)]
pub(super) enum Spawner {
    Zygote(Arc<Zygote>),
    /// This program in the place of belljar, for tests.
    Program(PathBuf),
}

/// A shim that was started, our child.
#[derive(Debug)]
pub(super) struct ShimProcess {
    pub(super) pid: u32,
    pub(super) stdin: Option<pipe::Sender>,
    pub(super) stdout: Option<pipe::Receiver>,
    handle: AsyncFd<OwnedFd>,
}

impl Spawner {
    /// Starts a shim that writes what it has to say to `stderr`.
    pub(super) async fn spawn(&self, order: Order, stderr: OwnedFd) -> io::Result<ShimProcess> {
        match self.try_spawn(order.clone(), stderr.try_clone()?).await {
            // The zygote was killed: the next attempt starts another one.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => self.try_spawn(order, stderr).await,
            outcome => outcome,
        }
    }

    async fn try_spawn(&self, order: Order, stderr: OwnedFd) -> io::Result<ShimProcess> {
        let (input, stdin) = pipe_with(PipeFlags::CLOEXEC)?;
        let (stdout, output) = pipe_with(PipeFlags::CLOEXEC)?;
        let streams = [input, output, stderr];
        let (pid, pidfd) = match self {
            Spawner::Zygote(zygote) => {
                let zygote = Arc::clone(zygote);
                let made = spawn_blocking(move || zygote.make(&order, streams.each_ref().map(AsFd::as_fd)));
                let made = made.await.map_err(io::Error::other)??;
                (made.pid, made.pidfd)
            }
            Spawner::Program(program) => execute(program, &order, streams)?,
        };
        Ok(ShimProcess {
            pid,
            stdin: Some(pipe::Sender::from_owned_fd(stdin)?),
            stdout: Some(pipe::Receiver::from_owned_fd(stdout)?),
            handle: life::watched(pidfd)?,
        })
    }
}

impl ShimProcess {
    /// Its exit code when it has ended; nothing where a signal ended it.
    pub(super) async fn wait(&self) -> Option<i32> {
        let _ = self.handle.readable().await;
        loop {
            match waitid(WaitId::PidFd(self.handle.as_fd()), WaitIdOptions::EXITED) {
                Err(Errno::INTR) => {}
                ended => return ended.ok().flatten()?.exit_status(),
            }
        }
    }

    pub(super) fn kill(&self) {
        let _ = pidfd_send_signal(self.handle.as_fd(), Signal::KILL);
    }
}

fn execute(program: &Path, order: &Order, streams: [OwnedFd; 3]) -> io::Result<(u32, OwnedFd)> {
    let [input, output, error] = streams.map(Stdio::from);
    let mut command = as_belljar(Command::new(program));
    command.envs(order.environment.iter().map(|(name, value)| (name, value)));
    let child =
        command.arg("shim").arg(&order.directory).stdin(input).stdout(output).stderr(error).spawn()?;
    let pid = Pid::from_child(&child);
    Ok((child.id(), pidfd_open(pid, PidfdFlags::empty())?))
}

/// Without what ends with the daemon, or belongs to it alone.
pub(super) fn as_belljar(mut command: Command) -> Command {
    for own in
        ["LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES", "NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"]
    {
        command.env_remove(own);
    }
    command.arg0("belljar").current_dir("/");
    command
}
