//! What is said when something is not done.

use belljar_spec::{ErrorCode, Hint, SandboxError};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
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
    /// The hint in pieces, where another front has other words for it: texts, and objects for what a request can set (`term`, `value`) or
    /// only the command line has (`command_line`, `value`).
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "known_parts")]
    #[schema(value_type = Option<Vec<Value>>)]
    pub hint_parts: Option<Hint>,
    /// The same in the log of the server.
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

    /// What to do next, as the server made it or, of another version, as it wrote it.
    pub fn hint(&self) -> Option<Hint> {
        self.hint_parts.clone().or_else(|| self.hint.clone().map(Hint::from))
    }
}

/// Nothing for pieces of another version: `hint` says the same.
fn known_parts<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Hint>, D::Error> {
    let parts: Option<Hint> = serde_json::from_value(Value::deserialize(deserializer)?).ok();
    Ok(parts.filter(|parts| !parts.pieces().is_empty()))
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
        let mut made = error.code().error(&error.message);
        made.hint = error.hint();
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
            hint: error.hint.as_ref().map(Hint::to_string),
            hint_parts: error.hint.clone().filter(|hint| !hint.is_text()),
            request_id: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use belljar_spec::{Term, hint};
    use serde_json::json;

    #[test]
    fn an_error_survives_the_way_through_json() {
        let error =
            ErrorCode::WorkspaceMissing.error("there is no folder").hint(hint!("omit {}", Term::Overlay));
        let mut json = serde_json::to_value(ApiError::from(&error)).unwrap();
        assert_eq!(
            (json["code"].as_str(), json["hint"].as_str()),
            (Some("workspace_missing"), Some("omit `workspace.overlay`"))
        );
        let read =
            |json: &Value| SandboxError::from(serde_json::from_value::<ApiError>(json.clone()).unwrap());
        assert_eq!(read(&json), error);
        for other in [json!([{ "term": "not_known_yet" }]), json!([])] {
            json["hint_parts"] = other;
            assert_eq!(read(&json).hint, Some("omit `workspace.overlay`".into()));
        }
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
