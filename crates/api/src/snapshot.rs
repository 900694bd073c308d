//! Snapshots: immutable copies of a sandbox's files, and sandboxes that are made from them.

use crate::{Created, SandboxInfo};
use belljar_spec::SnapshotName;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A snapshot to take of a persistent sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TakeSnapshot {
    /// Its name among the caller's snapshots. Left out: its id.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub name: Option<SnapshotName>,
    pub how: SnapshotMethod,
    /// It is a checkpoint, without a name: the last 20 of a sandbox are kept, and `undo` goes back to them.
    pub checkpoint: bool,
}

/// How a snapshot comes about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum SnapshotMethod {
    /// `layered` where no process and no private file inside would be lost, else `copied`.
    #[default]
    Auto,
    /// The files become a layer below the sandbox, without copying. No command may run in it; its private files (`/tmp`, `/dev/shm`) end.
    Layered,
    /// The files are copied while all processes inside are paused.
    Copied,
}

/// A snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SnapshotInfo {
    /// Never used twice: `snap-` and sixteen digits.
    #[schema(value_type = String)]
    pub id: SnapshotName,
    /// Its name among the snapshots of its owner; the id, where it was given none.
    #[schema(value_type = String)]
    pub name: SnapshotName,
    /// The sandbox that it was taken of.
    pub sandbox: String,
    /// The key of that sandbox.
    pub key: String,
    /// The grant that took it; `owner` for the one whose machine it is.
    pub owner: String,
    pub created_ms: i64,
    /// What `/` is made of, as the sandbox has it.
    pub rootfs: String,
    /// What it holds: `root`, `home`, `workspace`.
    pub parts: Vec<SnapshotPart>,
    /// What of the sandbox it does not hold, and why: a folder of the host, volumes.
    pub left_out: Vec<String>,
    /// How many layers lie over each other.
    pub layers: u32,
    /// The bytes of its topmost layer, which no other snapshot has. Counted when a single snapshot is asked for, and after a copy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// How it was made: `layered` or `copied`.
    pub how: SnapshotMethod,
    /// For how long the sandbox was paused or away, in milliseconds: in the answer to taking it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held_ms: Option<u64>,
    /// Sandboxes whose files lie over a layer of this one.
    pub used_by: Vec<String>,
    /// Why belljar keeps it, if no caller named it: the last 20 of each kind of a sandbox are kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub automatic: Option<AutomaticSnapshot>,
}

/// Why a snapshot was taken that has no name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum AutomaticSnapshot {
    /// Before a command, so that it can be undone.
    Checkpoint,
    /// Before the sandbox went back to an earlier snapshot.
    Restore,
    /// For forks that are being made.
    Fork,
}

/// A part of a sandbox's files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum SnapshotPart {
    /// What was changed of a root that is not the host's.
    Root,
    Home,
    /// The folder that belongs to the sandbox, or the change set beside a folder of the host.
    Workspace,
}

/// Sandboxes to make like an existing one, with the files that it has now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ForkSandbox {
    /// How many.
    #[schema(minimum = 1, maximum = 64)]
    pub count: u32,
    /// Their keys; as many as `count`. Left out: keys that no other sandbox has.
    pub keys: Vec<String>,
    /// Left out: as the sandbox that is forked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub persistent: Option<bool>,
    /// How long each keeps running without a lease.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(maximum = 31536000)]
    pub idle_s: Option<u64>,
    /// How long each lease counts without being renewed or used.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 31536000)]
    pub lease_s: Option<u64>,
    /// The snapshot whose files they have instead of the present ones.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub snapshot: Option<SnapshotName>,
    pub how: SnapshotMethod,
}

impl Default for ForkSandbox {
    fn default() -> ForkSandbox {
        ForkSandbox {
            count: 1,
            keys: Vec::new(),
            persistent: None,
            idle_s: None,
            lease_s: None,
            snapshot: None,
            how: SnapshotMethod::Auto,
        }
    }
}

/// The answer to a fork.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Forked {
    /// How they were made, in the order of the keys.
    pub sandboxes: Vec<Created>,
    /// How the copy of the files was made: `layered` or `copied`.
    pub how: SnapshotMethod,
    /// For how long the sandbox that was forked was paused or away, in milliseconds.
    pub held_ms: u64,
    /// What of its files the forks do not have, and why.
    pub left_out: Vec<String>,
}

/// A sandbox in which no command runs goes back to its checkpoints.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct UndoSandbox {
    /// How many checkpoints: 1 is the newest.
    #[schema(minimum = 1, maximum = 20)]
    pub steps: u32,
}

impl Default for UndoSandbox {
    fn default() -> UndoSandbox {
        UndoSandbox { steps: 1 }
    }
}

/// A sandbox in which no command runs goes back to a snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RestoreSandbox {
    /// The name or the id of a snapshot that was taken of this sandbox or of one with the same root.
    #[schema(value_type = String)]
    pub snapshot: SnapshotName,
    /// Discard the present files; else they are kept as an automatic snapshot.
    #[serde(default)]
    pub force: bool,
}

/// The answer to a restore.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Restored {
    pub sandbox: SandboxInfo,
    /// The files as they were before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub saved: Option<SnapshotInfo>,
}
