//! What builds say, as long as the daemon runs; and how many are made at the same time.

use crate::api::shapes::rfc3339;
use crate::facts::now_ms;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use tokio::sync::{Semaphore, SemaphorePermit};

/// How much a line matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Level {
    Info,
    Warn,
    Error,
}

impl Level {
    fn word(self) -> &'static str {
        match self {
            Level::Info => "info",
            Level::Warn => "warn",
            Level::Error => "error",
        }
    }
}

/// The builds of this daemon.
pub(crate) struct Builds {
    turns: Semaphore,
    logs: Mutex<HashMap<String, Vec<Value>>>,
}

impl Builds {
    pub(crate) fn new() -> Builds {
        Builds { turns: Semaphore::new(AT_ONCE), logs: Mutex::default() }
    }

    /// A build's turn.
    pub(crate) async fn turn(&self) -> Option<SemaphorePermit<'_>> {
        // Nothing closes it.
        self.turns.acquire().await.ok()
    }

    pub(crate) fn log(&self, build: &str, level: Level, message: &str, step: &str) {
        let mut logs = self.logs.lock().unwrap_or_else(PoisonError::into_inner);
        if logs.len() >= MAX_BUILDS && !logs.contains_key(build) {
            logs.clear();
        }
        let lines = logs.entry(build.into()).or_default();
        if lines.len() < MAX_LINES {
            lines.push(json!({
                "timestamp": rfc3339(now_ms()), "level": level.word(), "message": message, "step": step,
            }));
        }
    }

    /// Lines from a number on.
    pub(crate) fn lines(&self, build: &str, from: usize, most: usize) -> Vec<Value> {
        let logs = self.logs.lock().unwrap_or_else(PoisonError::into_inner);
        logs.get(build).map_or(Vec::new(), |lines| lines.iter().skip(from).take(most).cloned().collect())
    }
}

/// Builds that run at the same time.
const AT_ONCE: usize = 2;
/// Builds whose lines are kept, and lines of each.
const MAX_BUILDS: usize = 256;
const MAX_LINES: usize = 10_000;
