//! The sandboxes that this protocol knows, and what is true of them only while the daemon runs.

use crate::envd::process::Commands;
use crate::envd::watch::Watchers;
use crate::facts::{Facts, FactsDir, Standing};
use crate::fault::Fault;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// One sandbox.
pub(crate) struct Entry {
    facts: Mutex<Facts>,
    /// Held by whatever changes its standing or its time: a pause, a kill and an end of its time come one after the other.
    pub(crate) turn: tokio::sync::Mutex<()>,
    pub(crate) commands: Commands,
    pub(crate) watchers: Watchers,
}

impl Entry {
    pub(crate) fn facts(&self) -> Facts {
        self.held().clone()
    }

    fn held(&self) -> MutexGuard<'_, Facts> {
        // Every change is one assignment: a panic leaves it right.
        self.facts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// All of them.
pub(crate) struct Book {
    files: FactsDir,
    entries: Mutex<HashMap<String, Arc<Entry>>>,
    /// A time changed: the task that waits for the next end looks again.
    pub(crate) changed: Notify,
}

impl Book {
    pub(crate) fn new(files: FactsDir, found: Vec<Facts>) -> Book {
        let book = Book { files, entries: Mutex::default(), changed: Notify::new() };
        for facts in found {
            book.entries().insert(facts.id.clone(), Arc::new(Entry::of(facts)));
        }
        book
    }

    /// Keeps a new one.
    pub(crate) fn add(&self, facts: Facts) -> Result<Arc<Entry>, Fault> {
        self.files.write(&facts).map_err(unwritten)?;
        let entry = Arc::new(Entry::of(facts.clone()));
        self.entries().insert(facts.id, Arc::clone(&entry));
        self.changed.notify_one();
        Ok(entry)
    }

    /// One that its maker knows of.
    pub(crate) fn get(&self, id: &str) -> Option<Arc<Entry>> {
        let entry = self.entries().get(id).cloned()?;
        let is_there = entry.held().is_there();
        is_there.then_some(entry)
    }

    /// Those that are there.
    pub(crate) fn there(&self) -> Vec<Arc<Entry>> {
        self.every().into_iter().filter(|entry| entry.held().is_there()).collect()
    }

    /// Also those that are being made or removed.
    pub(crate) fn every(&self) -> Vec<Arc<Entry>> {
        self.entries().values().cloned().collect()
    }

    /// Changes what is kept of one; on disk first, so that what is told of it is still true after a crash.
    pub(crate) fn change(&self, entry: &Entry, change: impl FnOnce(&mut Facts)) -> Result<Facts, Fault> {
        let mut held = entry.held();
        let mut facts = held.clone();
        change(&mut facts);
        self.files.write(&facts).map_err(unwritten)?;
        *held = facts.clone();
        drop(held);
        self.changed.notify_one();
        Ok(facts)
    }

    /// From now on it is not there for any client. Also where the disk is full: it is removed again after a restart.
    pub(crate) fn hide(&self, entry: &Entry) {
        let _ = self.change(entry, |facts| facts.standing = Standing::Ending);
        entry.held().standing = Standing::Ending;
    }

    /// Nothing of it is left.
    pub(crate) fn forget(&self, id: &str) {
        self.entries().remove(id);
        if let Err(error) = self.files.remove(id) {
            tracing::warn!("cannot remove what is kept of the sandbox {id}: {error}");
        }
    }

    fn entries(&self) -> MutexGuard<'_, HashMap<String, Arc<Entry>>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Entry {
    fn of(facts: Facts) -> Entry {
        Entry {
            facts: Mutex::new(facts),
            turn: tokio::sync::Mutex::default(),
            commands: Commands::default(),
            watchers: Watchers::default(),
        }
    }
}

fn unwritten(error: std::io::Error) -> Fault {
    Fault::internal(format!("cannot keep what is known of the sandbox: {error}"))
}
