//! A running git, which is guaranteed to end.

use super::call::{Finished, GitError};
use super::leash::{Leash, Tie, handle_of, has_ended};
use belljar_sys::orphan::Lifeline;
use belljar_sys::rustix::io::Errno;
use belljar_sys::rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, kill_process_group, pidfd_send_signal, waitid,
};
use std::io::Read;
use std::ops::{Deref, DerefMut};
use std::process::{Child, ExitStatus, Output};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

/// A running git. Dropping it ends git and all its children, and leaves no zombie.
pub struct Running {
    child: Child,
    tie: Option<Tie>,
    /// The kernel kills its process group through this when we are gone.
    _lifeline: Lifeline,
}

impl Running {
    pub(super) fn new(child: Child, lifeline: Lifeline) -> Running {
        Running { child, tie: None, _lifeline: lifeline }
    }

    /// Puts it on a leash, which counts its processor time.
    pub(super) fn tie(&mut self, leash: &Leash) -> Result<(), GitError> {
        self.tie = Some(leash.hold(&self.child)?);
        Ok(())
    }

    /// Kills it after the time limit, which also unblocks the reader of its output. Its child processes end when this is dropped.
    pub(super) fn end_after(&self, time_limit: Duration) -> Result<(), GitError> {
        let handle = handle_of(&self.child)?;
        let watch = move || {
            if !has_ended(&handle, Instant::now() + time_limit) {
                let _ = pidfd_send_signal(&handle, Signal::KILL);
            }
        };
        let named = thread::Builder::new().name("git-deadline".to_string());
        named.spawn(watch).map(drop).map_err(GitError::Start)
    }

    /// Ends it and all its children.
    pub fn end(&mut self) {
        // The process id is still its own: it has not been waited for, or this does nothing.
        if let (Ok(false), Some(group)) = (self.has_ended(), self.pid()) {
            // Its children are ended with it, before it can wait for them, so their time is counted only here: otherwise a client
            // could avoid the charge by hanging up in the middle of a fetch.
            if let Some(tie) = &self.tie {
                tie.spend(used_below(self.child.id(), DEEPEST));
            }
            let _ = kill_process_group(group, Signal::KILL);
            let _ = self.child.kill();
        }
        let _ = self.reap();
    }

    fn pid(&self) -> Option<Pid> {
        Pid::from_raw(self.child.id().cast_signed())
    }

    /// Whether it has ended; it is not reaped yet, so that its usage can still be read.
    fn has_ended(&self) -> std::io::Result<bool> {
        self.look(WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG)
    }

