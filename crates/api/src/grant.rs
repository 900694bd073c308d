//! What a caller may do.

use belljar_spec::request::GrantRules;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

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
