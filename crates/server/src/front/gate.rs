//! What every request passes before anything else is looked at, in this order: its name for us, the page it comes from, its grant,
//! and how often it asks. An upgrade, a stream of events and a port are requests like any other.

use super::Front;
use super::connection::{Connection, Peer};
use crate::answer::{Answer, REQUEST, Refusal};
use axum::extract::{MatchedPath, Request, State};
use axum::http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_REQUEST_METHOD, AUTHORIZATION, VARY,
};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use belljar_api::FOR_GRANT_HEADER;
use belljar_fleet::Caller;
use belljar_spec::{ErrorCode, Term, hint};
use std::sync::Arc;
use std::time::Instant;
use tracing::{Instrument, debug, info_span};

/// The caller, and under which lease it asks.
#[derive(Debug, Clone)]
pub(crate) struct Asking {
    pub(crate) caller: Caller,
    pub(crate) lease: Option<String>,
}

/// Lets a request in, or answers it.
pub(super) async fn gate(State(front): State<Arc<Front>>, mut request: Request, next: Next) -> Response {
    let began = Instant::now();
    let id = front.new_request_id();
    let as_header = HeaderValue::from_str(&id).ok();
    let _busy = front.activity.busy();
    let origin = request.headers().get(axum::http::header::ORIGIN).cloned();
    // What was matched, and not what was asked for: a path has names of sandboxes and of files.
    let path = request.extensions().get::<MatchedPath>().map_or("", MatchedPath::as_str);
    let span =
        info_span!("request", request.id = id, http.method = request.method().as_str(), http.route = path);
    let mut response = REQUEST
        .scope(id, async {
            match judge(&front, &mut request) {
                Ok(Judged::Enter) => next.run(request).await,
                Ok(Judged::Preflight) => preflight(request.headers()),
                Err(refusal) => refusal.into_response(),
            }
        })
        .instrument(span.clone())
        .await;
    span.in_scope(|| {
        debug!(
            http.status = response.status().as_u16(),
            duration_us = began.elapsed().as_micros() as u64,
            "answered"
        )
    });
    if let Some(id) = as_header {
        response.headers_mut().insert(REQUEST_ID, id);
    }
    if let Some(origin) = origin
        .filter(|origin| front.allowed_hosts.origins.iter().any(|one| one.as_bytes() == origin.as_bytes()))
    {
        response.headers_mut().insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        response.headers_mut().insert(ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static(REQUEST_ID));
        response.headers_mut().insert(VARY, HeaderValue::from_static("origin"));
    }
    response
}

enum Judged {
    Enter,
    /// A browser asks whether a page may ask.
    Preflight,
}

fn judge(front: &Front, request: &mut Request) -> Answer<Judged> {
    let connection = request.extensions().get::<Arc<Connection>>().cloned();
    let connection = connection.ok_or_else(|| ErrorCode::Internal.error("a request without a connection"))?;
    front.allowed_hosts.judge_host(request.headers(), request.uri(), connection.address)?;
    let origin = front.allowed_hosts.judge_origin(request.headers())?;
    let is_preflight = request.headers().contains_key(ACCESS_CONTROL_REQUEST_METHOD);
    if origin.is_some() && request.method() == Method::OPTIONS && is_preflight {
        return Ok(Judged::Preflight);
    }
    if request.uri().path() == OPEN {
        return Ok(Judged::Enter);
    }
    let caller = caller(front, &connection, request.headers())?;
    if !caller.is_owner() {
        front.rates.take(caller.id(), caller.rate(), Instant::now()).map_err(|seconds| {
            let error = ErrorCode::TooManyRequests
                .error("rate limit exceeded")
                .hint(format!("try again in {seconds} s"));
            Refusal::later(error, seconds)
        })?;
    }
    let lease = request.headers().get(LEASE).and_then(|lease| lease.to_str().ok()).map(String::from);
    request.extensions_mut().insert(Asking { caller, lease });
    Ok(Judged::Enter)
}

/// The caller. A token that is sent counts, also over the socket: a client that sends one wants no more than its grant allows.
fn caller(front: &Front, connection: &Arc<Connection>, headers: &HeaderMap) -> Answer<Caller> {
    let mut shown = headers.get_all(AUTHORIZATION).iter();
    match (shown.next(), shown.next(), connection.peer) {
        (None, _, Peer::Owner) => match headers.get(FOR_GRANT_HEADER) {
            None => Ok(Caller::owner()),
            Some(grant) => in_the_place_of(front, grant, connection),
        },
        (None, _, Peer::Stranger) => Err(ErrorCode::TokenInvalid
            .error("this needs a grant")
            .hint(hint!("send `authorization: Bearer TOKEN`; {} makes a token", Term::CreateGrant))
            .into()),
        (Some(header), None, _) => {
            let token = bearer(header).ok_or_else(unknown)?;
            // Where the file is, is the owner's to know.
            let shown = front.grants.caller(token).map_err(|error| {
                let message = "the grants of this machine cannot be read, and no token counts";
                error.code.error(message).hint(hint!(
                    "{}, asked by the owner of this machine, says which file is damaged",
                    Term::ListGrants
                ))
            })?;
            let shown = shown.ok_or_else(unknown)?;
            if !front.used.note(shown.caller.id(), shown.expires_ms, connection) {
                return Err(too_many_connections());
            }
            Ok(shown.caller)
        }
        (Some(_), Some(_), _) => Err(unknown()),
    }
}

/// The owner asks for what a grant may do, and no more: another protocol that the daemon serves has callers of its own.
fn in_the_place_of(front: &Front, grant: &HeaderValue, connection: &Arc<Connection>) -> Answer<Caller> {
    let shown = grant.to_str().ok().map(|id| front.grants.holder(id)).transpose()?.flatten();
    let shown = shown.ok_or_else(unknown)?;
    match front.used.note(shown.caller.id(), shown.expires_ms, connection) {
        true => Ok(shown.caller),
        false => Err(too_many_connections()),
    }
}

fn too_many_connections() -> Refusal {
    let error = ErrorCode::TooManyRequests.error("this grant has too many connections");
    Refusal::later(error.hint("close some of them"), 1)
}

fn bearer(header: &HeaderValue) -> Option<&str> {
    let (scheme, token) = header.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then_some(token.trim())
}

/// The same words for every token that is none.
fn unknown() -> Refusal {
    ErrorCode::TokenInvalid
        .error("this token was never made, was revoked, or has expired")
        .hint(hint!("{} makes a new one", Term::CreateGrant))
        .into()
}

fn preflight(headers: &HeaderMap) -> Response {
    let mut response = StatusCode::NO_CONTENT.into_response();
    let method = headers.get(ACCESS_CONTROL_REQUEST_METHOD).cloned();
    if let Some(method) = method {
        response.headers_mut().insert(ACCESS_CONTROL_ALLOW_METHODS, method);
    }
    let allowed = "authorization, content-type, idempotency-key, last-event-id, x-belljar-lease";
    response.headers_mut().insert(ACCESS_CONTROL_ALLOW_HEADERS, HeaderValue::from_static(allowed));
    response
}

/// The one path that needs no grant. It says nothing but that the daemon is there.
const OPEN: &str = "/v1/health";
const REQUEST_ID: &str = "x-request-id";
/// The lease that a request is made under.
const LEASE: &str = "x-belljar-lease";
