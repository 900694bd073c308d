//! All commands of a sandbox: those that run, and the last ones that ended.

use super::command::{Command, Terms};
use super::run;
use super::spill::Spill;
use crate::shim::LiveSandbox;
use belljar_spec::{ErrorCode, SandboxError};
use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The commands.
#[derive(Debug)]
pub(crate) struct Registry {
    spill: Arc<Spill>,
    closing: AtomicBool,
    /// When one last began or ended.
    changed_ms: AtomicI64,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    /// Of the last one.
    number: u64,
    commands: BTreeMap<u64, Arc<Command>>,
    /// Those that ended, in that order.
    ended: VecDeque<u64>,
}

impl Registry {
    /// Long output is kept in a file of this directory.
    pub(crate) fn new(directory: &Path) -> Arc<Registry> {
        Arc::new(Registry {
            spill: Spill::new(directory, MAX_SPILLED_BYTES),
            closing: AtomicBool::new(false),
            changed_ms: AtomicI64::new(0),
            inner: Mutex::default(),
        })
    }

    /// Starts a command, which runs in a task of its own.
    pub(super) fn start(
        self: &Arc<Registry>,
        live: &Arc<LiveSandbox>,
        terms: Terms,
        start: belljar_spec::Command,
    ) -> Result<Arc<Command>, SandboxError> {
        let mut inner = self.inner();
        if inner.commands.len() - inner.ended.len() >= MAX_RUNNING {
            let message = format!("{MAX_RUNNING} commands run in this sandbox, and no more may");
            return Err(ErrorCode::TooManyRequests.error(message).hint("wait for one of them, or kill one"));
        }
        inner.number += 1;
        let (command, input) = Command::new(inner.number, terms, Arc::clone(&self.spill));
        inner.commands.insert(command.number, Arc::clone(&command));
        drop(inner);
        self.changed();
        tokio::spawn(run::run(Arc::clone(&command), Arc::clone(live), start, input));
        Ok(command)
    }

    /// The one of this name: `cmd_7`.
    pub(crate) fn find(&self, id: &str) -> Result<Arc<Command>, SandboxError> {
        let number = id.strip_prefix("cmd_").and_then(|number| number.parse::<u64>().ok());
        let found = number.and_then(|number| self.inner().commands.get(&number).cloned());
        found.filter(|command| command.id() == id).ok_or_else(|| {
            ErrorCode::NameUnknown
                .error("this sandbox has no such command")
                .hint("the last thousand that ended are kept, each with its number: `cmd_7`")
        })
    }

    /// Up to `limit` of them, the oldest first, behind one.
    pub(crate) fn list(&self, after: u64, limit: usize) -> (Vec<Arc<Command>>, bool) {
        let inner = self.inner();
        let mut behind =
            inner.commands.range(after.saturating_add(1)..).map(|(_, command)| Arc::clone(command));
        let found: Vec<Arc<Command>> = behind.by_ref().take(limit).collect();
        let more = behind.next().is_some();
        (found, more)
    }

    /// How many run.
    pub(crate) fn running(&self) -> u32 {
        let inner = self.inner();
        u32::try_from(inner.commands.len() - inner.ended.len()).unwrap_or(u32::MAX)
    }

    /// When one last began or ended.
    pub(crate) fn changed_ms(&self) -> i64 {
        self.changed_ms.load(Ordering::Relaxed)
    }

    /// Ready when none runs.
    pub(crate) async fn all_ended(&self) {
        loop {
            let running = {
                let inner = self.inner();
                inner.commands.values().find(|command| command.result().is_none()).cloned()
            };
            match running {
                Some(command) => command.ended().await,
                None => return,
            }
        }
    }

    /// The sandbox is about to end on request, and all of them with it.
    pub(crate) fn close(&self) {
        self.closing.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Relaxed)
    }

    /// One of them ended. Old ones are forgotten.
    pub(super) fn ended(&self, number: u64) {
        self.changed();
        let mut inner = self.inner();
        inner.ended.push_back(number);
        if inner.ended.len() > MAX_ENDED
            && let Some(oldest) = inner.ended.pop_front()
        {
            inner.commands.remove(&oldest);
        }
    }

    /// Forgets the output of the one that ended first, of those that have some in the file. `false` where there is none.
    pub(super) fn make_room(&self) -> bool {
        let inner = self.inner();
        let ended = inner.ended.iter().filter_map(|number| inner.commands.get(number));
        let oldest = ended.into_iter().find(|command| command.log().is_spilled()).cloned();
        drop(inner);
        let Some(oldest) = oldest else { return false };
        oldest.log().forget();
        true
    }

    fn changed(&self) {
        self.changed_ms.store(crate::shim::now_ms(), Ordering::Relaxed);
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// So many that ended are remembered.
const MAX_ENDED: usize = 1000;
/// Each has a few descriptors here and a task.
const MAX_RUNNING: usize = 4096;
/// Of all commands together, on disk. The oldest output goes first.
const MAX_SPILLED_BYTES: u64 = 4 << 30;
