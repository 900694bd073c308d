//! What the fleet knows of shims. One shim holds one sandbox for one life of it: its backend, its egress, its commands and
//! their output. It is found again by its [`SandboxDir`], and proved to be alive by a lock that the kernel releases when it
//! dies.

use crate::SandboxDir;
use crate::folder::FolderId;
use crate::snapshots::{SnapshotOrder, SnapshotReport};
use belljar_api::SandboxRequest;
use belljar_engine::Keeps;
use belljar_spec::{ForwardedAt, SandboxError};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;

/// What a method of a trait object promises.
pub type Future<'a, T> = Pin<Box<dyn std::future::Future<Output = T> + Send + 'a>>;

/// Starts and finds shims.
pub trait Shims: Send + Sync + 'static {
    /// Starts one for this place, which no shim holds; it answers when the sandbox is ready for commands.
    fn start<'a>(
        &'a self,
        place: &'a SandboxDir,
        plan: &'a ShimPlan,
    ) -> Future<'a, Result<Arc<dyn Shim>, SandboxError>>;
    /// The one that holds this place, if one lives.
    fn find<'a>(&'a self, place: &'a SandboxDir) -> Future<'a, Result<Option<Arc<dyn Shim>>, SandboxError>>;
}

/// A shim that lives, or lived a moment ago.
pub trait Shim: Send + Sync + 'static {
    /// What is known of its sandbox since it began.
    fn alive(&self) -> &Alive;
    fn status(&self) -> Future<'_, Result<Status, SandboxError>>;
    /// All processes inside are paused.
    fn pause(&self) -> Future<'_, Result<(), SandboxError>>;
    fn resume(&self) -> Future<'_, Result<(), SandboxError>>;
    /// Takes a snapshot, or goes back to one. Answers when the sandbox is ready for commands again.
    fn snapshot<'a>(&'a self, order: &'a SnapshotOrder) -> Future<'a, Result<SnapshotReport, SandboxError>>;
    /// Ends the sandbox and the shim; answers when both are gone.
    fn stop(&self, how: Stop) -> Future<'_, Result<(), SandboxError>>;
    /// Ready when it has died, however it did.
    fn gone(&self) -> Future<'_, ()>;
}

/// What becomes of a sandbox's files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stop {
    /// They stay for its next life.
    Keep,
    /// They go.
    Wipe,
}

/// What a shim is told on its standard input. It holds no secret, only names of secrets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShimPlan {
    pub name: String,
    pub key: String,
    /// The name of this life, which its records have: sixteen hexadecimal digits.
    pub id: String,
    /// With what the profile and the grant say of it.
    pub sandbox: SandboxRequest,
    pub persistent: bool,
    /// The owner of this machine made it, and not the holder of a grant.
    #[serde(default)]
    pub is_owners: bool,
    /// The environment of the owner who started this life, for the shim itself.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub environment: BTreeMap<String, String>,
}

/// A sandbox that a shim holds: `keeper.json` of its place, beside the address.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Alive {
    pub id: String,
    pub backend: String,
    pub assurance: String,
    /// Inside.
    pub workspace: String,
    pub started_ms: i64,
    /// What a person should know.
    pub notes: Vec<String>,
    /// The folder of the host that it works on, if it is one.
    #[serde(default)]
    pub folder: Option<FolderId>,
    /// The egress mode inside, with what files say of it.
    #[serde(default)]
    pub egress: Option<String>,
    /// Ports inside that can be reached from outside, with those of files.
    #[serde(default)]
    pub ports: Vec<u16>,
    /// Ports of the host that lead to ports inside.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub forwarded: Vec<ForwardedAt>,
    /// What of its files a snapshot holds. Nothing of sandboxes that an older belljar started.
    #[serde(default, skip_serializing_if = "is_unknown")]
    pub keeps: Keeps,
}

fn is_unknown(keeps: &Keeps) -> bool {
    *keeps == Keeps::default()
}

/// What a sandbox is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Status {
    /// Commands that run.
    pub commands: u32,
    pub paused: bool,
    /// When a command or a file operation last began or ended.
    pub used_ms: i64,
}
