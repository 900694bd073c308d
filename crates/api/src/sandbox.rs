//! Sandboxes: asked for, and told of.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// A sandbox that somebody wants to hold: found by its key, or made.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CreateSandbox {
    /// Same key, same sandbox. Without a key it follows from `scope`; without both it is one that nobody else has.
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
    /// Whether it stays when nobody holds it: stopped, its files kept. Left out: yes with a key or an entity, else no.
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
    /// How long it goes on living when nobody holds it. Left out: two minutes.
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

/// What is said of a sandbox: the same words as on the command line.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SandboxRequest {
    /// auto, native, bwrap, docker, docker+runsc, container or host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backend: Option<String>,
    /// The weakest wall that will do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at_least: Option<String>,
    /// What `/` is made of: `host`, `golden`, `oci:IMAGE`, or the path of a directory. Left out: the host's system.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rootfs: Option<String>,
    pub workspace: WorkspaceRequest,
    pub egress: EgressRequest,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub llm: Option<LlmRequest>,
    /// Credentials that it may use without holding them: names of the vault or of the configuration.
    pub secrets: Vec<String>,
    /// Web search with a key that it does not hold: tavily, exa, brave, or `auto` for the first that is kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub web_search: Option<String>,
    /// A token of the GitHub App.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub github: Option<GitHubRequest>,
    /// Variables of every command. `secret:NAME` is a placeholder for a secret.
    pub env: BTreeMap<String, String>,
    pub limits: LimitsRequest,
    /// Ports inside that can be reached from outside.
    pub ports: Vec<u16>,
    /// Whether commands may make user namespaces.
    pub nested: bool,
    /// Volumes that outlive it: name to path inside.
    pub volumes: BTreeMap<String, String>,
    /// Without marker and protected paths, for the person whose machine it is.
    pub admin: bool,
    /// With `admin`: as root inside.
    pub root: bool,
}

/// The files that are worked on.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct WorkspaceRequest {
    /// A folder of the host. Left out: a folder that belongs to the sandbox.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub folder: Option<String>,
    /// Leave the folder as it is and keep all changes in a layer.
    pub overlay: bool,
    /// Work on a branch of the folder's repository, in a worktree kept by belljar.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub branch: Option<String>,
    /// Work in a clone of this repository that the host makes; with `branch`, on that one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clone: Option<String>,
    /// Clone only so many commits back.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1)]
    pub depth: Option<u32>,
    /// The workspace is seen where it is on the host, instead of at `/workspace`.
    pub same_path: bool,
    /// More paths of the host, read-only.
    pub ro: Vec<String>,
    /// More paths of the host, writable.
    pub rw: Vec<String>,
    /// Paths below the workspace that nobody inside may change.
    pub protect: Vec<String>,
    /// Branches that may be pushed to.
    pub push: Vec<String>,
    /// Let the sandbox write the folder's own `.git`, whose content git of the host believes, instead of a git directory of its own.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub share_git: bool,
    /// Directories of the host whose `*.md` agents are told beside what the repository's `AGENTS.md` says.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub agent_context: Vec<String>,
}

/// What may be reached.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct EgressRequest {
    /// none, strict or open.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
    /// Names: `example.com`, `=api.example.com:443`.
    pub allow: Vec<String>,
    /// Names that stay out of reach, whatever allows them.
    pub deny: Vec<String>,
    /// Groups of names: `github`, `registries`.
    pub groups: Vec<String>,
    /// Whether TLS to every name is looked into.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub inspect: bool,
}

/// A route to a model.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct LlmRequest {
    /// Where it is, or `off`: none, whatever the configuration says. Left out: as the configuration says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// What opens it, and never enters: `secret:NAME`, a name of the vault. Variables and files of the host cannot be named here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// What is spoken there: litellm, anthropic, openai or gemini.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// The only models that may be asked: `claude-*`.
    pub models: Vec<String>,
    /// What may be spent: `calls=100`, `tokens=2m,usd=5`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub budget: Option<String>,
}

/// A token of the GitHub App that is made for one sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct GitHubRequest {
    /// What it is good for: read, issues-write, review-write or repo-write.
    pub profile: String,
    /// `owner/name`. Left out: all that the App is installed for.
    pub repositories: Vec<String>,
}

/// What may be used. Words as on the command line.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct LimitsRequest {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpus: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pids: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub open_files: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk: Option<String>,
    /// How long one command may run: `90s`, `10m`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output: Option<String>,
    /// How long the sandbox itself may take to be ready, 10 minutes at most. Left out: 15 seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready: Option<String>,
}

/// The answer to a request for a sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Created {
    pub sandbox: SandboxInfo,
    /// The caller's hold on it.
    pub lease: LeaseInfo,
    /// Whether it was made by this request; else it was there, or woken up.
    pub created: bool,
    /// What a person should know: a weak wall, a file that was not trusted.
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
    /// The wall that it has; nothing before it was first started.
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
    pub ports: Vec<u16>,
    /// Those of the caller; the owner of this machine sees all of them.
    pub leases: Vec<LeaseInfo>,
    /// How many commands run.
    pub commands: u32,
    pub created_ms: i64,
    /// When its present life began.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started_ms: Option<i64>,
    /// When it is stopped or taken away, unless somebody comes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ends_ms: Option<i64>,
    /// Why it is not alive, if it should be.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fault: Option<String>,
}

/// Where a sandbox is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Being made, or woken up.
    Starting,
    /// Commands run.
    Live,
    /// Everything inside stands still.
    Paused,
    /// Being stopped or taken away.
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

/// A lease that is to go on.
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
    /// Why: its keeper is dead.
    pub reason: String,
}
