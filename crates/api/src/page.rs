//! Lists that come in parts.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A part of a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Page<T> {
    pub items: Vec<T>,
    /// Where the next part begins, as `?after=`; nothing behind the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// A record of what was decided for a sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AuditRecord {
    /// Its place in the log, counted from one.
    pub line: u64,
    /// When it was written; missing in a line that is no record.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time: Option<String>,
    /// What happened: `kind`, and what belongs to it.
    #[schema(value_type = Object)]
    pub event: serde_json::Value,
}
