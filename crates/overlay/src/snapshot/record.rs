//! What is known of a snapshot: `snapshot.json`.

use super::chain::parse;
use super::error::SnapshotError;
use super::files::Part;
use belljar_spec::{SandboxId, SnapshotName};
use belljar_state::damage::read_label;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// A snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    pub id: SnapshotName,
    /// Among the snapshots of its owner.
    pub name: SnapshotName,
    /// The grant that took it.
    pub owner: String,
    /// The sandbox that it was taken of, and its key.
    pub sandbox: String,
    pub key: String,
    pub created_ms: i64,
    /// What `/` is made of, as the sandbox was asked for.
    pub rootfs: String,
    /// The backend of the sandbox.
    pub backend: Option<String>,
    /// Topmost first.
    pub layers: Vec<SandboxId>,
    /// What its layers hold.
    pub parts: Vec<Part>,
    /// What of the sandbox is not in it, and why.
    pub left_out: Vec<String>,
    pub method: Method,
    /// Of its topmost layer, where they were counted.
    pub bytes: Option<u64>,
    /// Why belljar took it, if no caller did.
    pub automatic: Option<Automatic>,
}

/// How a snapshot was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Method {
    /// The files became a layer.
    Layered,
    /// They were copied.
    Copied,
}

/// Why belljar takes a snapshot by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Automatic {
    /// Before a command, so that it can be undone.
    Checkpoint,
    /// Before a sandbox goes back to an earlier one.
    Restore,
    /// For forks, until they are made.
    Fork,
}

#[derive(Serialize, Deserialize)]
struct Written {
    version: u32,
    id: SnapshotName,
    name: SnapshotName,
    owner: String,
    sandbox: String,
    key: String,
    created_ms: i64,
    rootfs: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    backend: Option<String>,
    layers: Vec<String>,
    parts: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    left_out: Vec<String>,
    method: Method,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    bytes: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    automatic: Option<Automatic>,
}

impl Snapshot {
    /// From its directory; `None` if there is none.
    pub(super) fn read(directory: &Path) -> Result<Option<Snapshot>, SnapshotError> {
        let path = directory.join(LABEL);
        let damaged = |why: String| SnapshotError::Damaged { path: path.clone(), why };
        let written: Option<Written> = read_label(&path, &[VERSION]).map_err(damaged)?;
        let Some(written) = written else { return Ok(None) };
        let part = |name: &String| Part::ALL.into_iter().find(|part| part.as_str() == name);
        Ok(Some(Snapshot {
            id: written.id,
            name: written.name,
            owner: written.owner,
            sandbox: written.sandbox,
            key: written.key,
            created_ms: written.created_ms,
            rootfs: written.rootfs,
            backend: written.backend,
            layers: parse(written.layers).map_err(damaged)?,
            parts: written.parts.iter().filter_map(part).collect(),
            left_out: written.left_out,
            method: written.method,
            bytes: written.bytes,
            automatic: written.automatic,
        }))
    }

    pub(super) fn to_json(&self) -> Vec<u8> {
        let written = Written {
            version: VERSION,
            id: self.id.clone(),
            name: self.name.clone(),
            owner: self.owner.clone(),
            sandbox: self.sandbox.clone(),
            key: self.key.clone(),
            created_ms: self.created_ms,
            rootfs: self.rootfs.clone(),
            backend: self.backend.clone(),
            layers: self.layers.iter().map(SandboxId::to_string).collect(),
            parts: self.parts.iter().map(|part| part.as_str().to_string()).collect(),
            left_out: self.left_out.clone(),
            method: self.method,
            bytes: self.bytes,
            automatic: self.automatic,
        };
        serde_json::to_vec(&written).expect("plain data can be written as JSON")
    }
}

/// Its file, in the directory of the snapshot.
pub(super) const LABEL: &str = "snapshot.json";
const VERSION: u32 = 1;
