//! Sandboxes: asked for, and told of.

use belljar_spec::{ForwardedAt, SandboxRequest};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// A request for a sandbox: found by its key, or made.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CreateSandbox {
    /// Same key, same sandbox. Without a key it follows from `scope`; without both the sandbox is not shared.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 512)]
    pub key: Option<String>,
    /// What the key follows from, if none is given: `entity` alone, or `entity` and `wake`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scope: Option<Scope>,
    /// Who works in it, in the caller's own words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub entity: Option<String>,
    /// Which of the entity's sessions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wake: Option<String>,
    /// Whether it is persistent: without a lease it is stopped and its files are kept. Omitted: yes with a key or an entity, else no.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub persistent: Option<bool>,
    /// `false` joins a sandbox that lives and never makes one. `true` is refused where the grant only joins the key. Left out: as much
    /// as the grant has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<bool>,
    /// Join the sandbox of this name as a guest of it; nothing else may be said beside it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inherit: Option<String>,
    /// A profile of `GET /v1/profiles`. Left out: the default one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
    /// How long it keeps running without a lease. Omitted: two minutes.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(maximum = 31536000)]
    pub idle_s: Option<u64>,
    /// How long the lease counts without being renewed or used. Left out: an hour.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 31536000)]
    pub lease_s: Option<u64>,
    /// The environment of the owner of this machine, as far as the sandbox is made by it: `PATH`, whose programs it sees, `SHELL`, `LANG`, `LC_*` and `TZ`.
    /// Counts for the life that this request starts. Left out: the daemon's own. No grant may set it.
    pub environment: BTreeMap<String, String>,
    /// The sandbox itself, where the profile leaves it open.
    pub sandbox: SandboxRequest,
}

/// What a key follows from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// One sandbox for all sessions of an entity.
    Entity,
    /// One sandbox for each session.
    Wake,
}

/// The answer to a request for a sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Created {
    pub sandbox: SandboxInfo,
    /// The caller's hold on it.
    pub lease: LeaseInfo,
    /// Whether it was made by this request; else it was there, or woken up.
    pub created: bool,
    /// Warnings: weak isolation, a file that was not trusted.
    pub notes: Vec<String>,
}

/// A sandbox that is kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SandboxInfo {
    /// Follows from the key: `bj-web-3f2a9c04d1e7`.
    pub name: String,
    pub key: String,
    pub state: State,
    pub persistent: bool,
    /// The grant that made it; `owner` for the one whose machine it is.
    pub owner: String,
    /// The effective profile.
    pub profile: String,
    /// The backend that it has; omitted before its first start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backend: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub assurance: Option<String>,
    /// The name of its records, of its present life.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// The folder of the host that is worked on, if it is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub folder: Option<String>,
    /// Where the workspace is inside.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workspace: Option<String>,
    /// The egress mode inside, of its present or last life.
    pub egress: String,
    /// Ports inside that can be reached over the API.
    pub ports: Vec<u16>,
    /// Ports of the host that lead to ports inside.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub forwarded: Vec<ForwardedAt>,
    /// Those of the caller; the owner of this machine sees all of them.
    pub leases: Vec<LeaseInfo>,
    /// How many commands run.
    pub commands: u32,
    pub created_ms: i64,
    /// When its present life began.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started_ms: Option<i64>,
    /// When it is stopped or removed, unless a client takes a lease.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ends_ms: Option<i64>,
    /// Why it is not alive, if it should be.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fault: Option<String>,
    /// It was started before it was asked for (`[daemon] warm`).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub warm: bool,
}

/// A TCP port that a program inside listens at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OpenPort {
    pub port: u16,
}

/// Where a sandbox is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Being made, or woken up.
    Starting,
    /// Commands run.
    Live,
    /// All processes inside are paused.
    Paused,
    /// Being stopped or removed.
    Stopping,
    /// Its files are kept, and nothing runs.
    Stopped,
}

/// A hold on a sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LeaseInfo {
    pub id: String,
    /// The grant that holds it.
    pub holder: String,
    /// Who may make, pause and delete, or only use.
    pub owner: bool,
    pub since_ms: i64,
    /// When it ends unless it is renewed or used.
    pub until_ms: i64,
}

/// The renewal of a lease.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RenewLease {
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 31536000)]
    pub lease_s: Option<u64>,
}

/// What a sweep did, or would do.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
pub struct Sweep {
    pub dry_run: bool,
    pub swept: Vec<SweptSandbox>,
}

/// One sandbox that was looked at by a sweep and is no longer as it was.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SweptSandbox {
    pub name: String,
    pub key: String,
    /// What was done with it: `removed`, `stopped`.
    pub action: String,
    /// Why: its shim died.
    pub reason: String,
}
