//! `belljar du`: how much each store takes. The state directory is read, and nothing in it changed.

use crate::args::DuArgs;
use crate::commands::print;
use crate::commands::table::{size, table};
use belljar_spec::SandboxError;
use belljar_state::{DiskUsage, disk_usage, state_directory};
use serde_json::json;
use std::path::Path;

pub(super) fn du(options: &DuArgs) -> Result<u8, SandboxError> {
    let state = state_directory()?;
    let stores = measured(&state);
    let total: u64 = stores.iter().map(|store| store.usage.bytes).sum();
    if options.json {
        let stores: Vec<_> = stores
            .iter()
            .map(|store| json!({ "store": store.name, "what": store.what, "entries": store.entries, "bytes": store.usage.bytes }))
            .collect();
        let report = json!({ "directory": state.to_string_lossy(), "stores": stores, "bytes": total });
        return print(format!("{report:#}\n").as_bytes());
    }
    let rows: Vec<[String; 4]> = stores
        .into_iter()
        .map(|store| [size(store.usage.bytes), store.entries.to_string(), store.name, store.what.to_string()])
        .collect();
    print(table(["SIZE", "NUMBER", "STORE", "WHAT"], &rows).as_bytes())?;
    eprintln!("belljar: {} in {}; `belljar prune --dry-run` lists what can go", size(total), state.display());
    Ok(0)
}

/// One directory of the state directory.
pub(super) struct Store {
    pub(super) name: String,
    pub(super) what: &'static str,
    /// How many things are kept in it.
    pub(super) entries: usize,
    pub(super) usage: DiskUsage,
}

/// What there is, the largest first.
pub(super) fn measured(state: &Path) -> Vec<Store> {
    let mut stores = Vec::new();
    for (name, path) in entries_of(state) {
        if name != "fleet" {
            stores.push(measure(name, &path));
            continue;
        }
        // Homes and volumes are what is worth knowing of the fleet.
        for (below, path) in entries_of(&path).into_iter().filter(|(_, path)| path.is_dir()) {
            stores.push(measure(format!("{name}/{below}"), &path));
        }
    }
    stores.sort_by_key(|store| (std::cmp::Reverse(store.usage.bytes), store.name.clone()));
    stores
}

fn measure(name: String, path: &Path) -> Store {
    let known = STORES.iter().find(|(known, _)| *known == name);
    let what = known.map_or("other", |(_, what)| what);
    Store { what, entries: entries_of(path).len(), usage: disk_usage(path), name }
}

fn entries_of(directory: &Path) -> Vec<(String, std::path::PathBuf)> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    entries.map(|entry| (entry.file_name().to_string_lossy().into_owned(), entry.path())).collect()
}

/// What is kept where, below the state directory.
const STORES: [(&str, &str); 25] = [
    ("agents", "homes of agents, with their conversations"),
    ("audit", "audit logs"),
    ("clones", "clones that sandboxes worked in"),
    ("docker", "notes of containers that live"),
    ("fleet/runs", "agent runs that the daemon holds"),
    ("fleet/sandboxes", "persistent sandboxes, with their homes"),
    ("fleet/snapshots", "snapshots, and files of theirs below other sandboxes"),
    ("fleet/volumes", "volumes of persistent sandboxes"),
    ("git", "private git directories"),
    ("gitlinks", "notes about submodules"),
    ("golden", "golden roots"),
    ("images", "images and their layers"),
    ("integrations", "the shell of agents that run outside"),
    ("layers", "change sets of --overlay, not yet applied"),
    ("neighbours", "notes of sandboxes that live"),
    ("steering", "sockets by which sandboxes that live are steered"),
    ("prepared", "prepared roots, which make starts faster"),
    ("pushes", "pushes that are being checked"),
    ("quarantine", "commits that are being checked"),
    ("repositories", "notes about repositories"),
    ("runs", "records of agent runs"),
    ("shelf", "managed clones of --branch"),
    ("stubs", "notes of files that were made in folders for protection"),
    ("trust", "repository files that you trust"),
    ("vault", "secrets, encrypted"),
];
