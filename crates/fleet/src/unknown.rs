//! Sandboxes on disk that are not understood: of another version, or damaged. They are told of as far as they can be read, and
//! nothing is done with them but what a person asks for.

use crate::fleet::{Fleet, may_use};
use crate::permission::{OWNER, Permission};
use crate::registry::Entry;
use crate::sandbox_dir::SandboxDir;
use crate::shim::Stop;
use crate::task::end_of;
use belljar_api::{SandboxInfo, State};
use belljar_spec::SandboxError;
use serde_json::Value;

impl Fleet {
    /// All that the caller may know of, by name; what is not understood has no entry.
    pub(crate) fn all(&self, caller: &dyn Permission) -> Vec<(SandboxInfo, Option<Entry>)> {
        let is_shown =
            |entry: &Entry| may_use(entry, caller).is_ok() && !self.registry.is_waiting(&entry.name);
        let known = self.registry.entries().into_iter().filter(is_shown);
        let mut all: Vec<_> = known.map(|entry| (entry.access.info(), Some(entry))).collect();
        if caller.grant() == OWNER {
            all.extend(self.unreadable().into_iter().map(|info| (info, None)));
            all.sort_by(|(one, _), (other, _)| one.name.cmp(&other.name));
        }
        all
    }

    /// Takes a sandbox away, also one that is not understood: who keeps it is ended, its place is removed. Only the person whose machine it
    /// is can tell whether that is right.
    pub async fn delete_anyway(&self, name: &str, caller: &dyn Permission) -> Result<(), SandboxError> {
        if caller.grant() != OWNER || !self.registry.unknown().iter().any(|(unknown, _)| unknown == name) {
            return self.delete(name, caller).await;
        }
        let place = self.registry.ground.place(name);
        end_of(&*self.world.shims, place, None, Stop::Wipe, true).await?;
        self.registry.forget_unknown(name);
        Ok(())
    }

    /// What is on disk and not understood, as far as it can be told.
    pub(crate) fn unreadable(&self) -> Vec<SandboxInfo> {
        let all = self.registry.unknown().into_iter();
        all.map(|(name, error)| info(&name, &self.registry.ground.place(&name), &error)).collect()
    }
}

/// What can be told of one.
fn info(name: &str, place: &SandboxDir, error: &SandboxError) -> SandboxInfo {
    let record: Value = std::fs::read(place.record())
        .ok()
        .and_then(|bytes| serde_json::from_slice(&bytes).ok())
        .unwrap_or_default();
    let text = |field: &Value| field.as_str().map(String::from);
    // A shim that holds the lock is alive, whatever the record says.
    let alive = matches!(place.hold(), Ok(None));
    SandboxInfo {
        name: name.into(),
        key: text(&record["key"]).unwrap_or_else(|| name.into()),
        state: if alive { State::Live } else { State::Stopped },
        persistent: record["persistent"].as_bool().unwrap_or(true),
        owner: text(&record["owner"]).unwrap_or_else(|| "unknown".into()),
        profile: text(&record["profile"]).unwrap_or_else(|| "unknown".into()),
        backend: None,
        assurance: None,
        id: None,
        folder: text(&record["sandbox"]["workspace"]["folder"]),
        workspace: None,
        egress: "unknown".into(),
        ports: Vec::new(),
        forwarded: Vec::new(),
        leases: Vec::new(),
        commands: 0,
        created_ms: record["created_ms"].as_i64().unwrap_or_else(|| made_ms(place)),
        started_ms: None,
        ends_ms: None,
        fault: Some(error.message.clone()),
        warm: false,
    }
}

/// When its directory last changed, for lack of a record.
fn made_ms(place: &SandboxDir) -> i64 {
    let changed = place.directory().metadata().and_then(|found| found.modified()).ok();
    let since = changed.and_then(|time| time.duration_since(std::time::UNIX_EPOCH).ok()).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or_default()
}