    fn look(&self, how: WaitIdOptions) -> std::io::Result<bool> {
        let Some(pid) = self.pid() else { return Ok(true) };
        loop {
            match waitid(WaitId::Pid(pid), how) {
                Ok(found) => return Ok(found.is_some()),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Waits for it, and notes its usage.
    fn reap(&mut self) -> std::io::Result<ExitStatus> {
        if self.look(WaitIdOptions::EXITED | WaitIdOptions::NOWAIT).is_ok()
            && let Some(tie) = self.tie.take()
        {
            tie.spend(used(self.child.id()).unwrap_or_default());
        }
        self.child.wait()
    }

    /// Reads all it prints, and waits for it.
    pub fn wait_with_output(mut self) -> std::io::Result<Output> {
        drop(self.child.stdin.take());
        let stderr = self.child.stderr.take();
        let errors = thread::spawn(move || read_up_to(stderr, u64::MAX).0);
        let (stdout, _) = read_up_to(self.child.stdout.take(), u64::MAX);
        let status = self.reap()?;
        Ok(Output { status, stdout, stderr: errors.join().unwrap_or_default() })
    }

    /// Reads what it prints, up to a limit, and waits for it until a deadline.
    pub(super) fn finish(
        mut self,
        words: &str,
        limit: u64,
        time_limit: Duration,
    ) -> Result<Finished, GitError> {
        let deadline = Instant::now() + time_limit;
        let slow = || GitError::TooSlow { words: words.to_string(), seconds: time_limit.as_secs() };
        let stdout = reader(self.child.stdout.take(), limit);
        let stderr = reader(self.child.stderr.take(), MAX_COMPLAINT_BYTES);
        // Readers are not joined: a child that git left behind in another session could hold a pipe open for ever.
        let (stdout, whole) = before(deadline, &stdout).ok_or_else(slow)?;
        if !whole {
            return Err(GitError::TooMuch { words: words.to_string(), limit });
        }
        let (stderr, _) = before(deadline, &stderr).ok_or_else(slow)?;
        let mut pause = Duration::from_micros(200);
        loop {
            if self.has_ended().map_err(GitError::Start)? {
                let status = self.reap().map_err(GitError::Start)?;
                return Ok(Finished { code: status.code(), stdout, stderr });
            }
            if Instant::now() >= deadline {
                return Err(slow());
            }
            thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(20));
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.end();
    }
}

impl Deref for Running {
    type Target = Child;

    fn deref(&self) -> &Child {
        &self.child
    }
}

impl DerefMut for Running {
    fn deref_mut(&mut self) -> &mut Child {
        &mut self.child
    }
}

/// Processor time of a process that has ended and was not waited for, and of those that it waited for (proc_pid_stat(5)).
fn used(process: u32) -> Option<Duration> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name is in parentheses, and may contain any character.
    let (_, fields) = stat.rsplit_once(") ")?;
    let ticks: u64 = fields.split(' ').skip(11).take(4).filter_map(|ticks| ticks.parse::<u64>().ok()).sum();
    Some(Duration::from_millis(ticks.saturating_mul(1000 / TICKS_PER_SECOND)))
}

/// Processor time of a process's descendants that were not waited for yet (proc_pid_task_children).
fn used_below(process: u32, levels: u32) -> Duration {
    let children = std::fs::read_to_string(format!("/proc/{process}/task/{process}/children"));
    let children = children.unwrap_or_default();
    let children = children.split_ascii_whitespace().filter_map(|child| child.parse().ok());
    let of = |child: u32| {
        let below = levels.checked_sub(1).map(|levels| used_below(child, levels));
        used(child).unwrap_or_default() + below.unwrap_or_default()
    };
    children.map(of).sum()
}

/// Bytes, and whether the output is complete.
type Read0 = (Vec<u8>, bool);

fn before(deadline: Instant, reader: &Receiver<Read0>) -> Option<Read0> {
    match reader.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
        Ok(read) => Some(read),
        Err(RecvTimeoutError::Timeout) => None,
        // The thread could not be started or died; nothing was read.
        Err(RecvTimeoutError::Disconnected) => Some((Vec::new(), true)),
    }
}

fn reader(pipe: Option<impl Read + Send + 'static>, limit: u64) -> Receiver<Read0> {
    let (sender, receiver): (Sender<Read0>, _) = channel();
    thread::spawn(move || sender.send(read_up_to(pipe, limit)));
    receiver
}

/// Reads up to a limit; the rest stays unread, so the writer blocks.
fn read_up_to(pipe: Option<impl Read>, limit: u64) -> Read0 {
    let mut bytes = Vec::new();
    let Some(pipe) = pipe else { return (bytes, true) };
    let _ = pipe.take(limit.saturating_add(1)).read_to_end(&mut bytes);
    let whole = bytes.len() as u64 <= limit;
    if !whole {
        bytes.pop();
    }
    (bytes, whole)
}

/// Error output is for a message of one line.
const MAX_COMPLAINT_BYTES: u64 = 256 * 1024;
/// `git`, `upload-pack`, `pack-objects`.
const DEEPEST: u32 = 3;
/// USER_HZ, the same on every machine that we run on (time(7)).
const TICKS_PER_SECOND: u64 = 100;
