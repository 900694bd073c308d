//! What a keeper answers when something is not done.

use super::kept::GONE;
use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use belljar_api::{ApiError, ErrorBody};
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
        if self.0.code == GONE {
            response.extensions_mut().insert(Gone);
        }
        response
    }
}

fn status(error: &SandboxError) -> StatusCode {
    match error.code {
        "keeper_token" => StatusCode::UNAUTHORIZED,
        "not_found" | "command_not_found" | "sandbox_not_found" | "no_such_path" => StatusCode::NOT_FOUND,
        "method_not_allowed" => StatusCode::METHOD_NOT_ALLOWED,
        "body_too_large" => StatusCode::PAYLOAD_TOO_LARGE,
        "output_dropped" => StatusCode::GONE,
        "request_invalid" => StatusCode::BAD_REQUEST,
        "command_invalid" | "environment_too_long" | "file_operation" | "path_invalid" | "signal_unknown" => {
            StatusCode::UNPROCESSABLE_ENTITY
        }
        "read_only" | "outside_workspace" | "port_closed" | "port_reserved" => StatusCode::FORBIDDEN,
        _ => StatusCode::CONFLICT,
    }
}
