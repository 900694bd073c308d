//! What a refused request is answered: a page for people where they see it, JSON for programs where only they do.

use super::body::{Body, whole};
use belljar_spec::egress::{Reason, Refusal};
use hyper::header::{CONNECTION, CONTENT_TYPE, HeaderValue};
use hyper::{Response, StatusCode, Version};
use serde_json::json;

/// As text, for HTTP in the clear.
pub(super) fn text(refusal: &Refusal) -> Response<Body> {
    response(refusal, explanation(refusal), "text/plain; charset=utf-8")
}

/// As JSON, for what is said inside of TLS.
pub(super) fn json(refusal: &Refusal) -> Response<Body> {
    let rule = refusal.request.as_ref().and_then(|request| request.rule.as_ref());
    let body = json!({ "error": {
        "code": refusal.reason.code(),
        "message": format!("belljar refused {refusal}"),
        "rule": rule,
        "remedy": refusal.remedy(),
    }});
    response(refusal, format!("{body}\n"), "application/json")
}

/// The answer to a request that is refused before anything of it was read.
pub(crate) fn page(refusal: &Refusal) -> String {
    let body = explanation(refusal);
    let status = status(refusal);
    format!(
        "HTTP/1.1 {status}\r\ncontent-type: text/plain; charset=utf-8\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    )
}

fn response(refusal: &Refusal, body: String, kind: &'static str) -> Response<Body> {
    let mut response = Response::new(whole(body));
    *response.status_mut() = status(refusal);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

/// The last answer of a connection that has one request at a time.
pub(super) fn last(mut response: Response<Body>) -> Response<Body> {
    *response.version_mut() = Version::HTTP_11;
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    response
}

fn status(refusal: &Refusal) -> StatusCode {
    match refusal.reason {
        Reason::NotResolved
        | Reason::DialFailed
        | Reason::UpstreamUntrusted
        | Reason::ClientCertificateWanted
        | Reason::EncodedResponse
        | Reason::SecretUnavailable => StatusCode::BAD_GATEWAY,
        Reason::TooManyConnections | Reason::ByteLimit => StatusCode::TOO_MANY_REQUESTS,
        _ => StatusCode::FORBIDDEN,
    }
}

fn explanation(refusal: &Refusal) -> String {
    let remedy = refusal.remedy().map(|remedy| format!("\nto allow it: {remedy}")).unwrap_or_default();
    format!("belljar refused {refusal}{remedy}\n")
}
