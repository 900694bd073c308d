//! Forwards requests to a sandbox's shim: as they came, but without hop-by-hop headers and without those that are not for the
//! sandbox. Bodies pass as they come, both ways; an upgraded connection passes as bytes.

use super::Front;
use super::connection::Connection;
use super::gate::Asking;
use crate::answer::{Answer, REQUEST};
use crate::link::{Line, Passing};
use crate::shim::{CALLER, COMMAND_HEADER, OWN_ERROR};
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::header::{AUTHORIZATION, CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, HOST, UPGRADE};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode};
use axum::{Extension, http};
use belljar_api::ErrorBody;
use belljar_fleet::InUse;
use belljar_spec::{CommandLine, ErrorCode, hint};
use http_body_util::{BodyExt, Limited};
use hyper::body::{Body as HttpBody, Bytes, Frame, SizeHint};
use hyper::upgrade::{OnUpgrade, on};
use hyper_util::rt::TokioIo;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

/// Passes a request on to the shim of the sandbox that its path names.
pub(super) async fn pass(
    State(front): State<Arc<Front>>,
    Extension(asking): Extension<Asking>,
    Extension(connection): Extension<Arc<Connection>>,
    super::extract::Named(name): super::extract::Named,
    mut request: Request,
) -> Answer<Response<Body>> {
    let (in_use, line) = front.line(&asking, &name).await?;
    let upgrade = take_upgrade(&mut request);
    let from = upgrade.is_some().then(|| on(&mut request));
    let is_port = is_port(request.uri().path());
    clean(request.headers_mut(), upgrade);
    // Without it a request would count as one of the command line, which asks the shim itself.
    let caller = HeaderValue::from_str(asking.caller.id()).map_err(|error| {
        ErrorCode::Internal.error("the caller's id cannot stand in a header").caused_by(error)
    })?;
    request.headers_mut().insert(CALLER, caller);
    *request.uri_mut() = origin_form(request.uri());
    let kills = !is_port && request.headers().get(ON_HANGUP).is_some_and(|value| value == "kill");
    let commands = request.uri().path().to_string();
    if let Some(most) = front.max_upload.filter(|_| is_file(request.uri().path())) {
        request = no_longer_than(request, most)?;
    }
    let response = line.pass(request).await.map_err(|error| error.to_error())?;
    if let (StatusCode::SWITCHING_PROTOCOLS, Some(from)) = (response.status(), from) {
        return Ok(join(response, from, in_use, connection));
    }
    let command = response.headers().get(COMMAND_HEADER).and_then(|id| id.to_str().ok());
    let hangup = command.filter(|_| kills && response.status() == StatusCode::OK).map(|id| Hangup {
        line,
        command: format!("{commands}/{id}"),
        is_watched: false,
    });
    let mut response = outwards(response, in_use, hangup);
    let is_ours = response.headers_mut().remove(OWN_ERROR).is_some();
    Ok(if is_port && !is_ours { response } else { signed(response).await })
}

/// The protocol that a request wants to change to.
fn take_upgrade(request: &mut Request) -> Option<HeaderValue> {
    let protocol = request.headers().get(UPGRADE).cloned()?;
    let says_so = |value: &HeaderValue| {
        let words = value.to_str().unwrap_or_default().split(',');
        words.into_iter().any(|word| word.trim().eq_ignore_ascii_case("upgrade"))
    };
    request.headers().get_all(CONNECTION).iter().any(says_so).then_some(protocol)
}

/// Takes out what is between neighbours (RFC 9110, 7.6.1), what proves who asks, and what only belljar says to itself.
fn clean(headers: &mut HeaderMap, upgrade: Option<HeaderValue>) {
    between_neighbours(headers);
    headers.remove(AUTHORIZATION);
    headers.remove(HOST);
    let ours: Vec<HeaderName> = headers
        .keys()
        .filter(|name| name.as_str().starts_with("x-belljar-") && name.as_str() != ON_HANGUP)
        .cloned()
        .collect();
    for name in ours {
        headers.remove(name);
    }
    if let Some(upgrade) = upgrade {
        headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
        headers.insert(UPGRADE, upgrade);
    }
}

fn between_neighbours(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse().ok())
        // How long a body is cannot be left out by naming it.
        .filter(|name| *name != CONTENT_LENGTH)
        .collect();
    for name in named {
        headers.remove(name);
    }
    for name in BETWEEN_NEIGHBOURS {
        headers.remove(name);
    }
}

fn outwards(response: Response<Passing>, in_use: InUse, hangup: Option<Hangup>) -> Response<Body> {
    let mut response = response.map(|body| Body::new(Watched { body, hangup, _in_use: in_use }));
    between_neighbours(response.headers_mut());
    response
}

/// The body of an answer: as long as it is there, its sandbox is in use.
struct Watched {
    body: Passing,
    hangup: Option<Hangup>,
    _in_use: InUse,
}

/// A command that is to end when its caller hangs up.
struct Hangup {
    line: Arc<Line>,
    /// Its path.
    command: String,
    /// Its end was told.
    is_watched: bool,
}

