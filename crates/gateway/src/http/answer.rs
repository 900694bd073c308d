//! What a refused request is answered: a page for people where they see it, JSON for programs where only they do. Where a name
//! leads and in which file a rule stands is for the host's side, and is in the audit log.

use super::body::{Body, whole};
use belljar_spec::egress::{Reason, Refusal, RuleLabel};
use hyper::header::{CONNECTION, CONTENT_TYPE, HeaderValue};
use hyper::{Response, StatusCode, Version};
use serde_json::json;

/// As text, for HTTP in the clear.
pub(super) fn text(refusal: &Refusal) -> Response<Body> {
    response(refusal, explanation(refusal), "text/plain; charset=utf-8")
}

/// As JSON, for what is said inside of TLS.
pub(super) fn json(refusal: &Refusal) -> Response<Body> {
    let shown = refusal.for_the_inside();
    let rule = shown.request.as_ref().and_then(|request| request.rule.as_ref());
    let body = json!({ "error": {
        "code": shown.reason.code(),
        "message": format!("belljar refused {shown}"),
        "rule": rule.map(RuleLabel::text),
        "remedy": shown.remedy(),
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
        | Reason::ClientCertificateRequested
        | Reason::EncodedResponse
        | Reason::SecretUnavailable => StatusCode::BAD_GATEWAY,
        Reason::TooManyConnections | Reason::ByteLimit => StatusCode::TOO_MANY_REQUESTS,
        _ => StatusCode::FORBIDDEN,
    }
}

fn explanation(refusal: &Refusal) -> String {
    let shown = refusal.for_the_inside();
    let remedy = shown.remedy().map(|remedy| format!("\nto allow it: {remedy}")).unwrap_or_default();
    format!("belljar refused {shown}{remedy}\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use belljar_spec::egress::{HostName, RuleSource};
    use http_body_util::BodyExt;

    #[test]
    fn neither_addresses_nor_files_of_the_host_are_told_inside() {
        let name: HostName = "db.corp.example".parse().expect("a name");
        let source = RuleSource::File { path: "/home/me/.config/belljar/belljar.toml".into(), line: 12 };
        let label = RuleLabel::new(source, "=db.corp.example: GET of /a");
        let private = Refusal::new(&name, Some(443), Reason::PrivateAddress)
            .detail("10.0.0.1: Private-Use")
            .lift("10.0.0.1/32".parse().expect("a range"));
        let request = Refusal::new(&name, Some(443), Reason::RequestNotAllowed);
        let request = request.request("POST", "/a", Some(label));
        let unresolved = Refusal::new(&name, Some(443), Reason::NotResolved).detail("10.9.9.9:53 timed out");
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        for refusal in [private, request, unresolved] {
            let body = |response: Response<Body>| {
                let whole = runtime.block_on(response.into_body().collect());
                let Ok(whole) = whole else { panic!("a body") };
                String::from_utf8(whole.to_bytes().to_vec()).expect("text")
            };
            for rendered in [body(json(&refusal)), body(text(&refusal)), page(&refusal)] {
                assert!(rendered.contains("db.corp.example"), "{rendered}");
                for hidden in ["10.0.0.1", "10.9.9.9", "/home/me", "belljar.toml:12"] {
                    assert!(!rendered.contains(hidden), "{hidden} in {rendered}");
                }
            }
        }
    }
}
