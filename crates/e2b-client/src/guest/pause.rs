//! Pausing: the service keeps the memory and the processes of the sandbox, and no file can be read or written meanwhile.
//!
//! A service breaks every stream of a sandbox that it pauses, and tells a client that follows a command again nothing of what the command
//! wrote before. So that no output is lost, all processes are stopped before the service pauses the sandbox, and go on when every
//! command is followed again.

use super::Remote;
use super::fault::{failed, fault};
use crate::rpc::CallError;
use belljar_spec::SandboxError;
use belljar_sys::rustix::io::Errno;
use belljar_wire::message::Fault;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};
use tracing::warn;

/// Whether a sandbox is paused, and how many of its commands are followed.
pub(super) struct Pause {
    is_paused: watch::Sender<bool>,
    followed: AtomicUsize,
    commands: AtomicUsize,
    /// The processes that were stopped; held while that changes.
    stopped: tokio::sync::Mutex<Vec<String>>,
}

impl Default for Pause {
    fn default() -> Pause {
        Pause {
            is_paused: watch::Sender::new(false),
            followed: AtomicUsize::new(0),
            commands: AtomicUsize::new(0),
            stopped: tokio::sync::Mutex::default(),
        }
    }
}

/// A command that is followed, or will be again.
pub(super) struct Following<'p> {
    pause: &'p Pause,
    is_followed: bool,
}

impl Pause {
    pub(super) fn is_paused(&self) -> bool {
        *self.is_paused.borrow()
    }

    /// Returns when it is paused.
    pub(super) async fn paused(&self) {
        self.becomes(true).await;
    }

    /// Returns when it is not.
    pub(super) async fn running(&self) {
        self.becomes(false).await;
    }

    async fn becomes(&self, state: bool) {
        // The sender is ours, so it is there.
        let _ = self.is_paused.subscribe().wait_for(|now| *now == state).await;
    }

    /// A command is followed from now on.
    pub(super) fn following(&self) -> Following<'_> {
        self.commands.fetch_add(1, Ordering::SeqCst);
        self.followed.fetch_add(1, Ordering::SeqCst);
        Following { pause: self, is_followed: true }
    }

    /// Waits until each command is followed, or none is.
    async fn settles(&self, is_followed: bool) {
        let deadline = Instant::now() + SETTLE_TIMEOUT;
        loop {
            let expected = if is_followed { self.commands.load(Ordering::SeqCst) } else { 0 };
            if self.followed.load(Ordering::SeqCst) == expected || Instant::now() > deadline {
                return;
            }
            sleep(SETTLE_INTERVAL).await;
        }
    }
}

impl Following<'_> {
    pub(super) fn is_broken(&mut self) {
        if std::mem::replace(&mut self.is_followed, false) {
            self.pause.followed.fetch_sub(1, Ordering::SeqCst);
        }
    }

    pub(super) fn goes_on(&mut self) {
        if !std::mem::replace(&mut self.is_followed, true) {
            self.pause.followed.fetch_add(1, Ordering::SeqCst);
        }
    }
}

impl Drop for Following<'_> {
    fn drop(&mut self) {
        self.is_broken();
        self.pause.commands.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Pauses the sandbox, with its memory.
pub(super) async fn pause(remote: &Remote) -> Result<(), Fault> {
    let mut stopped = remote.pause.stopped.lock().await;
    if remote.pause.is_paused() {
        return Ok(());
    }
    *stopped = stop(remote).await.map_err(|error| failed("pause", &error))?;
    // What was written is on its way: it arrives before the service breaks the streams.
    sleep(DRAIN_TIME).await;
    if let Err(error) = remote.shared.pause(&remote.envd.id, true).await {
        warn!(%error, "a remote sandbox was not paused");
        let _ = go_on(remote, &std::mem::take(&mut *stopped)).await;
        return Err(fault("pause", Errno::IO));
    }
    remote.pause.is_paused.send_replace(true);
    remote.pause.settles(false).await;
    Ok(())
}

/// Resumes it.
pub(super) async fn resume(remote: &Remote) -> Result<(), Fault> {
    let mut stopped = remote.pause.stopped.lock().await;
    if !remote.pause.is_paused() {
        return Ok(());
    }
    let refused = |error: SandboxError| {
        warn!(%error, "a remote sandbox was not resumed");
        fault("resume", Errno::IO)
    };
    remote.shared.connect(&remote.envd.id, remote.lifetime_s).await.map_err(refused)?;
    remote.pause.is_paused.send_replace(false);
    remote.pause.settles(true).await;
    go_on(remote, &std::mem::take(&mut *stopped)).await.map_err(|error| failed("resume", &error))
}

/// Stops all processes that the user may signal, but those that are needed to say so; gives those that did not stand still before.
async fn stop(remote: &Remote) -> Result<Vec<String>, CallError> {
    let (_, output) = remote.envd.script(STOP, &[]).await?;
    let mut stopped: Vec<String> = Vec::new();
    for pid in output.lines().filter(|pid| pid.bytes().all(|byte| byte.is_ascii_digit())) {
        if !stopped.iter().any(|known| known == pid) {
            stopped.push(pid.to_string());
        }
    }
    Ok(stopped)
}

/// Those that were started last first: what waits for another is to find it running.
async fn go_on(remote: &Remote, stopped: &[String]) -> Result<(), CallError> {
    let pids: Vec<&str> = stopped.iter().rev().map(String::as_str).collect();
    for some in pids.chunks(PROCESSES_AT_ONCE) {
        remote.envd.script(CONTINUE, some).await?;
    }
    Ok(())
}

/// Round by round, since what runs makes others. The shell's parent may be what tells of its end. proc_pid_stat(5)
const STOP: &str = r#"
round=0
while [ "$round" -lt 50 ]; do
    found=
    for stat in /proc/[0-9]*/stat; do
        pid=${stat#/proc/}; pid=${pid%/stat}
        case $pid in 1 | $$ | $PPID) continue ;; esac
        read -r line 2>/dev/null <"$stat" || continue
        case ${line##*) } in T* | Z* | X*) continue ;; esac
        kill -STOP "$pid" 2>/dev/null && { echo "$pid"; found=1; }
    done
    [ -n "$found" ] || break
    round=$((round + 1))
done"#;
const CONTINUE: &str = r#"for pid; do kill -CONT "$pid" 2>/dev/null; done; :"#;
const PROCESSES_AT_ONCE: usize = 1000;
/// Some round trips.
const DRAIN_TIME: Duration = Duration::from_millis(100);
/// A command that is not followed by then, or still is, has a connection that hangs.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(10);
const SETTLE_INTERVAL: Duration = Duration::from_millis(5);
