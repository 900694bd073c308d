//! The control API: sandboxes made, found, changed and ended, by API key. Old paths and new ones.

mod builds;
mod lists;
pub(crate) mod sandboxes;
pub(crate) mod shapes;
pub(crate) mod snapshots;
pub(crate) mod templates;

use crate::fault::Fault;
use crate::http::Incoming;
use crate::http::{Answer, Body, nothing, refused, segments};
use crate::server::E2b;
use hyper::{Method, Request, Response, StatusCode};
use std::sync::Arc;

/// Answers a request. It is carried out to its end also if the client hangs up: half of a sandbox helps nobody.
pub(crate) async fn answer(e2b: &Arc<E2b>, request: Request<Incoming>) -> Response<Body> {
    let e2b = Arc::clone(e2b);
    let task = tokio::spawn(async move { route(&e2b, request).await });
    match task.await {
        Ok(Ok(response)) => response,
        Ok(Err(fault)) => refused(&fault),
        Err(_) => refused(&Fault::internal("the request was given up: the daemon's log says why")),
    }
}

async fn route(e2b: &Arc<E2b>, request: Request<Incoming>) -> Answer {
    let path = request.uri().path().to_string();
    if path == "/health" && request.method() == Method::GET {
        return Ok(nothing(StatusCode::NO_CONTENT));
    }
    let segments = segments(&path).ok_or_else(|| Fault::bad_request("the path is not UTF-8"))?;
    let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
    if let (&Method::PUT, ["templates", template, "files", files]) = (request.method(), segments.as_slice()) {
        return builds::upload(e2b, template, files, request).await;
    }
    let caller = e2b.caller(&request).await?;
    let (version, parts) = match segments.as_slice() {
        [version @ ("v2" | "v3"), rest @ ..] => (*version, rest),
        rest => ("v1", rest),
    };
    let method = request.method().clone();
    match (&method, version, parts) {
        (&Method::POST, "v1", ["sandboxes"]) => sandboxes::create(e2b, &caller, request, V1_TIMEOUT_S).await,
        (&Method::POST, "v2", ["sandboxes"]) => sandboxes::create(e2b, &caller, request, V2_TIMEOUT_S).await,
        (&Method::GET, "v1" | "v2", ["sandboxes"]) => lists::sandboxes(e2b, &caller, &request, version),
        (&Method::GET, "v1", ["sandboxes", "metrics"]) => lists::metrics(e2b, &caller, &request).await,
        (&Method::GET, "v1", ["sandboxes", id]) => sandboxes::get(e2b, &caller, id),
        (&Method::DELETE, "v1", ["sandboxes", id]) => sandboxes::kill(e2b, &caller, id).await,
        (&Method::POST, "v1" | "v2", ["sandboxes", id, "connect"]) => {
            sandboxes::connect(e2b, &caller, id, request).await
        }
        (&Method::POST, "v1", ["sandboxes", id, "resume"]) => {
            sandboxes::resume(e2b, &caller, id, request).await
        }
        (&Method::POST, "v1", ["sandboxes", id, "timeout"]) => {
            sandboxes::timeout(e2b, &caller, id, request).await
        }
        (&Method::POST, "v1", ["sandboxes", id, "refreshes"]) => {
            sandboxes::refresh(e2b, &caller, id, request).await
        }
        (&Method::POST, "v1", ["sandboxes", id, "pause"]) => {
            sandboxes::pause(e2b, &caller, id, request).await
        }
        (&Method::GET, "v1", ["sandboxes", id, "metrics"]) => sandboxes::metrics(e2b, &caller, id).await,
        (&Method::GET, "v1" | "v2", ["sandboxes", id, "logs"]) => {
            sandboxes::logs(e2b, &caller, id, &request, version).await
        }
        (&Method::PUT, "v1", ["sandboxes", id, "network"]) => sandboxes::network(e2b, &caller, id),
        (&Method::POST, "v1", ["sandboxes", id, "snapshots"]) => {
            snapshots::take(e2b, &caller, id, request).await
        }
        (&Method::POST, "v1", ["sandboxes", id, "fork"]) => snapshots::fork(e2b, &caller, id, request).await,
        (&Method::GET, "v1", ["snapshots"]) => snapshots::list(e2b, &caller, &request).await,
        (&Method::GET, "v1", ["templates", "aliases", alias]) => templates::alias(e2b, &caller, alias).await,
        (&Method::GET, "v1" | "v2", ["templates"]) => templates::list(e2b, &caller).await,
        (&Method::POST, "v3", ["templates"]) => builds::request(e2b, &caller, request).await,
        (&Method::GET, "v1", ["templates", name, "files", files]) => {
            builds::upload_link(e2b, &caller, name, files, &request)
        }
        (&Method::POST, "v2", ["templates", name, "builds", build]) => {
            builds::start(e2b, &caller, name, build, request).await
        }
        (&Method::GET, "v1", ["templates", name, "builds", build, "status"]) => {
            builds::status(e2b, &caller, name, build, &request)
        }
        (&Method::GET, "v1", ["templates", name, "builds", build, "logs"]) => {
            builds::logs(e2b, &caller, name, build, &request)
        }
        (&Method::GET, "v1", ["templates", name, "tags"]) => builds::tags(e2b, &caller, name),
        (&Method::POST, "v1", ["templates", "tags"]) => builds::assign_tags(e2b, &caller, request).await,
        (&Method::DELETE, "v1", ["templates", "tags"]) => builds::remove_tags(e2b, &caller, request).await,
        (&Method::DELETE, "v1", ["templates", name]) => templates::remove(e2b, &caller, name).await,
        (_, _, [first, ..]) if NOT_SERVED.contains(first) => {
            Err(Fault::not_served(&format!("`{method} {path}`")))
        }
        _ => Err(Fault::not_found(format!("there is nothing at `{method} {path}`"))),
    }
}

/// What of the API is not served, by the first part of its path.
const NOT_SERVED: [&str; 10] = [
    "templates",
    "volumes",
    "volumecontent",
    "secrets",
    "teams",
    "nodes",
    "admin",
    "api-keys",
    "access-tokens",
    "default-templates",
];
/// How long a sandbox lives if its maker does not say, in seconds: by the old path, and by the new one.
const V1_TIMEOUT_S: u64 = 15;
const V2_TIMEOUT_S: u64 = 300;
