//! What is said when something is not done.

use belljar_spec::SandboxError;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The body of every answer that is no success.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ErrorBody {
    pub error: ApiError,
}

/// What happened, to what, and what to do next.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ApiError {
    /// `policy` (you may not), `runtime` (it went wrong) or `unavailable` (not here, not now).
    pub kind: String,
    /// Stable, for programs: `workspace_missing`.
    pub code: String,
    /// What happened, to what.
    pub message: String,
    /// What to do next.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// For whoever reads the server's log.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
}

impl From<&SandboxError> for ApiError {
    fn from(error: &SandboxError) -> ApiError {
        ApiError {
            kind: error.kind.to_string(),
            code: error.code.to_string(),
            message: error.message.clone(),
            hint: error.hint.clone(),
            request_id: None,
        }
    }
}
