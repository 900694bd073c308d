//! Programs inside ask for a name before they dial it: `POST http://ask.belljar.internal/HOST[:PORT]`, with their reason as the body. The
//! question goes to a person outside, as that of a connection in the mode `ask` does, and the answer comes back when there is one. In every
//! mode but `none`: asking opens nothing. The name leads nowhere else, and no rule is needed for it.
//!
//! Called by [`crate::connection`]; which questions are target at all is the living policy's to say.

use crate::live::{LivePolicy, Requested};
use belljar_spec::egress::{HostName, Printable, Verdict};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1::Builder;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use serde_json::json;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;

/// Answers one connection's questions, one after the other.
pub(crate) async fn serve(inside: TcpStream, live: Arc<LivePolicy>) {
    let service = service_fn(move |request| {
        let live = Arc::clone(&live);
        async move { Ok::<_, Infallible>(answer(request, &live).await) }
    });
    let mut builder = Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT).max_buf_size(MAX_HEAD_BYTES);
    let _ = builder.serve_connection(TokioIo::new(inside), service).await;
}

async fn answer(request: Request<Incoming>, live: &Arc<LivePolicy>) -> Response<Full<Bytes>> {
    if request.method() != Method::POST {
        return response(StatusCode::METHOD_NOT_ALLOWED, "unclear", HOW);
    }
    let target = request.uri().path().trim_start_matches('/').to_string();
    let Some((name, port)) = parsed(&target) else {
        return response(StatusCode::BAD_REQUEST, "unclear", HOW);
    };
    let Ok(body) = Limited::new(request.into_body(), MAX_REASON_BYTES).collect().await else {
        return response(
            StatusCode::PAYLOAD_TOO_LARGE,
            "unclear",
            "the reason is too long: say it in a sentence",
        );
    };
    let reason = String::from_utf8_lossy(&body.to_bytes()).trim().to_string();
    let reason =
        Some(reason).filter(|reason| !reason.is_empty()).map(|reason| Printable::new(reason.as_bytes()));
    let waiting = match live.request(&name, port, reason) {
        Requested::Allowed => return response(StatusCode::OK, "allowed", "the policy allows it"),
        Requested::Refused(why) => return response(StatusCode::FORBIDDEN, "refused", &why),
        Requested::Waits(waiting) => waiting,
    };
    match waiting.verdict().await {
        Some(Verdict::Sandbox) => response(StatusCode::OK, "allowed", "the user allowed it"),
        Some(Verdict::Once) => response(StatusCode::OK, "allowed", "the user allowed one connection"),
        Some(Verdict::Deny) => {
            response(StatusCode::FORBIDDEN, "denied", "the user denied it: do not ask again")
        }
        None => {
            let text = "no person answered: go on without it, and tell the user what you would have needed";
            response(StatusCode::FORBIDDEN, "unanswered", text)
        }
    }
}

/// `api.example.com`, `api.example.com:8443`.
fn parsed(target: &str) -> Option<(HostName, u16)> {
    let (name, port) = match target.rsplit_once(':') {
        Some((name, port)) => (name, port.parse().ok().filter(|port| *port > 0)?),
        None => (target, HTTPS),
    };
    Some((name.parse().ok()?, port))
}

fn response(status: StatusCode, answer: &str, text: &str) -> Response<Full<Bytes>> {
    let mut body = json!({ "answer": answer, "message": text }).to_string();
    body.push('\n');
    let mut reply = Response::new(Full::new(Bytes::from(body)));
    *reply.status_mut() = status;
    reply.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    reply
}

const HOW: &str = "POST http://ask.belljar.internal/HOST[:PORT] with the reason as the body";
const HTTPS: u16 = 443;
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
const MAX_HEAD_BYTES: usize = 16 * 1024;
const MAX_REASON_BYTES: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_asked_for_with_or_without_its_port() {
        for (target, expected) in [
            ("api.example.com", Some(("api.example.com", 443))),
            ("api.example.com:8443", Some(("api.example.com", 8443))),
            ("api.example.com:0", None),
            ("127.0.0.1:80", None),
            ("", None),
            ("a/b", None),
        ] {
            let found = parsed(target);
            assert_eq!(found.as_ref().map(|(name, port)| (name.as_str(), *port)), expected, "{target}");
        }
    }
}
