//! Stopping everybody, and letting them go on.
//!
//! `kill(-1, SIGSTOP)` by process 1 means every process of its namespace but itself. It is atomic against forks: the kernel
//! goes through all processes under `tasklist_lock`, a new one is entered under the same lock, and one that is being made meanwhile
//! gets the signal as its first (`multiprocess` in kernel/fork.c). No process can block, ignore or handle it. So nobody escapes, and afterwards
//! nobody forks: the list of processes stands still.
//!
//! But whoever has not seen its own signal yet can still send SIGCONT to one that has. So it is sent again until everybody was seen
//! to stand still, twice; then nobody is left to send anything. (Not every kernel is as strict about forks; that is met by this too.)
//!
//! A shell that runs while its child is stopped takes that for a Ctrl-Z. So as long as nobody forks in between, parents stop before
//! their children do, and go on after them.

use crate::tree::{self, Handle, Process, Stillness};
use belljar_sys::rustix::io::Errno;
use belljar_sys::rustix::process::{Pid, Signal, getpid};
use belljar_sys::signal::signal_all;
use std::collections::HashSet;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, TryLockError};
use std::thread;
use std::time::{Duration, Instant};

/// Whether everybody is stopped.
#[derive(Default)]
pub(crate) struct Pause {
    state: RwLock<State>,
}

#[derive(Default)]
pub(crate) enum State {
    #[default]
    Going,
    /// These were stopped already, by somebody inside, and stay so.
    Paused(HashSet<Process>),
}

impl Pause {
    /// For as long as it takes to start a command: nobody pauses meanwhile. `None` while paused.
    pub(crate) fn going(&self) -> Option<RwLockReadGuard<'_, State>> {
        let state = self.state.read().unwrap_or_else(PoisonError::into_inner);
        matches!(*state, State::Going).then_some(state)
    }

    /// Stops everybody.
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
            go_on(&stopped);
        } else {
            *state = State::Paused(stopped);
        }
        outcome
    }

    /// Lets them go on.
    pub(crate) fn resume(&self) -> Result<(), Errno> {
        let mut state = self.change()?;
        if let State::Paused(stopped) = std::mem::take(&mut *state) {
            go_on(&stopped);
        }
        Ok(())
    }

    /// Waits for commands that are being started, but not for ever: somebody inside may have stopped one.
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

/// Stops those that are there, one generation after the other. Who comes into being meanwhile is met by what follows.
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

/// Stops everybody. Who hangs in the kernel uses nothing, and stops when it comes out.
fn stop_all() -> Result<(), Errno> {
    let start = Instant::now();
    let mut times_as_told = 0;
    loop {
        match signal_all(Signal::STOP) {
            Ok(()) => {}
            // There is nobody.
            Err(Errno::SRCH) => return Ok(()),
            Err(errno) => return Err(errno),
        }
        times_as_told = match tree::stillness_below_us() {
            Stillness::Yes => return Ok(()),
            // They are given the time to show themselves, by waking another.
            Stillness::AsFarAsTold if times_as_told < ENOUGH => times_as_told + 1,
            Stillness::AsFarAsTold => return Ok(()),
            Stillness::No => 0,
        };
        if start.elapsed() > PAUSE_TIMEOUT {
            return Err(Errno::BUSY);
        }
        // Who runs on another processor sees it at its next way out of the kernel.
        thread::sleep(STEP);
    }
}

/// Lets everybody go on but these, children first, and all in one breath.
fn go_on(stopped: &HashSet<Process>) {
    let Some(below) = tree::below_us() else {
        // Rather those too than nobody.
        let _ = signal_all(Signal::CONT);
        return;
    };
    let waiting = below.into_iter().rev().filter(|seen| !stopped.contains(&seen.process));
    let handles: Vec<Handle> = waiting.filter_map(|seen| Handle::of(seen.process)).collect();
    for handle in handles {
        handle.send(Signal::CONT);
    }
}

/// Far longer than a start takes, or a signal, and far shorter than anybody waits for a pause.
const PAUSE_TIMEOUT: Duration = Duration::from_secs(2);
/// Nothing depends on it but what a shell believes.
const COURTESY: Duration = Duration::from_millis(200);
/// Times in a row that all stood still of whom something is told.
const ENOUGH: u32 = 10;
/// Between two looks.
const STEP: Duration = Duration::from_micros(100);
