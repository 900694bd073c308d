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
