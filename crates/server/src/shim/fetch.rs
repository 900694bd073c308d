//! `POST /v1/sandboxes/{name}/fetch`: an HTTP request for the sandbox, made by the gateway. The policy, the credentials and the audit log are
//! those of the sandbox.

use super::Kept;
use super::extract::{Body, invalid};
use super::failure::Answer;
use axum::Json;
use axum::extract::State;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use belljar_api::{ErrorBody, Fetch, Fetched, Header, text_and_base64};
use belljar_spec::{FetchRequest, SandboxError};
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub(super) fn routes() -> OpenApiRouter<Arc<Kept>> {
    OpenApiRouter::new().routes(routes!(fetch))
}

/// Make an HTTP request under the sandbox's egress policy. A refused one is `egress_refused`; any answer of the server is an answer.
#[utoipa::path(
    post, path = "/v1/sandboxes/{name}/fetch", tag = "egress", operation_id = "fetch",
    params(("name" = String, Path, description = "The sandbox.")),
    request_body = Fetch,
    responses(
        (status = 200, description = "The server answered, with any status.", body = Fetched),
        (status = "4XX", description = "The request is not valid, or the policy refuses it.", body = ErrorBody),
        (status = "5XX", description = "The server could not be reached.", body = ErrorBody),
    )
)]
async fn fetch(State(kept): State<Arc<Kept>>, Body(asked): Body<Fetch>) -> Answer<Json<Fetched>> {
    let _using = kept.using()?;
    let response = kept.sandbox.fetch(request(asked)?).await?;
    let (body, body_base64) = text_and_base64(response.body);
    let header = |(name, value): (String, Vec<u8>)| Header { name, value: text_and_base64(value).0 };
    let headers = response.headers.into_iter().map(header).collect();
    Ok(Json(Fetched { url: response.url, status: response.status, headers, body, body_base64 }))
}

fn request(asked: Fetch) -> Result<FetchRequest, SandboxError> {
    let Fetch { url, method, headers, body, body_base64, max_redirects, max_bytes, timeout_s } = asked;
    if url.is_empty() {
        return Err(invalid("`url` is missing"));
    }
    let usual = FetchRequest::get(url);
    let body = match (body, body_base64) {
        (Some(_), Some(_)) => return Err(invalid("a request has `body` or `body_base64`, not both")),
        (Some(text), None) => text.into_bytes(),
        (None, Some(text)) => STANDARD.decode(text).map_err(|_| invalid("`body_base64` is not base64"))?,
        (None, None) => Vec::new(),
    };
    let redirects = max_redirects.map(u64::from);
    let redirects = within("max_redirects", redirects, 0..=50)?.and_then(|count| u32::try_from(count).ok());
    let timeout = within("timeout_s", timeout_s, 1..=600)?.map(Duration::from_secs);
    Ok(FetchRequest {
        method: method.unwrap_or(usual.method),
        headers: headers.into_iter().map(|header| (header.name, header.value)).collect(),
        body,
        max_redirects: redirects.unwrap_or(usual.max_redirects),
        max_bytes: within("max_bytes", max_bytes, 1..=MAX_ANSWER_BYTES)?.unwrap_or(usual.max_bytes),
        timeout: timeout.unwrap_or(usual.timeout),
        ..FetchRequest::get(usual.url)
    })
}

fn within(field: &str, value: Option<u64>, range: RangeInclusive<u64>) -> Result<Option<u64>, SandboxError> {
    match value {
        Some(number) if !range.contains(&number) => {
            Err(invalid(format!("`{field}` must be from {} to {}", range.start(), range.end())))
        }
        value => Ok(value),
    }
}

/// An answer is in memory as a whole.
const MAX_ANSWER_BYTES: u64 = 64 << 20;
