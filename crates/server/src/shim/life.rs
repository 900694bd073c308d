//! A shim's own paths, below `/keeper`: its status, and its end. For the daemon alone; no part of the API.

use super::LiveSandbox;
use super::extract::Body;
use super::failure::Answer;
use super::live::Ending;
use axum::Json;
use axum::Router;
use axum::body::Body as Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::{get, post};
use belljar_fleet::{Status, Stop};
use futures_util::{StreamExt, stream};
use serde::{Deserialize, Serialize};
use std::convert::Infallible;
use std::sync::Arc;

/// The body of `POST /keeper/stop`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct StopRequest {
    pub how: Stop,
}

pub(super) fn routes() -> Router<Arc<LiveSandbox>> {
    Router::new()
        .route("/keeper/status", get(status))
        .route("/keeper/life", get(life))
        .route("/keeper/pause", post(pause))
        .route("/keeper/resume", post(resume))
        .route("/keeper/snapshot", post(super::snapshot::snapshot))
        .route("/keeper/stop", post(stop))
}

async fn status(State(live): State<Arc<LiveSandbox>>) -> Json<Status> {
    Json(live.status())
}

/// Does not end while the sandbox lives.
async fn life(State(live): State<Arc<LiveSandbox>>) -> Bytes {
    let first = stream::iter([Ok::<_, Infallible>("alive\n")]);
    let rest = stream::once(async move { live.over().await });
    Bytes::from_stream(first.chain(rest.map(|()| Ok(""))))
}

async fn pause(State(live): State<Arc<LiveSandbox>>) -> Answer<StatusCode> {
    live.pause().await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn resume(State(live): State<Arc<LiveSandbox>>) -> Answer<StatusCode> {
    live.resume().await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Answers at once; the end of `/keeper/life`, and the lock of the place, show when it is done.
async fn stop(State(live): State<Arc<LiveSandbox>>, Body(request): Body<StopRequest>) -> StatusCode {
    live.leave(Ending::Requested(request.how));
    StatusCode::ACCEPTED
}
