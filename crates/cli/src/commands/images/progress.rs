//! How far a pull is: one line that changes, on a terminal; nothing elsewhere.

use super::super::table::size;
use belljar_images::{Digest, Progress};
use std::collections::HashMap;
use std::io::{IsTerminal, Write, stderr};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

pub(super) struct Bar {
    state: Option<Mutex<State>>,
}

struct State {
    layers: usize,
    missing: usize,
    bytes: u64,
    fetched: HashMap<Digest, u64>,
    unpacked: usize,
    drawn: Instant,
    is_shown: bool,
}

impl Bar {
    pub(super) fn new() -> Bar {
        let state = State {
            layers: 0,
            missing: 0,
            bytes: 0,
            fetched: HashMap::new(),
            unpacked: 0,
            drawn: Instant::now(),
            is_shown: false,
        };
        Bar { state: stderr().is_terminal().then(|| Mutex::new(state)) }
    }

    /// Docker pulls, and says so much of it.
    pub(super) fn bytes(&self, have: u64, of: u64) {
        self.with(|state| {
            let is_due = state.drawn.elapsed() >= BETWEEN;
            if is_due {
                state.drawn = Instant::now();
            }
            is_due.then(|| format!("{} of {} fetched", size(have), size(of)))
        });
    }

    fn with(&self, change: impl FnOnce(&mut State) -> Option<String>) {
        let Some(state) = &self.state else { return };
        let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(line) = change(&mut state) {
            state.is_shown = true;
            let _ = write!(stderr(), "\r\x1b[K{line}");
        }
    }
}

/// Leaves no line behind.
impl Drop for Bar {
    fn drop(&mut self) {
        self.with(|state| state.is_shown.then(String::new));
    }
}

impl State {
    /// The line, if it was not drawn just now.
    fn line(&mut self, now: bool) -> Option<String> {
        if !now && self.drawn.elapsed() < BETWEEN {
            return None;
        }
        self.drawn = Instant::now();
        let fetched: u64 = self.fetched.values().sum();
        Some(format!(
            "{} of {} fetched, {} of {} layers unpacked ({} were here)",
            size(fetched),
            size(self.bytes.max(fetched)),
            self.unpacked,
            self.missing,
            self.layers - self.missing
        ))
    }
}

impl Progress for Bar {
    fn found(&self, layers: usize, missing: usize, bytes: u64) {
        self.with(|state| {
            (state.layers, state.missing, state.bytes) = (layers, missing, bytes);
            state.line(true)
        });
    }

    fn fetched(&self, layer: &Digest, bytes: u64, _of: u64) {
        self.with(|state| {
            state.fetched.insert(layer.clone(), bytes);
            state.line(false)
        });
    }

    fn unpacked(&self, _layer: &Digest, bytes: u64, of: u64) {
        if bytes == of {
            self.with(|state| {
                state.unpacked = (state.unpacked + 1).min(state.missing);
                state.line(true)
            });
        }
    }

    fn again(&self, why: &str) {
        let why: String = why.chars().filter(|letter| !letter.is_control()).collect();
        self.with(|_| Some(format!("{why}; trying again\n")));
    }
}

/// Often enough for the eye.
const BETWEEN: Duration = Duration::from_millis(100);
