//! What a grant allows.

use super::{HostPath, LimitsRequest};
#[cfg(feature = "schema")]
use crate::OsText;
use crate::egress::{HostPattern, HostPatternError, Mode};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// What a grant allows. What is not said is not allowed.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields, default)]
pub struct GrantRules {
    /// Sandboxes at all. Without it only profiles and capabilities can be seen.
    pub allow_sandbox: bool,
    /// Runs of agents.
    pub allow_agents: bool,
    /// The metrics of all sandboxes on this machine. Not written where it is not allowed: the version before this does not know it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub allow_metrics: bool,
    /// Profiles that may be named; empty: only the default one. `*` is every one that isolates.
    pub profiles: Vec<String>,
    /// Modes of egress that may be chosen; empty: none and strict without further names.
    #[cfg_attr(feature = "schema", schema(value_type = Vec<String>))]
    pub egress: Vec<Mode>,
    /// Names that may be allowed in strict mode, as patterns. `*` is every one.
    #[cfg_attr(feature = "schema", schema(value_type = Vec<String>))]
    pub hosts: Vec<HostGrant>,
    /// Keys that may be joined or made: exact, or a prefix that ends in `*`. A sandbox that the grant made is its own; one that another
    /// grant made is only joined: it cannot be woken, paused, stopped or deleted.
    pub keys: Vec<String>,
    /// Keys whose sandboxes are the grant's own, whichever grant made them.
    pub own_keys: Vec<String>,
    /// Folders of the host that may be worked on, with all below them. Empty: only folders that belong to the sandbox.
    #[cfg_attr(feature = "schema", schema(value_type = Vec<OsText>))]
    pub folders: Vec<HostPath>,
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
    /// Maximum number of sandboxes at the same time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sandboxes: Option<u32>,
    /// Maximum number of snapshots.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snapshots: Option<u32>,
    /// Maximum requests per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<u32>,
}

/// Names that a grant may open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HostGrant {
    /// `*`.
    Every,
    Pattern(HostPattern),
}

impl HostGrant {
    /// Does it mean every name that the pattern means?
    pub(super) fn covers(&self, requested: &HostPattern) -> bool {
        match self {
            HostGrant::Every => true,
            HostGrant::Pattern(pattern) => pattern.covers(requested),
        }
    }
}

impl FromStr for HostGrant {
    type Err = HostPatternError;

    fn from_str(text: &str) -> Result<HostGrant, HostPatternError> {
        if text == "*" { Ok(HostGrant::Every) } else { text.parse().map(HostGrant::Pattern) }
    }
}

impl fmt::Display for HostGrant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HostGrant::Every => f.write_str("*"),
            HostGrant::Pattern(pattern) => write!(f, "{pattern}"),
        }
    }
}

crate::text::serde_as_text!(HostGrant);
