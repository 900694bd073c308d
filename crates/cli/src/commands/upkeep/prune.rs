//! `belljar prune`: everything that is not needed any more, listed and then removed. Work of a person or an agent is never
//! among it.

use super::{DECLINED, confirmed};
use crate::args::PruneArgs;
use crate::commands::block_on;
use crate::commands::daemon::swept;
use crate::commands::images::store as images;
use crate::commands::print;
use crate::commands::table::{size, table};
use belljar_audit::Pruning;
use belljar_images::GcOptions;
use belljar_spec::SandboxError;
use belljar_state::{DiskUsage, state_directory};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use tracing::{info, warn};

pub(super) fn prune(options: &PruneArgs) -> Result<u8, SandboxError> {
    let state = state_directory()?;
    let age = match options.older_than {
        Some(age) => age,
        None => belljar_config::daemon()?.retention.map_or(DEFAULT_AGE, |set| set.value),
    };
    let pruner = Pruner { state, age };
    let listed = pruner.all(&Store::ALL, Mode::List);
    let is_empty = listed.iter().all(|found| found.usage.entries == 0);
    if options.dry_run || is_empty {
        return say(&listed, options, "would go");
    }
    if !options.yes {
        print_table(&listed)?;
        if !confirmed("Remove these?", "belljar prune")? {
            eprintln!("belljar: nothing was removed");
            return Ok(DECLINED);
        }
    }
    say(&pruner.all(&Store::ALL, Mode::Remove), options, "removed")
}

/// Removes what is older than this, as the daemon does once a day. It looks after dead sandboxes by itself.
pub(crate) fn apply_retention(age: Duration) {
    let stores = Store::ALL.into_iter().filter(|store| *store != Store::DeadSandboxes);
    let found = match state_directory() {
        Ok(state) => Pruner { state, age }.all(&stores.collect::<Vec<_>>(), Mode::Remove),
        Err(error) => return warn!("nothing was pruned: {error}"),
    };
    for Found { store, usage, failure } in found {
        if let Some(error) = failure {
            warn!("cannot prune {}: {}", store.what(), error.message);
        } else if usage.entries > 0 {
            info!("removed {} {}: {}", usage.entries, store.what(), size(usage.bytes));
        }
    }
}

/// Whether it happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    List,
    Remove,
}

/// What of one store goes.
struct Found {
    store: Store,
    usage: DiskUsage,
    failure: Option<SandboxError>,
}

/// What is pruned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Store {
    AuditLogs,
    AgentRuns,
    Images,
    PreparedRoots,
    DeadSandboxes,
}

impl Store {
    const ALL: [Store; 5] =
        [Store::AuditLogs, Store::AgentRuns, Store::Images, Store::PreparedRoots, Store::DeadSandboxes];

    fn name(self) -> &'static str {
        match self {
            Store::AuditLogs => "audit",
            Store::AgentRuns => "runs",
            Store::Images => "images",
            Store::PreparedRoots => "prepared",
            Store::DeadSandboxes => "sandboxes",
        }
    }

    fn what(self) -> &'static str {
        match self {
            Store::AuditLogs => "audit logs of sandboxes that ended long ago",
            Store::AgentRuns => "records of agent runs that ended long ago",
            Store::Images => "images that no sandbox was started with for long, and layers of none",
            Store::PreparedRoots => "prepared roots that no sandbox uses",
            Store::DeadSandboxes => "what sandboxes left whose shim died",
        }
    }
}

/// What is pruned: below a state directory, what is older than an age.
struct Pruner {
    state: PathBuf,
    age: Duration,
}

impl Pruner {
    /// Every store; one that fails keeps no other from it.
    fn all(&self, stores: &[Store], mode: Mode) -> Vec<Found> {
        let one = |store: &Store| match self.one(*store, mode) {
            Ok(usage) => Found { store: *store, usage, failure: None },
            Err(failure) => Found { store: *store, usage: DiskUsage::default(), failure: Some(failure) },
        };
        stores.iter().map(one).collect()
    }

    fn one(&self, store: Store, mode: Mode) -> Result<DiskUsage, SandboxError> {
        let dry_run = mode == Mode::List;
        let before = SystemTime::now().checked_sub(self.age).unwrap_or(SystemTime::UNIX_EPOCH);
        let counted = |entries: usize, bytes: u64| DiskUsage { entries: entries as u64, bytes };
        match store {
            Store::AuditLogs => {
                let directory = belljar_audit::directory()?;
                if !directory.exists() {
                    return Ok(DiskUsage::default());
                }
                let pruning = if dry_run { Pruning::Imagined } else { Pruning::Real };
                let pruned = belljar_audit::prune(&directory, before, pruning, |_| {})?;
                Ok(counted(pruned.removed.len(), pruned.bytes))
            }
            Store::AgentRuns => Ok(belljar_agent::prune::prune(&self.state, before, dry_run)?),
            Store::Images => {
                if !self.state.join("images").exists() {
                    return Ok(DiskUsage::default());
                }
                let collected = images()?.gc(&GcOptions { dry_run, unused_for: Some(self.age) })?;
                let entries = collected.images.len() + collected.layers.len() + collected.remains;
                Ok(counted(entries, collected.bytes))
            }
            Store::PreparedRoots => Ok(belljar_engine::prune_prepared_roots(&self.state, dry_run)),
            Store::DeadSandboxes => {
                if !is_there(&self.state) {
                    return Ok(DiskUsage::default());
                }
                Ok(counted(block_on(swept(dry_run))?.swept.len(), 0))
            }
        }
    }
}

/// Whether there was ever a persistent sandbox: to look for dead ones makes the fleet's directory.
fn is_there(state: &Path) -> bool {
    state.join("fleet/sandboxes").is_dir()
}

fn say(found: &[Found], options: &PruneArgs, done: &str) -> Result<u8, SandboxError> {
    let bytes: u64 = found.iter().map(|found| found.usage.bytes).sum();
    if options.json {
        let stores: Vec<_> = found
            .iter()
            .map(|found| {
                let failure = found.failure.as_ref().map(|error| error.message.clone());
                json!({
                    "store": found.store.name(),
                    "entries": found.usage.entries,
                    "bytes": found.usage.bytes,
                    "error": failure,
                })
            })
            .collect();
        let report = json!({ "dry_run": options.dry_run, "stores": stores, "bytes": bytes });
        print(format!("{report:#}\n").as_bytes())?;
    } else if found.iter().all(|found| found.usage.entries == 0) {
        eprintln!("belljar: nothing to prune");
    } else {
        print_table(found)?;
        eprintln!("belljar: {done}: {}", size(bytes));
    }
    let mut code = 0;
    for found in found {
        if let Some(error) = &found.failure {
            code = 1;
            eprintln!("belljar: {} stay: {}", found.store.what(), error.message);
            if let Some(hint) = &error.hint {
                eprintln!("  hint: {}", crate::terms::for_command_line(hint));
            }
        }
    }
    Ok(code)
}

fn print_table(found: &[Found]) -> Result<u8, SandboxError> {
    let rows: Vec<[String; 3]> = found
        .iter()
        .filter(|found| found.usage.entries > 0)
        .map(|found| {
            let Found { store, usage, .. } = found;
            [usage.entries.to_string(), size(usage.bytes), store.what().to_string()]
        })
        .collect();
    print(table(["NUMBER", "SIZE", "WHAT"], &rows).as_bytes())
}

/// Where neither a flag nor the configuration says otherwise.
const DEFAULT_AGE: Duration = Duration::from_secs(30 * 24 * 3600);
