//! Named choices of a sandbox.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A profile that works on this machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ProfileInfo {
    pub name: String,
    /// For people.
    pub label: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Its sandboxes are on another machine: a folder of this one means nothing there.
    pub remote: bool,
    pub backend: String,
    pub assurance: String,
    pub egress: String,
    /// It is taken where none is named.
    pub default: bool,
    /// `built-in`, or the file that it comes from.
    pub source: String,
}
