//! Servers inside a sandbox, reached by name or by routing headers: HTTP as it is, WebSockets too.

use crate::facts::Facts;
use crate::fault::Fault;
use crate::http::Incoming;
use crate::http::{Body, header, refused, with_type};
use crate::place::{ID, PORT};
use crate::server::{ACCESS_TOKEN, API_KEY, E2b};
use crate::token::same;
use belljar_spec::ErrorCode;
use http_body_util::BodyExt;
use hyper::client::conn::http1::handshake;
use hyper::header::{CONNECTION, HOST, HeaderName, HeaderValue, UPGRADE};
use hyper::upgrade::OnUpgrade;
use hyper::{HeaderMap, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::json;
use std::io;
use std::sync::Arc;
use tokio::io::copy_bidirectional;

/// Passes a request on to the server at this port.
pub(crate) async fn pass(
    e2b: &Arc<E2b>,
    facts: &Facts,
    port: u16,
    request: Request<Incoming>,
) -> Response<Body> {
    if !is_open(e2b, facts, &request) {
        let message = format!("the sandbox's ports are not public: send its token in `{TRAFFIC_TOKEN}`");
        return refused(&Fault::new(StatusCode::FORBIDDEN, message));
    }
    // Any port: what a grant of the daemon's API opens by its number is opened here by the sandbox itself.
    let stream = match e2b.owner.sandbox(&facts.name).connect(port).await {
        Ok(stream) => stream,
        Err(error)
            if matches!(
                error.code(),
                ErrorCode::SandboxNotFound | ErrorCode::SandboxNotAlive | ErrorCode::SandboxPaused
            ) =>
        {
            return told_as_gone(&facts.id);
        }
        Err(_) => return closed(&facts.id, port),
    };
    let Ok((mut line, connection)) = handshake(stream.into_inner()).await else {
        return closed(&facts.id, port);
    };
    tokio::spawn(connection.with_upgrades());
    let (request, upgrade) = towards(facts, port, request);
    let mut response = match line.send_request(request).await {
        Ok(response) => response,
        Err(error) => {
            let message = format!("the server at port {port} did not answer: {error}");
            return refused(&Fault::new(StatusCode::BAD_GATEWAY, message));
        }
    };
    if let (StatusCode::SWITCHING_PROTOCOLS, Some(from)) = (response.status(), upgrade) {
        let to = hyper::upgrade::on(&mut response);
        tokio::spawn(join(from, to));
        let (parts, _) = response.into_parts();
        return Response::from_parts(parts, crate::http::full(Vec::new()));
    }
    between_neighbours(response.headers_mut());
    response.map(|body| {
        // The connection to the server lives as long as its answer.
        let body = body.map_err(io::Error::other);
        let body = body.map_frame(move |frame| {
            let _ = &line;
            frame
        });
        body.boxed_unsync()
    })
}

/// Whether a request may reach the ports of a sandbox.
pub(crate) fn is_open<B>(e2b: &E2b, facts: &Facts, request: &Request<B>) -> bool {
    let shown = header(request, TRAFFIC_TOKEN).unwrap_or_default();
    facts.public_traffic || same(&e2b.tokens.traffic(&facts.id), shown)
}

/// The request as the server inside is to see it.
fn towards(
    facts: &Facts,
    port: u16,
    mut request: Request<Incoming>,
) -> (Request<Incoming>, Option<OnUpgrade>) {
    let wanted = request.headers().get(UPGRADE).cloned().filter(|_| {
        let says =
            |value: &HeaderValue| value.to_str().unwrap_or_default().to_ascii_lowercase().contains("upgrade");
        request.headers().get_all(CONNECTION).iter().any(says)
    });
    let upgrade = wanted.is_some().then(|| hyper::upgrade::on(&mut request));
    let headers = request.headers_mut();
    between_neighbours(headers);
    // What a program inside could use is not for it.
    for ours in [TRAFFIC_TOKEN, ID, PORT, ACCESS_TOKEN, API_KEY] {
        headers.remove(ours);
    }
    if let Some(wanted) = wanted {
        headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
        headers.insert(UPGRADE, wanted);
    }
    if let Some(mask) = &facts.mask_request_host
        && let Ok(host) = HeaderValue::from_str(&mask.replace("${PORT}", &port.to_string()))
    {
        headers.insert(HOST, host);
    }
    let path = request.uri().path_and_query().cloned();
    *request.uri_mut() = path.map(hyper::Uri::from).unwrap_or_default();
    (request, upgrade)
}

async fn join(from: OnUpgrade, to: OnUpgrade) {
    let (Ok(from), Ok(to)) = tokio::join!(from, to) else { return };
    let (mut from, mut to) = (TokioIo::new(from), TokioIo::new(to));
    // When one side hangs up, both connections end.
    let _ = copy_bidirectional(&mut from, &mut to).await;
}

/// What is said between neighbours and goes no further (RFC 9110, 7.6.1).
fn between_neighbours(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse().ok())
        // How long a body is cannot be left out by naming it.
        .filter(|name| *name != hyper::header::CONTENT_LENGTH)
        .collect();
    for name in named {
        headers.remove(name);
    }
    for name in [
        CONNECTION,
        UPGRADE,
        hyper::header::TE,
        hyper::header::TRAILER,
        hyper::header::TRANSFER_ENCODING,
        hyper::header::PROXY_AUTHENTICATE,
        hyper::header::PROXY_AUTHORIZATION,
        HeaderName::from_static("keep-alive"),
    ] {
        headers.remove(name);
    }
}

/// A sandbox that is not there, or is paused. Clients know this sentence.
pub(crate) fn not_there(_id: &str) -> Fault {
    Fault::new(StatusCode::BAD_GATEWAY, "The sandbox was not found")
}

pub(crate) fn told_as_gone(id: &str) -> Response<Body> {
    let body = json!({ "sandboxId": id, "message": "The sandbox was not found", "code": 502 });
    with_type(StatusCode::BAD_GATEWAY, "application/json", body.to_string())
}

/// A sandbox without a server at this port. Clients know this sentence too.
fn closed(id: &str, port: u16) -> Response<Body> {
    let message = "The sandbox is running but port is not open";
    let body = json!({ "sandboxId": id, "message": message, "port": port, "code": 502 });
    with_type(StatusCode::BAD_GATEWAY, "application/json", body.to_string())
}

const TRAFFIC_TOKEN: &str = "e2b-traffic-access-token";
