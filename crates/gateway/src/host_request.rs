//! Requests of the host's own, to a server that a person named and with a token of theirs: no sandbox has a part in them.

use crate::outbound::Outbound;
use belljar_vault::Secret;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderValue, USER_AGENT};
use hyper::{Method, Request};
use std::time::Duration;
use tokio::time::timeout;
use url::Url;

/// Posts JSON, and gives the status and the body of the answer, or why there is none. `trust` is PEM of authorities beside the
/// system's.
pub async fn post_json(
    url: &str,
    body: &str,
    bearer: &Secret,
    trust: &[u8],
) -> Result<(u16, Vec<u8>), String> {
    let words = |error: &dyn std::fmt::Display| error.to_string();
    let url = Url::parse(url).map_err(|error| words(&error))?;
    let server = Outbound::new(&url, trust).map_err(|error| words(&error))?;
    let mut token = HeaderValue::try_from(format!("Bearer {}", bearer.reveal_text()))
        .map_err(|_| "the token is not valid in a header")?;
    token.set_sensitive(true);
    let request = Request::builder()
        .method(Method::POST)
        .uri(url.path())
        .header(ACCEPT, "application/json")
        .header(CONTENT_TYPE, "application/json")
        .header(USER_AGENT, concat!("belljar/", env!("CARGO_PKG_VERSION")))
        .header(AUTHORIZATION, token)
        .body(Full::new(Bytes::copy_from_slice(body.as_bytes())).map_err(|never| match never {}).boxed())
        .map_err(|error| words(&error))?;
    let answered = async {
        let answer = server.send(request).await.map_err(|error| words(&error))?;
        let status = answer.response.status().as_u16();
        let body = Limited::new(answer.response.into_body(), LARGEST_ANSWER).collect().await;
        Ok((status, body.map_err(|error| words(&error))?.to_bytes().to_vec()))
    };
    timeout(ANSWER_TIMEOUT, answered).await.unwrap_or_else(|_| Err("it took too long".to_string()))
}

/// A server that says nothing for so long will not.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);
/// What a forge says of a pull request has some ten kilobytes.
const LARGEST_ANSWER: usize = 1 << 20;
