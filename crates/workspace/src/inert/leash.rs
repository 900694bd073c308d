//! Ends all git processes of one sandbox when it cannot wait for them any longer.

use super::call::GitError;
use belljar_sys::before_exec::CgroupEntry;
use belljar_sys::rustix::event::{PollFd, PollFlags, Timespec, poll};
use belljar_sys::rustix::fd::OwnedFd;
use belljar_sys::rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::collections::HashMap;
use std::process::Child;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Tracks every git that was started with it. Cutting the leash ends them all and lets none start; threads that wait for one of
/// them continue.
#[derive(Debug, Clone, Default)]
pub struct Leash {
    held: Arc<Mutex<Held>>,
    /// The cgroup that they all run in, if there is one.
    cgroup: Option<CgroupEntry>,
}

#[derive(Debug, Default)]
struct Held {
    is_cut: bool,
    /// Processor time of all that ran on it and ended.
    spent: Duration,
    /// The limit of that; `None`: no limit.
    allowance: Option<Duration>,
    /// How long all of them together may take; `None`: each has its own time limit.
    time_limit: Option<Duration>,
    /// When that time is over, counted from the first start.
    deadline: Option<Instant>,
    next: u64,
    /// By handles.
    processes: HashMap<u64, OwnedFd>,
}

/// One git on a leash, until this is dropped.
#[derive(Debug)]
pub(super) struct Tie {
    leash: Leash,
    number: u64,
}

impl Leash {
    /// The leash of one sandbox: every git that works for it runs in its cgroup, and all of them together have 30 minutes of processor
    /// time over its life, cgroup or not.
    pub fn of_sandbox(cgroup: Option<CgroupEntry>) -> Leash {
        Leash { cgroup, ..Leash::with_allowance(PROCESSOR_TIME) }
    }

    /// The leash of every git that reads a sandbox's work after the sandbox and its cgroup are gone: resource limits bound the
    /// memory of each, and all together have ten minutes.
    pub fn after_end() -> Leash {
        Leash::with_allowance(TIME_AFTER_END).within(TIME_AFTER_END)
    }

    /// The leash of every git that imports commits of killed sandboxes while a start waits for it: all together have two minutes.
    pub fn before_start() -> Leash {
        Leash::with_allowance(TIME_AFTER_END).within(TIME_BEFORE_START)
    }

    /// A leash on which all together may use this much processor time.
    pub fn with_allowance(allowance: Duration) -> Leash {
        let leash = Leash::default();
        leash.held().allowance = Some(allowance);
        leash
    }

    /// The same, with a time limit for all together, counted from the first start.
    fn within(self, time_limit: Duration) -> Leash {
        self.held().time_limit = Some(time_limit);
        self
    }

    /// The time left for a git that is started now; `None` without a limit for all together.
    pub(super) fn time_left(&self) -> Result<Option<Duration>, GitError> {
        let mut held = self.held();
        let Some(time_limit) = held.time_limit else { return Ok(None) };
        let deadline = *held.deadline.get_or_insert_with(|| Instant::now() + time_limit);
        match deadline.saturating_duration_since(Instant::now()) {
            Duration::ZERO => Err(GitError::Late { seconds: time_limit.as_secs() }),
            left => Ok(Some(left)),
        }
    }

    pub(super) fn cgroup(&self) -> Option<&CgroupEntry> {
        self.cgroup.as_ref()
    }

    /// Refuses to start another one when the allowance is used up.
    pub(super) fn refuse_if_spent(&self) -> Result<(), GitError> {
        let held = self.held();
        match held.allowance {
            Some(allowance) if held.spent >= allowance => {
                Err(GitError::Spent { seconds: allowance.as_secs() })
            }
            Some(_) | None => Ok(()),
        }
    }

    /// The rest of the allowance for the next git, in whole seconds.
    pub(super) fn seconds_left(&self) -> Option<u64> {
        let held = self.held();
        held.allowance.map(|allowance| allowance.saturating_sub(held.spent).as_secs() + 1)
    }

    /// Ends them all.
    pub fn cut(&self) {
        let mut held = self.held();
        held.is_cut = true;
        let processes: Vec<OwnedFd> = held.processes.drain().map(|(_, process)| process).collect();
        drop(held);
        // On SIGTERM, git removes its locks and unfinished files; one that ignores it is killed.
        for process in &processes {
            let _ = pidfd_send_signal(process, Signal::TERM);
        }
        let until = Instant::now() + PAUSE;
        for process in &processes {
            if !has_ended(process, until) {
                let _ = pidfd_send_signal(process, Signal::KILL);
            }
        }
    }

    pub fn is_cut(&self) -> bool {
        self.held().is_cut
    }

    /// Adds a git that was just started, and not waited for. Fails if the leash is cut: then the caller should end it.
    pub(super) fn hold(&self, child: &Child) -> Result<Tie, GitError> {
        let process = handle_of(child)?;
        let mut held = self.held();
        if held.is_cut {
            return Err(GitError::Ended);
        }
        let number = held.next;
        held.next += 1;
        held.processes.insert(number, process);
        Ok(Tie { leash: self.clone(), number })
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Tie {
    /// Notes that it has ended, and the processor time it used.
    pub(super) fn spend(&self, time: Duration) {
        self.leash.held().spent += time;
    }
}

impl Drop for Tie {
    fn drop(&mut self) {
        self.leash.held().processes.remove(&self.number);
    }
}

/// A pidfd of a git that was just started, and not waited for: a process id could be reused by the time it is needed.
pub(super) fn handle_of(child: &Child) -> Result<OwnedFd, GitError> {
    let process = Pid::from_raw(child.id().cast_signed()).ok_or(GitError::Ended)?;
    pidfd_open(process, PidfdFlags::empty()).map_err(|error| GitError::Start(error.into()))
}

/// Waits for its end, up to a deadline.
pub(super) fn has_ended(process: &OwnedFd, until: Instant) -> bool {
    let mut files = [PollFd::new(process, PollFlags::IN)];
    let Ok(left) = Timespec::try_from(until.saturating_duration_since(Instant::now())) else { return false };
    poll(&mut files, Some(&left)).is_ok_and(|ready| ready > 0)
}

/// Enough time to remove a few files.
const PAUSE: Duration = Duration::from_secs(1);
/// Pushes and fetches follow each other as long as a sandbox lives. The largest push that is allowed takes half a minute.
const PROCESSOR_TIME: Duration = Duration::from_secs(30 * 60);
/// Importing the largest push that is allowed takes two minutes where the processor is slow.
const TIME_AFTER_END: Duration = Duration::from_secs(10 * 60);
/// A user waits for it.
const TIME_BEFORE_START: Duration = Duration::from_secs(2 * 60);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_all_together_begins_with_the_first() {
        let leash = Leash::default().within(Duration::from_millis(20));
        std::thread::sleep(Duration::from_millis(30));
        assert!(matches!(leash.time_left(), Ok(Some(_))));
        std::thread::sleep(Duration::from_millis(30));
        assert!(matches!(leash.time_left(), Err(GitError::Late { .. })));
        assert!(matches!(Leash::default().time_left(), Ok(None)));
    }
}
