//! What is answered when something is not done: one body, and the status that its code has. The daemon and the shims both use
//! it, so that the same fault is the same answer wherever it is found.

use axum::Json;
use axum::http::header::{RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use belljar_api::{ApiError, ErrorBody};
use belljar_spec::{ErrorCode, SandboxError};
use tracing::error;

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
            // The log shows the same id as the answer.
            error!(request.id = request_id, error.code = self.error.code.as_str(), "{}", self.error.message);
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
    ErrorCode::RequestInvalid.error(message)
}

/// The status of an error.
pub(crate) fn status(error: &SandboxError) -> StatusCode {
    StatusCode::from_u16(error.code.status()).expect("the table of codes has valid statuses")
}

tokio::task_local! {
    /// The id of the request that is being answered.
    pub(crate) static REQUEST: String;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_has_a_status_of_an_error() {
        for code in ErrorCode::ALL {
            let status = status(&code.error(""));
            assert!(status.is_client_error() || status.is_server_error(), "{code}: {status}");
        }
    }
}
