//! What is answered when something is not done: one body, and one table from codes to statuses. The daemon and the shims both use
//! it, so that the same fault is the same answer wherever it is found.

use axum::Json;
use axum::http::header::{RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use belljar_api::{ApiError, ErrorBody};
use belljar_spec::{ErrorKind, SandboxError};
use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

/// An error on its way to the caller.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub(crate) error: SandboxError,
    status: StatusCode,
    /// In seconds.
    retry_after: Option<u64>,
}

/// What a handler gives.
pub(crate) type Answer<T> = Result<T, Refusal>;

impl Refusal {
    /// With another status than its code has.
    pub(crate) fn with_status(error: SandboxError, status: StatusCode) -> Refusal {
        Refusal { status, ..Refusal::from(error) }
    }

    /// Too many of something, for now.
    pub(crate) fn later(error: SandboxError, seconds: u64) -> Refusal {
        Refusal { retry_after: Some(seconds), ..Refusal::from(error) }
    }

    pub(crate) fn is_our_fault(&self) -> bool {
        self.status.is_server_error()
    }
}

impl From<SandboxError> for Refusal {
    fn from(error: SandboxError) -> Refusal {
        Refusal { status: status(&error), error, retry_after: None }
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let request_id = REQUEST.try_with(String::clone).ok();
        if self.is_our_fault() {
            // Whoever looks at the log finds the same id.
            let id = request_id.as_deref().unwrap_or("-");
            log(&format!("request {id}: {}: {}", self.error.code, self.error.message));
        }
        let error = ApiError { request_id, ..ApiError::from(&self.error) };
        let mut response = (self.status, Json(ErrorBody { error })).into_response();
        if self.status == StatusCode::UNAUTHORIZED {
            response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if let Some(seconds) = self.retry_after {
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }
}

/// A request that makes no sense.
pub(crate) fn invalid(message: impl Into<String>) -> SandboxError {
    SandboxError::policy("request_invalid", message)
}

/// The status of an error. What a request can bring about is a 4xx; a 5xx is a fault of ours that somebody has to look at.
pub(crate) fn status(error: &SandboxError) -> StatusCode {
    let found = BY_CODE.iter().find(|(_, codes)| codes.contains(&error.code));
    found.map_or(by_kind(error), |(status, _)| *status)
}

fn by_kind(error: &SandboxError) -> StatusCode {
    match error.kind {
        _ if error.code.ends_with("_not_granted") => StatusCode::FORBIDDEN,
        // Words that make no sense together, or that this machine's settings do not take.
        ErrorKind::Policy => StatusCode::UNPROCESSABLE_ENTITY,
        // As things are here and now.
        ErrorKind::Runtime | ErrorKind::Unavailable => StatusCode::CONFLICT,
    }
}

/// An error that a shim told.
pub(crate) fn heard(error: &ApiError) -> SandboxError {
    let code = known(&error.code);
    let made = match error.kind.as_str() {
        "policy" => SandboxError::policy(code, &error.message),
        "unavailable" => SandboxError::unavailable(code, &error.message),
        _ => SandboxError::runtime(code, &error.message),
    };
    match &error.hint {
        Some(hint) => made.hint(hint),
        None => made,
    }
}

/// A code as errors hold it. There are a few hundred of them in all, written in our own source: each is kept once.
fn known(code: &str) -> &'static str {
    static KNOWN: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(code) = known.get(code) {
        return code;
    }
    if known.len() >= MOST_CODES {
        return "keeper_failed";
    }
    let kept: &'static str = String::leak(code.chars().take(LONGEST_CODE).collect());
    known.insert(kept);
    kept
}

/// Says something to whoever looks after the daemon.
pub(crate) fn log(line: &str) {
    use std::io::Write;
    // The one stream that is nobody's data; where it goes is the business of whoever started us.
    let _ = writeln!(std::io::stderr(), "belljar: {line}");
}

tokio::task_local! {
    /// The id of the request that is being answered.
    pub(crate) static REQUEST: String;
}

const MOST_CODES: usize = 1024;
const LONGEST_CODE: usize = 64;

/// Codes whose status does not follow from their kind.
const BY_CODE: [(StatusCode, &[&str]); 11] = [
    (StatusCode::BAD_REQUEST, &["request_invalid"]),
    (StatusCode::UNAUTHORIZED, &["token_missing", "token_unknown", "keeper_token"]),
    (
        StatusCode::FORBIDDEN,
        &[
            "host_refused",
            "limit_over_grant",
            "not_owner",
            "not_readable",
            "origin_refused",
            "outside_workspace",
            "owner_only",
            "port_closed",
            "port_reserved",
            "read_only",
            "too_many_leases",
            "too_many_sandboxes",
        ],
    ),
    (
        StatusCode::NOT_FOUND,
        &[
            "agent_unknown",
            "command_not_found",
            "grant_not_found",
            "lease_not_found",
            "no_such_path",
            "not_found",
            "run_not_found",
            "sandbox_not_found",
        ],
    ),
    (StatusCode::METHOD_NOT_ALLOWED, &["method_not_allowed"]),
    (
        StatusCode::CONFLICT,
        &[
            "folder_replaced",
            "keeper_there",
            "name_taken",
            "sandbox_differs",
            "sandbox_not_alive",
            "sandbox_paused",
        ],
    ),
    (StatusCode::GONE, &["output_dropped"]),
    (StatusCode::PAYLOAD_TOO_LARGE, &["body_too_large"]),
    (StatusCode::TOO_MANY_REQUESTS, &["too_many_requests"]),
    (
        StatusCode::UNPROCESSABLE_ENTITY,
        &["bad_variable", "file_operation", "is_directory", "not_directory", "profile_unavailable"],
    ),
    (
        StatusCode::INTERNAL_SERVER_ERROR,
        &[
            "audit_failed",
            "fleet_directory",
            "fleet_lost",
            "grants_unreadable",
            "grants_unwritable",
            "interrupted",
            "keeper_unclear",
            "keeper_unreachable",
            "no_connection",
            "no_randomness",
            "no_state",
            "place_unmakeable",
            "place_unremovable",
            "record_unreadable",
            "record_unwritable",
            "request_unwritable",
            "run_failed",
            "sandbox_lost",
        ],
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_has_one_status() {
        let mut seen = BTreeSet::new();
        for (_, codes) in BY_CODE {
            for code in codes {
                assert!(seen.insert(*code), "{code} is there twice");
            }
        }
    }

    #[test]
    fn only_our_own_faults_are_errors_of_the_server() {
        for (error, expected) in [
            (SandboxError::policy("key_not_granted", ""), 403),
            (SandboxError::policy("limit_over_grant", ""), 403),
            (SandboxError::policy("key_and_scope", ""), 422),
            (SandboxError::policy("profile_unknown", ""), 422),
            (SandboxError::unavailable("profile_unavailable", ""), 422),
            (SandboxError::unavailable("sandbox_not_alive", ""), 409),
            (SandboxError::runtime("start_failed", ""), 409),
            (SandboxError::policy("sandbox_not_found", ""), 404),
            (SandboxError::runtime("grants_unwritable", ""), 500),
        ] {
            assert_eq!(status(&error).as_u16(), expected, "{}", error.code);
        }
    }

    #[test]
    fn what_a_shim_said_is_said_again() {
        let error = SandboxError::policy("workspace_missing", "there is no folder").hint("make it");
        assert_eq!(heard(&ApiError::from(&error)), error);
        assert!(std::ptr::eq(known("some_code"), known("some_code")));
    }
}
