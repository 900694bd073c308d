//! What is said when something is not done.

use belljar_spec::{ErrorCode, SandboxError};
use serde::{Deserialize, Serialize};
use std::error::Error;
use std::fmt;
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
    #[schema(value_type = String)]
    pub code: ApiCode,
    /// What happened, to what.
    pub message: String,
    /// What to do next.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// For whoever reads the server's log.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
}

/// A code as it was read. A server of another version may have codes that this one does not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub enum ApiCode {
    Known(ErrorCode),
    Unknown(String),
}

impl From<String> for ApiCode {
    fn from(text: String) -> ApiCode {
        text.parse().map_or(ApiCode::Unknown(text), ApiCode::Known)
    }
}

impl From<ApiCode> for String {
    fn from(code: ApiCode) -> String {
        code.to_string()
    }
}

impl fmt::Display for ApiCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ApiCode::Known(code) => code.fmt(f),
            ApiCode::Unknown(text) => f.write_str(text),
        }
    }
}

impl ApiError {
    /// The code, or for one of another version the most general of the same kind: exit code and status follow from that.
    pub fn code(&self) -> ErrorCode {
        match (&self.code, self.kind.as_str()) {
            (ApiCode::Known(code), _) => *code,
            (ApiCode::Unknown(_), "policy") => ErrorCode::RequestValue,
            (ApiCode::Unknown(_), "unavailable") => ErrorCode::NotSupported,
            (ApiCode::Unknown(_), _) => ErrorCode::Internal,
        }
    }
}

impl fmt::Display for ApiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl Error for ApiError {}

/// An error that another process reported.
impl From<ApiError> for SandboxError {
    fn from(error: ApiError) -> SandboxError {
        let made = error.code().error(&error.message);
        let made = match &error.hint {
            Some(hint) => made.hint(hint),
            None => made,
        };
        made.caused_by(error)
    }
}

impl From<&SandboxError> for ApiError {
    fn from(error: &SandboxError) -> ApiError {
        let reported = error.source().and_then(|source| source.downcast_ref::<ApiError>());
        let code = reported.map_or(ApiCode::Known(error.code), |reported| reported.code.clone());
        ApiError {
            kind: error.kind().to_string(),
            code,
            message: error.message.clone(),
            hint: error.hint.clone(),
            request_id: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_error_survives_the_way_through_json() {
        let error = ErrorCode::WorkspaceMissing.error("there is no folder").hint("make it");
        let json = serde_json::to_value(ApiError::from(&error)).unwrap();
        assert_eq!(json["code"], "workspace_missing");
        assert_eq!(SandboxError::from(serde_json::from_value::<ApiError>(json).unwrap()), error);
    }

    #[test]
    fn a_code_of_another_version_keeps_its_text_and_its_kind() {
        for kind in ["policy", "unavailable", "runtime"] {
            let json = json!({ "kind": kind, "code": "not_known_yet", "message": "" });
            let error: ApiError = serde_json::from_value(json.clone()).unwrap();
            assert_eq!(serde_json::to_value(&error).unwrap(), json);
            let error = SandboxError::from(error);
            assert_eq!(error.kind().to_string(), kind);
            assert_eq!(serde_json::to_value(ApiError::from(&error)).unwrap(), json);
        }
    }
}
