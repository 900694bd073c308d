//! Servers inside a sandbox, reached by name or by routing headers: HTTP as it is, WebSockets too.

use crate::facts::Facts;
use crate::fault::Fault;
use crate::http::Incoming;
use crate::http::{Body, header, refused, with_type};
use crate::place::{ID, PORT};
use crate::server::{ACCESS_TOKEN, API_KEY, E2b};
use crate::token::same;
use belljar_api::client::ClientError;
use belljar_spec::ErrorCode;
use http_body_util::BodyExt;
use hyper::client::conn::http1::handshake;
use hyper::header::{CONNECTION, HOST, HeaderName, HeaderValue, UPGRADE};
use hyper::upgrade::OnUpgrade;
use hyper::{HeaderMap, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::json;
use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, copy, split};
use tokio::sync::Notify;

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
    let Some(slot) = e2b.port_slots.take(&facts.id) else {
        let message =
            format!("a sandbox has at most {MAX_PORT_CONNECTIONS} connections to its ports at a time");
        let fault = Fault::new(StatusCode::TOO_MANY_REQUESTS, message);
        return refused(&Fault { retry_after: Some(RETRY_AFTER_S), ..fault });
    };
    // The owner may always: whether the sandbox's grant still may is asked in its name.
    match e2b.must_count(facts).await {
        Ok(()) => {}
        Err(error) if is_gone(&error) => return told_as_gone(&facts.id),
        Err(error) => return refused(&error.into()),
    }
    // Any port: what a grant of the daemon's API opens by its number is opened here by the sandbox itself.
    let stream = match e2b.owner.sandbox(&facts.name).connect(port).await {
        Ok(stream) => stream,
        Err(error) if is_gone(&error) => return told_as_gone(&facts.id),
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
        tokio::spawn(join(from, to, slot));
        let (parts, _) = response.into_parts();
        return Response::from_parts(parts, crate::http::full(Vec::new()));
    }
    between_neighbours(response.headers_mut());
    response.map(|body| {
        // The connection to the server lives as long as its answer, and takes its slot for so long.
        let body = body.map_err(io::Error::other);
        let body = body.map_frame(move |frame| {
            let _ = (&line, &slot);
            frame
        });
        body.boxed_unsync()
    })
}

fn is_gone(error: &ClientError) -> bool {
    matches!(error.code(), ErrorCode::SandboxNotFound | ErrorCode::SandboxNotAlive | ErrorCode::SandboxPaused)
}

/// Whether a request may reach the ports of a sandbox.
pub(crate) fn is_open<B>(e2b: &E2b, facts: &Facts, request: &Request<B>) -> bool {
    let shown = header(request, TRAFFIC_TOKEN).unwrap_or_default();
    facts.public_traffic || same(&e2b.tokens.traffic(&facts.bearer()), shown)
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

/// Passes on what both sides say, and holds the slot meanwhile.
async fn join(from: OnUpgrade, to: OnUpgrade, _slot: PortSlot) {
    let (Ok(from), Ok(to)) = tokio::join!(from, to) else { return };
    pass_between(TokioIo::new(from), TokioIo::new(to)).await;
}

/// When one side ends, the other has a moment for its last words; then both connections end.
async fn pass_between<A, B>(one: A, other: B)
where
    A: AsyncRead + AsyncWrite,
    B: AsyncRead + AsyncWrite,
{
    let ((one_says, to_one), (other_says, to_other)) = (split(one), split(other));
    let ended = Notify::new();
    let both =
        async { tokio::join!(one_way(one_says, to_other, &ended), one_way(other_says, to_one, &ended)) };
    let overdue = async {
        ended.notified().await;
        tokio::time::sleep(TO_END).await;
    };
    tokio::select! {
        _ = both => {}
        () = overdue => {}
    }
}

async fn one_way(mut from: impl AsyncRead + Unpin, mut to: impl AsyncWrite + Unpin, ended: &Notify) {
    let _ = copy(&mut from, &mut to).await;
    // Before the end is passed on: that may take as long as the other side likes.
    ended.notify_one();
    let _ = to.shutdown().await;
}

/// How many connections to ports there are, by sandbox: requests and what they were upgraded to.
#[derive(Debug, Default)]
pub(crate) struct PortSlots(Mutex<HashMap<String, usize>>);

/// One of them, until this is dropped.
#[derive(Debug)]
struct PortSlot {
    all: Arc<PortSlots>,
    sandbox: String,
}

impl PortSlots {
    /// `None`: the sandbox has all that it may have.
    fn take(self: &Arc<PortSlots>, sandbox: &str) -> Option<PortSlot> {
        let mut taken = self.taken();
        let of_sandbox = taken.entry(sandbox.into()).or_default();
        if *of_sandbox >= MAX_PORT_CONNECTIONS {
            return None;
        }
        *of_sandbox += 1;
        drop(taken);
        Some(PortSlot { all: Arc::clone(self), sandbox: sandbox.into() })
    }

    fn taken(&self) -> MutexGuard<'_, HashMap<String, usize>> {
        // Every change is one call or one assignment: a panic leaves it right.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for PortSlot {
    fn drop(&mut self) {
        let mut taken = self.all.taken();
        if let Some(of_sandbox) = taken.get_mut(&self.sandbox) {
            *of_sandbox -= 1;
            if *of_sandbox == 0 {
                taken.remove(&self.sandbox);
            }
        }
    }
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
/// Of one sandbox at a time: one sandbox cannot take the places of all.
const MAX_PORT_CONNECTIONS: usize = 256;
const RETRY_AFTER_S: u32 = 1;
/// For the last words of one side when the other has ended.
const TO_END: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncReadExt;

    #[tokio::test]
    async fn the_last_words_of_one_side_come_through_when_the_other_has_ended() {
        let (mut client, one) = tokio::io::duplex(64);
        let (mut server, other) = tokio::io::duplex(64);
        let passing = tokio::spawn(pass_between(one, other));
        client.write_all(b"bye").await.unwrap();
        client.shutdown().await.unwrap();
        let mut heard = Vec::new();
        server.read_to_end(&mut heard).await.unwrap();
        assert_eq!(heard, b"bye");
        server.write_all(b"so long").await.unwrap();
        drop(server);
        let mut heard = Vec::new();
        client.read_to_end(&mut heard).await.unwrap();
        assert_eq!(heard, b"so long");
        passing.await.unwrap();
    }

    #[test]
    fn each_sandbox_has_its_own_slots_and_gets_them_back() {
        let all = Arc::new(PortSlots::default());
        let mut held: Vec<PortSlot> = (0..MAX_PORT_CONNECTIONS).filter_map(|_| all.take("a")).collect();
        assert_eq!(held.len(), MAX_PORT_CONNECTIONS);
        assert!(all.take("a").is_none());
        assert!(all.take("b").is_some());
        held.pop();
        held.extend(all.take("a"));
        assert_eq!(held.len(), MAX_PORT_CONNECTIONS);
        drop(held);
        assert!(all.taken().is_empty());
    }
}
