//! What a keeper answers when something is not done.

use crate::answer::status;
use axum::Json;
use axum::response::{IntoResponse, Response};
use belljar_api::{ApiError, ErrorBody};
use belljar_engine::GUEST_GONE;
use belljar_spec::SandboxError;

/// An error on its way to the caller.
#[derive(Debug)]
pub(crate) struct Failure(pub(crate) SandboxError);

/// With an answer that nobody inside could give.
#[derive(Debug, Clone, Copy)]
pub(super) struct Gone;

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
        if self.0.code == GUEST_GONE {
            response.extensions_mut().insert(Gone);
        }
        response
    }
}
