//! `POST /v1/sandboxes/{name}/fetch`: an HTTP request for the sandbox, made by the gateway under the policy and into the audit log of the
//! sandbox. No credential is put in, and no push is made.
//!
//! Answers are in the shim's memory, which no limit of the sandbox counts: so there are few at a time, and each is bounded.

use super::LiveSandbox;
use super::extract::Body;
use super::failure::Answer;
use crate::command_request::{invalid, text_or_base64};
use axum::body::Body as HttpBody;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use belljar_api::{ErrorBody, Fetch, Fetched, Header, text_and_base64};
use belljar_spec::{ErrorCode, FetchRequest, FetchResponse, SandboxError};
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use std::io;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use tokio::time::timeout;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub(super) fn routes() -> OpenApiRouter<Arc<LiveSandbox>> {
    OpenApiRouter::new().routes(routes!(fetch))
}

/// Make an HTTP request under the sandbox's egress policy. A refused one is `egress_refused`; any answer of the server is an answer.
#[utoipa::path(
    post, path = "/v1/sandboxes/{name}/fetch", tag = "egress", operation_id = "fetch",
    params(("name" = String, Path, description = "Name of the sandbox.")),
    request_body = Fetch,
    responses(
        (status = 200, description = "The server answered, with any status.", body = Fetched),
        (status = "4XX", description = "The request is not valid, or the policy refuses it.", body = ErrorBody),
        (status = "5XX", description = "The server could not be reached.", body = ErrorBody),
    )
)]
async fn fetch(State(live): State<Arc<LiveSandbox>>, Body(fetch): Body<Fetch>) -> Answer<Response> {
    let using = live.using().await?;
    let request = request(fetch)?;
    let permit = match timeout(request.timeout, AT_ONCE.acquire()).await {
        Ok(Ok(permit)) => permit,
        Ok(Err(_)) | Err(_) => return Err(too_many().into()),
    };
    let response = live.sandbox().fetch(request).await?;
    // Of a large body this takes a while, and this process has one thread for all requests.
    let json = spawn_blocking(move || serde_json::to_vec(&fetched(response)));
    let json = json.await.map_err(io::Error::other).and_then(|json| json.map_err(io::Error::other));
    let json =
        json.map_err(|error| ErrorCode::Internal.error(format!("no answer: {error}")).caused_by(error))?;
    // It counts as one of those in memory, and as use of the sandbox, until it was sent.
    let held = (permit, using);
    let body = Full::<Bytes>::from(json).map_frame(move |frame| {
        let _ = &held;
        frame
    });
    Ok(([(CONTENT_TYPE, "application/json")], HttpBody::new(body)).into_response())
}

fn fetched(response: FetchResponse) -> Fetched {
    let is_text = |text: &str| !text.chars().any(|letter| letter.is_control() && !"\t\r\n".contains(letter));
    let (body, body_base64) = match String::from_utf8(response.body) {
        Ok(text) if is_text(&text) => (Some(text), None),
        Ok(text) => (None, Some(STANDARD.encode(text))),
        Err(error) => (None, Some(STANDARD.encode(error.as_bytes()))),
    };
    let header = |(name, value): (String, Vec<u8>)| Header { name, value: text_and_base64(value).0 };
    let headers = response.headers.into_iter().map(header).collect();
    Fetched { url: response.url, status: response.status, headers, body, body_base64 }
}

fn too_many() -> SandboxError {
    ErrorCode::TooManyRequests
        .error(format!("{MAX_AT_ONCE} other requests for this sandbox are not finished"))
        .hint("read their answers, or try again")
}

fn request(fetch: Fetch) -> Result<FetchRequest, SandboxError> {
    let Fetch { url, method, headers, body, body_base64, max_redirects, max_bytes, timeout_s } = fetch;
    if url.is_empty() {
        return Err(invalid("`url` is missing"));
    }
    let usual = FetchRequest::get(url);
    let body = text_or_base64("body", body, body_base64)?;
    let redirects = max_redirects.map(u64::from);
    let redirects = within("max_redirects", redirects, 0..=50)?.and_then(|count| u32::try_from(count).ok());
    let timeout = within("timeout_s", timeout_s, 1..=600)?.map(Duration::from_secs);
    Ok(FetchRequest {
        url: usual.url,
        method: method.unwrap_or(usual.method),
        headers: headers.into_iter().map(|header| (header.name, header.value)).collect(),
        body: body.unwrap_or_default(),
        max_redirects: redirects.unwrap_or(usual.max_redirects),
        max_bytes: within("max_bytes", max_bytes, 1..=MAX_ANSWER_BYTES)?.unwrap_or(usual.max_bytes),
        timeout: timeout.unwrap_or(usual.timeout),
        trust: usual.trust,
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
const MAX_ANSWER_BYTES: u64 = 16 << 20;
const MAX_AT_ONCE: usize = 2;
static AT_ONCE: Semaphore = Semaphore::const_new(MAX_AT_ONCE);