impl HttpBody for Watched {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let frame = Pin::new(&mut self.body).poll_frame(context);
        if matches!(frame, Poll::Ready(None)) {
            // Heard to its end.
            if let Some(hangup) = &mut self.hangup {
                hangup.is_watched = true;
            }
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for Hangup {
    fn drop(&mut self) {
        if self.is_watched {
            return;
        }
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let mut request = Request::new(Body::empty());
        let Ok(uri) = self.command.parse() else { return };
        (*request.method_mut(), *request.uri_mut()) = (Method::DELETE, uri);
        let line = Arc::clone(&self.line);
        runtime.spawn(async move {
            if let Ok(answer) = line.pass(request).await {
                let _ = answer.into_body().collect().await;
            }
        });
    }
}

/// Both ends change to the same protocol, and from then on bytes go through.
fn join(
    mut response: Response<Passing>,
    from: OnUpgrade,
    in_use: InUse,
    connection: Arc<Connection>,
) -> Response<Body> {
    let to = on(&mut response);
    tokio::spawn(async move {
        let (Ok(from), Ok(to)) = tokio::join!(from, to) else { return };
        let (mut from, mut to) = (TokioIo::new(from), TokioIo::new(to));
        tokio::select! {
            // When one side hangs up, both connections end.
            _ = tokio::io::copy_bidirectional(&mut from, &mut to) => {}
            () = connection.closed() => {}
        }
        drop(in_use);
    });
    let (parts, _) = response.into_parts();
    Response::from_parts(parts, Body::empty())
}

/// A shim's error with the id of the request, which it does not know.
async fn signed(response: Response<Body>) -> Response<Body> {
    let is_json = |value: &HeaderValue| value.as_bytes().starts_with(b"application/json");
    let is_error = response.status().is_client_error() || response.status().is_server_error();
    if !is_error || !response.headers().get(CONTENT_TYPE).is_some_and(is_json) {
        return response;
    }
    let (mut parts, body) = response.into_parts();
    let Ok(body) = Limited::new(body, MAX_ERROR_BYTES).collect().await else {
        return Response::from_parts(parts, Body::empty());
    };
    let bytes = body.to_bytes();
    let signed = serde_json::from_slice::<ErrorBody>(&bytes).ok().and_then(|mut body| {
        body.error.request_id = REQUEST.try_with(String::clone).ok();
        serde_json::to_vec(&body).ok()
    });
    parts.headers.remove(CONTENT_LENGTH);
    Response::from_parts(parts, signed.map_or_else(|| Body::from(bytes), Body::from))
}

/// Whether what answers is a program inside, whose words are its own.
fn is_port(path: &str) -> bool {
    let mut parts = path.split('/').skip(4);
    // Without a number it is the list, which belljar itself answers.
    parts.next() == Some("ports") && parts.next().is_some()
}

fn is_file(path: &str) -> bool {
    path.split('/').nth(4) == Some("files")
}

/// A body that says it is longer is refused; one that does not say is cut off, and so never arrives whole.
fn no_longer_than(request: Request, most: u64) -> Answer<Request> {
    let too_long = || {
        ErrorCode::BodyTooLarge
            .error(format!("the file is longer than {} bytes", most))
            .hint(hint!("the limit is set with {}", CommandLine::ServeMaxUpload))
    };
    if request.body().size_hint().lower() > most {
        return Err(too_long().into());
    }
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    Ok(request.map(|body| Body::new(Limited::new(body, most))))
}

/// Path and query alone: a shim has no other name.
fn origin_form(uri: &http::Uri) -> http::Uri {
    uri.path_and_query().cloned().map(http::Uri::from).unwrap_or_default()
}

const BETWEEN_NEIGHBOURS: [HeaderName; 8] = [
    CONNECTION,
    UPGRADE,
    http::header::TE,
    http::header::TRAILER,
    http::header::TRANSFER_ENCODING,
    http::header::PROXY_AUTHENTICATE,
    http::header::PROXY_AUTHORIZATION,
    HeaderName::from_static("keep-alive"),
];
/// What becomes of a command when its caller hangs up.
const ON_HANGUP: &str = "x-belljar-on-hangup";
/// Longer than any error of ours.
const MAX_ERROR_BYTES: usize = 64 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_for_the_daemon_stay_outside() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("authorization", "Bearer bjt_1_2"),
            ("host", "localhost"),
            ("x-belljar-keeper", "forged"),
            ("x-belljar-lease", "l"),
            ("x-belljar-on-hangup", "kill"),
            ("connection", "close, x-secret, content-length"),
            ("x-secret", "1"),
            ("content-length", "3"),
            ("transfer-encoding", "chunked"),
            ("accept", "text/event-stream"),
        ] {
            headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        clean(&mut headers, None);
        let mut left: Vec<&str> = headers.keys().map(HeaderName::as_str).collect();
        left.sort_unstable();
        assert_eq!(left, ["accept", "content-length", "x-belljar-on-hangup"]);
    }

    #[tokio::test]
    async fn an_error_of_a_shim_has_the_id_of_the_request() {
        let body =
            r#"{"error":{"code":"permission_denied","kind":"unavailable","message":"nobody listens there"}}"#;
        for (status, kind, is_signed) in [
            (StatusCode::BAD_GATEWAY, "application/json", true),
            (StatusCode::BAD_GATEWAY, "text/html", false),
            (StatusCode::OK, "application/json", false),
        ] {
            let response =
                Response::builder().status(status).header(CONTENT_TYPE, kind).body(Body::from(body)).unwrap();
            let response = REQUEST.scope("r-1".into(), signed(response)).await;
            let body = response.into_body().collect().await.unwrap().to_bytes();
            let body = String::from_utf8(body.to_vec()).unwrap();
            assert_eq!(body.contains(r#""request_id":"r-1""#), is_signed, "{status} {kind}: {body}");
            assert!(body.contains("permission_denied"), "{body}");
        }
    }

    #[test]
    fn ports_are_told_from_the_rest() {
        assert!(is_port("/v1/sandboxes/x/ports/8080/a"));
        assert!(!is_port("/v1/sandboxes/ports/commands"));
        assert!(!is_port("/v1/sandboxes/x/ports"));
    }
}
