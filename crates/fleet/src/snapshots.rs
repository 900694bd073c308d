//! Snapshots of the fleet's sandboxes: what a sandbox's task, its shim and the daemon's calls have in common. How layers are stored is the
//! overlay crate's business.
//!
//! ```text
//!   snapshot, restore ──> the sandbox's task ─┬─ lives ───> its shim: between two sets of processes, or while all are paused
//!                                             └─ stopped ─> here, with the sandbox's lock
//!   fork, create ───────> a new sandbox, whose place gets the layers before it is started
//! ```

mod calls;

pub use calls::Forkable;

use crate::sandbox_dir::SandboxDir;
use belljar_api::{AutomaticSnapshot, SnapshotInfo, SnapshotMethod, SnapshotPart};
use belljar_engine::{Keeps, pin_like, root_directory_of};
use belljar_overlay::snapshot::{
    Automatic, CopyLimit, Found, Method, NewSnapshot, Part, SandboxFiles, Snapshot, SnapshotStore,
};
use belljar_spec::{ErrorCode, Root, SandboxError, SnapshotName};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// What is to be done with a sandbox's files.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SnapshotOrder {
    Take {
        #[serde(flatten)]
        new: RequestedSnapshot,
        how: SnapshotMethod,
    },
    Restore {
        /// The id.
        snapshot: SnapshotName,
        /// Keeps the present files as a snapshot.
        saved: Option<RequestedSnapshot>,
    },
}

/// A snapshot that is wanted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestedSnapshot {
    pub name: Option<SnapshotName>,
    pub owner: String,
    pub automatic: Option<Automatic>,
}

/// What was done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotReport {
    /// The id of the snapshot that was taken, if one was.
    pub snapshot: Option<SnapshotName>,
    /// By copying.
    pub copied: bool,
    /// For how long the sandbox was paused or away.
    pub held_ms: u64,
}

impl SnapshotReport {
    /// The same, of a sandbox that stood still since then.
    pub fn since(self, since: Instant) -> SnapshotReport {
        SnapshotReport { held_ms: u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX), ..self }
    }
}

/// A sandbox, as far as its snapshots go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subject {
    pub place: SandboxDir,
    pub name: String,
    pub key: String,
    pub backend: String,
    pub keeps: Keeps,
}

impl SnapshotOrder {
    /// Whether the files may be copied, and whether they may become a layer.
    pub fn how(&self) -> SnapshotMethod {
        match self {
            SnapshotOrder::Take { how, .. } => *how,
            SnapshotOrder::Restore { .. } => SnapshotMethod::Layered,
        }
    }
}

impl Subject {
    /// Carries out an order on a sandbox that no process uses; the caller holds its lock.
    pub fn carry_out(&self, order: &SnapshotOrder) -> Result<SnapshotReport, SandboxError> {
        let (store, place) = (self.store(), self.place());
        let taken = match order {
            SnapshotOrder::Take { new, .. } => {
                Some(store.take(&place, self.new_snapshot(new), &mut |_| {})?)
            }
            SnapshotOrder::Restore { snapshot, saved } => {
                let to = find_id(&store, snapshot)?;
                self.must_fit(&to)?;
                let saved = saved.as_ref().map(|saved| self.new_snapshot(saved));
                store.restore(&place, &self.keeps.parts(), &to, saved, &mut |_| {})?
            }
        };
        if let Some(taken) = &taken {
            self.pin(&store, taken)?;
        }
        Ok(SnapshotReport { snapshot: taken.map(|taken| taken.id), copied: false, held_ms: 0 })
    }

    /// Takes a snapshot by copying. No process inside writes anything meanwhile.
    pub fn copy(&self, new: &RequestedSnapshot) -> Result<SnapshotReport, SandboxError> {
        let store = self.store();
        let taken = store.copy(&self.place(), self.new_snapshot(new), CopyLimit::default())?;
        self.pin(&store, &taken)?;
        Ok(SnapshotReport { snapshot: Some(taken.id), copied: true, held_ms: 0 })
    }

    /// Refuses what cannot be in a snapshot, and a name that is taken, before anything is stopped for it.
    pub fn check(&self, order: &SnapshotOrder) -> Result<(), SandboxError> {
        belljar_engine::must_have_layers(self.backend.parse().map_err(|_| unknown_backend(&self.backend))?)?;
        if self.keeps.parts().is_empty() {
            return Err(belljar_overlay::snapshot::SnapshotError::NothingToTake.into());
        }
        let store = self.store();
        store.must_hold_layers()?;
        match order {
            SnapshotOrder::Take { new: RequestedSnapshot { name: Some(name), owner, .. }, .. } => {
                Ok(store.must_be_free(owner, name)?)
            }
            SnapshotOrder::Take { .. } => Ok(()),
            SnapshotOrder::Restore { snapshot, .. } => self.must_fit(&find_id(&store, snapshot)?),
        }
    }

    /// What was changed of one root is no system over another, and whose files are whose depends on the backend.
    fn must_fit(&self, snapshot: &Snapshot) -> Result<(), SandboxError> {
        let has_root = snapshot.parts.contains(&Part::Root);
        if has_root && snapshot.rootfs != self.keeps.rootfs {
            return Err(other("root", &snapshot.rootfs, &self.keeps.rootfs, &snapshot.name));
        }
        if let Some(backend) = snapshot.backend.as_ref().filter(|backend| **backend != self.backend) {
            return Err(other("backend", backend, &self.backend, &snapshot.name));
        }
        Ok(())
    }

