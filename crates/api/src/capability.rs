//! What this machine can do.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What this machine can do for this caller.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Capabilities {
    /// Of belljar.
    pub version: String,
    /// Of the API.
    pub api: String,
    pub backends: Vec<BackendInfo>,
    pub egress_modes: Vec<String>,
    pub cpus: u32,
    pub memory_bytes: u64,
    /// How many sandboxes may be made at the same time; more of them wait.
    pub concurrent_starts: u32,
    /// The longest body that is taken, but for files.
    pub max_body_bytes: u64,
}

/// A backend, and whether it works here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BackendInfo {
    pub backend: String,
    pub assurance: String,
    pub works: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}
