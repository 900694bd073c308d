//! What a shim answers when something is not done.

use crate::answer::status;
use axum::Json;
use axum::http::HeaderValue;
use axum::response::{IntoResponse, Response};
use belljar_api::{ApiError, ErrorBody};
use belljar_spec::{ErrorCode, SandboxError};

/// An error on its way to the caller.
#[derive(Debug)]
pub(crate) struct Failure(pub(crate) SandboxError);

/// Marks an answer as one whose guest is gone.
#[derive(Debug, Clone, Copy)]
pub(super) struct Gone;

/// Marks an answer as the shim's own word, also where a server inside could have answered.
pub(crate) const OWN_ERROR: &str = "x-belljar-error";

/// What a handler gives.
pub(crate) type Answer<T> = Result<T, Failure>;

impl From<SandboxError> for Failure {
    fn from(error: SandboxError) -> Failure {
        Failure(error)
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let mut response =
            (status(&self.0), Json(ErrorBody { error: ApiError::from(&self.0) })).into_response();
        // No server inside can say this: headers of ours are taken out of its answers.
        response.headers_mut().insert(OWN_ERROR, HeaderValue::from_static("1"));
        if self.0.code == ErrorCode::GuestGone {
            response.extensions_mut().insert(Gone);
        }
        response
    }
}