    fn new_snapshot(&self, requested: &RequestedSnapshot) -> NewSnapshot {
        NewSnapshot {
            name: requested.name.clone(),
            owner: requested.owner.clone(),
            sandbox: self.name.clone(),
            key: self.key.clone(),
            rootfs: self.keeps.rootfs.clone(),
            backend: Some(self.backend.clone()),
            parts: self.keeps.parts(),
            left_out: self.keeps.left_out.clone(),
            automatic: requested.automatic,
        }
    }

    /// A snapshot whose root is not known would show changes of one root over another.
    fn pin(&self, store: &SnapshotStore, taken: &Snapshot) -> Result<(), SandboxError> {
        if !taken.parts.contains(&Part::Root) {
            return Ok(());
        }
        let from = root_directory_of(self.place.directory());
        let pinned =
            pin_like(&state_of(&self.place), &root(&taken.rootfs)?, &from, &store.root_of(&taken.id));
        pinned.inspect_err(|_| drop(store.remove(taken)))
    }

    fn store(&self) -> SnapshotStore {
        SnapshotStore::at(&fleet_of(&self.place))
    }

    fn place(&self) -> SandboxFiles {
        SandboxFiles::new(self.place.directory())
    }
}

/// Gives a sandbox that was never started the files of a snapshot.
pub(crate) fn seed(place: &SandboxDir, snapshot: &SnapshotName) -> Result<(), SandboxError> {
    let store = SnapshotStore::at(&fleet_of(place));
    let snapshot = find_id(&store, snapshot)?;
    Ok(store.seed(&SandboxFiles::new(place.directory()), &snapshot)?)
}

/// Writes beside its changes of a root, of which there are none yet, which root that is. Its directory has its name by now.
pub(crate) fn pin_root(place: &SandboxDir, snapshot: &SnapshotName) -> Result<(), SandboxError> {
    let store = SnapshotStore::at(&fleet_of(place));
    let snapshot = find_id(&store, snapshot)?;
    if snapshot.parts.contains(&Part::Root) {
        let to = root_directory_of(place.directory());
        pin_like(&state_of(place), &root(&snapshot.rootfs)?, &store.root_of(&snapshot.id), &to)?;
    }
    Ok(())
}

/// As a caller is told of it.
pub(crate) fn info_of(found: Found) -> SnapshotInfo {
    let Found { snapshot, used_by } = found;
    SnapshotInfo {
        id: snapshot.id,
        name: snapshot.name,
        sandbox: snapshot.sandbox,
        key: snapshot.key,
        owner: snapshot.owner,
        created_ms: snapshot.created_ms,
        rootfs: snapshot.rootfs,
        parts: snapshot.parts.into_iter().map(part).collect(),
        left_out: snapshot.left_out,
        layers: u32::try_from(snapshot.layers.len()).unwrap_or(u32::MAX),
        bytes: snapshot.bytes,
        how: method(snapshot.method),
        held_ms: None,
        used_by,
        automatic: snapshot.automatic.map(|why| match why {
            Automatic::Checkpoint => AutomaticSnapshot::Checkpoint,
            Automatic::Restore => AutomaticSnapshot::Restore,
            Automatic::Fork => AutomaticSnapshot::Fork,
        }),
    }
}

fn part(part: Part) -> SnapshotPart {
    match part {
        Part::Root => SnapshotPart::Root,
        Part::Home => SnapshotPart::Home,
        Part::Workspace => SnapshotPart::Workspace,
    }
}

fn method(method: Method) -> SnapshotMethod {
    match method {
        Method::Layered => SnapshotMethod::Layered,
        Method::Copied => SnapshotMethod::Copied,
    }
}

fn find_id(store: &SnapshotStore, id: &SnapshotName) -> Result<Snapshot, SandboxError> {
    Ok(store.find(id, crate::permission::OWNER, true)?)
}

/// `<state>/fleet`, where the directory of a sandbox is `<state>/fleet/sandboxes/<name>`.
fn fleet_of(place: &SandboxDir) -> PathBuf {
    place.directory().ancestors().nth(2).unwrap_or(Path::new("/")).to_path_buf()
}

fn state_of(place: &SandboxDir) -> PathBuf {
    place.directory().ancestors().nth(3).unwrap_or(Path::new("/")).to_path_buf()
}

fn root(text: &str) -> Result<Root, SandboxError> {
    text.parse().map_err(|_| ErrorCode::StateFailed.error(format!("a snapshot names the root `{text}`")))
}

fn other(what: &str, made: &str, now: &str, snapshot: &SnapshotName) -> SandboxError {
    ErrorCode::RequestConflict
        .error(format!(
            "the snapshot `{snapshot}` was taken with the {what} `{made}`, and the sandbox has `{now}`"
        ))
        .hint(format!("make a sandbox from it with the {what} `{made}`"))
}

fn unknown_backend(backend: &str) -> SandboxError {
    ErrorCode::StateFailed.error(format!("the backend `{backend}` of the sandbox is not known"))
}
