//! What a caller may do.

use crate::LimitsRequest;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What a grant allows. What is not said is not allowed.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct GrantRules {
    /// Sandboxes at all. Without it only profiles and capabilities can be seen.
    pub allow_sandbox: bool,
    /// Runs of agents.
    pub allow_agents: bool,
    /// Profiles that may be named; empty: only the default one. `*` is every one that has a wall of its own.
    pub profiles: Vec<String>,
    /// Modes of egress that may be chosen; empty: none and strict without further names.
    pub egress: Vec<String>,
    /// Names that may be allowed in strict mode, as patterns. `*` is every one.
    pub hosts: Vec<String>,
    /// Keys that may be joined or made: exact, or a prefix that ends in `*`. A sandbox that the grant made is its own; one that another
    /// grant made is only joined: it cannot be woken, paused, stopped or deleted.
    pub keys: Vec<String>,
    /// Keys whose sandboxes are the grant's own, whoever made them.
    pub own_keys: Vec<String>,
    /// Folders of the host that may be worked on, with all below them. Empty: only folders that belong to the sandbox.
    pub folders: Vec<String>,
    /// Credentials that may be used. `*` is every one.
    pub secrets: Vec<String>,
    /// Volumes that may be used: exact, or a prefix that ends in `*`.
    pub volumes: Vec<String>,
    /// Images that may be the root: exact, or a prefix that ends in `*`. The host fetches them, so they are named one by one.
    pub images: Vec<String>,
    /// The route to a model that the machine's configuration has.
    pub allow_llm: bool,
    /// No sandbox of the grant gets more than this; what is not asked for gets this.
    pub limits: LimitsRequest,
    /// How many sandboxes it may hold at the same time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sandboxes: Option<u32>,
    /// How many requests a second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<u32>,
}

/// A grant to make.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct NewGrant {
    /// For people.
    pub name: String,
    #[serde(flatten)]
    pub rules: GrantRules,
    /// How long it counts. Left out: until it is revoked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub valid_s: Option<u64>,
}

/// A grant that was made. The token is told once, and kept only as a hash.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NewToken {
    pub grant: GrantInfo,
    pub token: String,
}

/// A grant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct GrantInfo {
    pub id: String,
    pub name: String,
    pub rules: GrantRules,
    pub created_ms: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_ms: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_used_ms: Option<i64>,
}
