//! Which requests are let in: only those with the token, and only for the sandbox that is held here.

use super::Kept;
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
pub(super) async fn check(State(kept): State<Arc<Kept>>, mut request: Request, next: Next) -> Response {
    let token = request.headers_mut().remove(SHIM_TOKEN_HEADER);
    if !token.is_some_and(|token| kept.knows(token.as_bytes())) {
        let message = "this is the shim of a sandbox: only its daemon may ask it";
        return Failure(ErrorCode::TokenInvalid.error(message)).into_response();
    }
    next.run(request).await
}

/// Refuses requests for other sandboxes.
pub(super) async fn ours(
    State(kept): State<Arc<Kept>>,
    params: Result<RawPathParams, RawPathParamsRejection>,
    request: Request,
    next: Next,
) -> Response {
    let Ok(params) = params else { return Failure(invalid("the path is not valid UTF-8")).into_response() };
    let wanted = params.iter().find(|(name, _)| *name == "name").map(|(_, value)| value);
    if wanted.is_some_and(|wanted| wanted != kept.plan.name) {
        return Failure(ErrorCode::SandboxNotFound.error("another sandbox is kept here")).into_response();
    }
    let response = next.run(request).await;
    if response.extensions().get::<Gone>().is_some() {
        kept.doubt();
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
