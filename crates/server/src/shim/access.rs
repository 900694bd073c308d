//! Which requests are let in: only those with the token, and only for the sandbox that is held here.

use super::LiveSandbox;
use super::extract::invalid;
use super::failure::{Failure, Gone};
use axum::extract::rejection::RawPathParamsRejection;
use axum::extract::{RawPathParams, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use belljar_api::SHIM_TOKEN_HEADER;
use belljar_spec::ErrorCode;
use std::sync::Arc;

/// Lets a request in, or not.
pub(super) async fn check(
    State(live): State<Arc<LiveSandbox>>,
    mut request: Request,
    next: Next,
) -> Response {
    let token = request.headers_mut().remove(SHIM_TOKEN_HEADER);
    if !token.is_some_and(|token| live.knows(token.as_bytes())) {
        let message = "this is the shim of a sandbox: only its daemon may ask it";
        return Failure(ErrorCode::TokenInvalid.error(message)).into_response();
    }
    next.run(request).await
}

/// Refuses requests for other sandboxes.
pub(super) async fn ours(
    State(live): State<Arc<LiveSandbox>>,
    params: Result<RawPathParams, RawPathParamsRejection>,
    request: Request,
    next: Next,
) -> Response {
    let Ok(params) = params else { return Failure(invalid("the path is not valid UTF-8")).into_response() };
    let name = params.iter().find(|(name, _)| *name == "name").map(|(_, value)| value);
    if name.is_some_and(|name| name != live.plan.name) {
        return Failure(ErrorCode::SandboxNotFound.error("another sandbox is kept here")).into_response();
    }
    let response = next.run(request).await;
    if response.extensions().get::<Gone>().is_some() {
        live.doubt();
    }
    response
}

/// No such path.
pub(super) async fn nowhere() -> Failure {
    Failure(
        ErrorCode::NotFound
            .error("there is nothing at this path")
            .hint("`/v1/openapi.json` says what there is"),
    )
}

/// No such method of this path.
pub(super) async fn not_that() -> Failure {
    Failure(
        ErrorCode::MethodNotAllowed
            .error("this path has no such method")
            .hint("`/v1/openapi.json` says what there is"),
    )
}
