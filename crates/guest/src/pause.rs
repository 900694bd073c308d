//! Pauses and resumes all processes of the sandbox.
//!
//! `kill(-1, SIGSTOP)` by process 1 means every process of its namespace but itself. It is atomic against forks: the kernel
//! goes through all processes under `tasklist_lock`, a new one is entered under the same lock, and one that is being made
//! meanwhile gets the signal as its first (`multiprocess` in kernel/fork.c). No process can block, ignore or handle it. So
//! no process escapes, and none forks afterwards: the list of processes no longer changes.
//!
//! But a process that has not seen its own signal yet can still send SIGCONT to one that has. So the signal is sent again
//! until two looks have found all processes stopped; then none is left to send anything. (That also covers kernels that are
//! less strict about forks.)
//!
//! A shell that runs while its child is stopped takes that for a Ctrl-Z. So as long as no process forks in between, parents
//! stop before their children do, and continue after them.

use crate::tree::{self, Handle, Process, Stillness};
use belljar_sys::rustix::io::Errno;
use belljar_sys::rustix::process::{Pid, Signal, getpid};
use belljar_sys::signal::signal_all;
use std::collections::HashSet;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, TryLockError};
use std::thread;
use std::time::{Duration, Instant};

/// Whether all processes are stopped.
#[derive(Default)]
pub(crate) struct Pause {
    state: RwLock<State>,
}

#[derive(Default)]
pub(crate) enum State {
    #[default]
    Going,
    /// A process inside had stopped these already; they stay stopped.
    Paused(HashSet<Process>),
}

impl Pause {
    /// Held while a command is started: no pause can begin meanwhile. `None` while paused.
    pub(crate) fn going(&self) -> Option<RwLockReadGuard<'_, State>> {
        let state = self.state.read().unwrap_or_else(PoisonError::into_inner);
        matches!(*state, State::Going).then_some(state)
    }

    /// Stops all processes.
    pub(crate) fn pause(&self) -> Result<(), Errno> {
        if getpid() != Pid::INIT {
            return Err(Errno::PERM);
        }
        let mut state = self.change()?;
        if let State::Paused(_) = *state {
            return Ok(());
        }
        let below = tree::below_us().ok_or(Errno::BUSY)?.into_iter();
        let stopped = below.filter(tree::Seen::is_stopped).map(|seen| seen.process).collect();
        stop_parents_first();
        let outcome = stop_all();
        if outcome.is_err() {
            continue_all(&stopped);
        } else {
            *state = State::Paused(stopped);
        }
        outcome
    }

    /// Lets them continue.
    pub(crate) fn resume(&self) -> Result<(), Errno> {
        let mut state = self.change()?;
        if let State::Paused(stopped) = std::mem::take(&mut *state) {
            continue_all(&stopped);
        }
        Ok(())
    }

    /// Waits for commands that are being started, but not for ever: a process inside may have stopped one.
    fn change(&self) -> Result<RwLockWriteGuard<'_, State>, Errno> {
        let start = Instant::now();
        loop {
            match self.state.try_write() {
                Ok(state) => return Ok(state),
                Err(TryLockError::Poisoned(poisoned)) => return Ok(poisoned.into_inner()),
                Err(TryLockError::WouldBlock) if start.elapsed() > PAUSE_TIMEOUT => return Err(Errno::BUSY),
                Err(TryLockError::WouldBlock) => thread::sleep(STEP),
            }
        }
    }
}

/// Stops those that are there, one generation after the other. Processes that start meanwhile are stopped by `stop_all`.
fn stop_parents_first() {
    let start = Instant::now();
    for generation in tree::generations_below_us() {
        for process in &generation {
            tree::signal(*process, Signal::STOP);
        }
        while generation.iter().any(|process| tree::is_going(*process)) && start.elapsed() < COURTESY {
            thread::sleep(STEP);
        }
    }
}

/// Stops all processes. One that hangs in the kernel uses no processor, and stops when it returns from there.
fn stop_all() -> Result<(), Errno> {
    let start = Instant::now();
    let mut times_as_reported = 0;
    loop {
        match signal_all(Signal::STOP) {
            Ok(()) => {}
            // There are no processes.
            Err(Errno::SRCH) => return Ok(()),
            Err(errno) => return Err(errno),
        }
        times_as_reported = match tree::stillness_below_us() {
            Stillness::Yes => return Ok(()),
            // They are given the time to show themselves, by waking another.
            Stillness::AsReported if times_as_reported < ENOUGH => times_as_reported + 1,
            Stillness::AsReported => return Ok(()),
            Stillness::No => 0,
        };
        if start.elapsed() > PAUSE_TIMEOUT {
            return Err(Errno::BUSY);
        }
        // A process that runs on another processor sees the signal when it next leaves the kernel.
        thread::sleep(STEP);
    }
}

/// Resumes all processes but these, children first, and in one go.
fn continue_all(stopped: &HashSet<Process>) {
    let Some(below) = tree::below_us() else {
        // Better to resume those too than none.
        let _ = signal_all(Signal::CONT);
        return;
    };
    let waiting = below.into_iter().rev().filter(|seen| !stopped.contains(&seen.process));
    let handles: Vec<Handle> = waiting.filter_map(|seen| Handle::of(seen.process)).collect();
    for handle in handles {
        handle.send(Signal::CONT);
    }
}

/// Far longer than a start takes, or a signal, and far shorter than any caller waits for a pause.
const PAUSE_TIMEOUT: Duration = Duration::from_secs(2);
/// Only matters for what a shell believes.
const COURTESY: Duration = Duration::from_millis(200);
/// Looks in a row that found all processes with a known state stopped.
const ENOUGH: u32 = 10;
/// Between two looks.
const STEP: Duration = Duration::from_micros(100);
