//! Snapshots, and sandboxes that go back to one or begin with one.

use super::Front;
use super::extract::{Body, Named};
use super::gate::Asking;
use super::sandboxes::{lease_request, within_bounds};
use crate::answer::{Answer, Refusal, invalid};
use axum::extract::State;
use axum::http::StatusCode;
use axum::{Extension, Json};
use belljar_api::{
    CreateSandbox, Created, ForkSandbox, Forked, Page, RestoreSandbox, Restored, SnapshotInfo, TakeSnapshot,
    UndoSandbox,
};
use belljar_fleet::Identity;
use belljar_fleet::snapshots::Forkable;
use belljar_spec::{ErrorCode, SandboxError, SnapshotName};
use futures_util::future::join_all;
use std::sync::Arc;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub(super) fn routes() -> OpenApiRouter<Arc<Front>> {
    OpenApiRouter::new()
        .routes(routes!(take))
        .routes(routes!(list))
        .routes(routes!(get, remove))
        .routes(routes!(fork))
        .routes(routes!(restore))
        .routes(routes!(undo))
}

/// Take a snapshot of the files of a persistent sandbox
#[utoipa::path(post, path = "/v1/sandboxes/{name}/snapshots", tag = "snapshots", operation_id = "take_snapshot",
    params(("name" = String, Path, description = "Name or id of the sandbox")),
    request_body = TakeSnapshot,
    responses((status = 201, description = "The snapshot is taken", body = SnapshotInfo)))]
async fn take(
    State(front): State<Arc<Front>>,
    Extension(asking): Extension<Asking>,
    Named(name): Named,
    Body(request): Body<TakeSnapshot>,
) -> Answer<(StatusCode, Json<SnapshotInfo>)> {
    asking.caller.may_have_sandboxes()?;
    Ok((StatusCode::CREATED, Json(front.fleet.snapshot(&name, &request, &asking).await?)))
}

/// List snapshots of the caller, the oldest first
#[utoipa::path(get, path = "/v1/snapshots", tag = "snapshots", operation_id = "list_snapshots",
    responses((status = 200, description = "The snapshots", body = Page<SnapshotInfo>)))]
async fn list(
    State(front): State<Arc<Front>>,
    Extension(asking): Extension<Asking>,
) -> Answer<Json<Page<SnapshotInfo>>> {
    asking.caller.may_have_sandboxes()?;
    Ok(Json(Page { items: front.fleet.snapshots(&asking).await?, next: None }))
}

/// Get a snapshot, with its size
#[utoipa::path(get, path = "/v1/snapshots/{name}", tag = "snapshots", operation_id = "get_snapshot",
    params(("name" = String, Path, description = "Name or id of the snapshot")),
    responses((status = 200, description = "The snapshot", body = SnapshotInfo)))]
async fn get(
    State(front): State<Arc<Front>>,
    Extension(asking): Extension<Asking>,
    Named(name): Named,
) -> Answer<Json<SnapshotInfo>> {
    asking.caller.may_have_sandboxes()?;
    let name = snapshot_name(&name)?;
    let mut info = front.fleet.snapshot_info(&name, &asking).await?;
    info.bytes = Some(front.fleet.snapshot_size(&name, &asking).await?);
    Ok(Json(info))
}

/// Remove a snapshot; sandboxes that were made from it keep their files
#[utoipa::path(delete, path = "/v1/snapshots/{name}", tag = "snapshots", operation_id = "delete_snapshot",
    params(("name" = String, Path, description = "Name or id of the snapshot")),
    responses((status = 204, description = "The snapshot is deleted")))]
async fn remove(
    State(front): State<Arc<Front>>,
    Extension(asking): Extension<Asking>,
    Named(name): Named,
) -> Answer<StatusCode> {
    asking.caller.may_have_sandboxes()?;
    front.fleet.remove_snapshot(&snapshot_name(&name)?, &asking).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Fork a sandbox: make others like it, with the files that it has now
#[utoipa::path(post, path = "/v1/sandboxes/{name}/fork", tag = "snapshots", operation_id = "fork_sandbox",
    params(("name" = String, Path, description = "Name or id of the sandbox")),
    request_body = ForkSandbox,
    responses((status = 201, description = "The forks are ready", body = Forked)))]
async fn fork(
    State(front): State<Arc<Front>>,
    Extension(asking): Extension<Asking>,
    Named(name): Named,
    Body(request): Body<ForkSandbox>,
) -> Answer<(StatusCode, Json<Forked>)> {
    asking.caller.may_have_sandboxes()?;
    check(&request)?;
    let parent = front.fleet.forkable(&name, &asking).await?;
    let snapshot = match &request.snapshot {
        Some(snapshot) => front.fleet.snapshot_info(snapshot, &asking).await?,
        None => front.fleet.snapshot_for_forks(&name, request.how, &asking).await?,
    };
    let forks = forks(&request, &parent, &snapshot);
    let made = join_all(forks.into_iter().map(|fork| make(&front, &asking, fork))).await;
    if request.snapshot.is_none() {
        // What is needed of it is below the forks by now. If this daemon dies before, the next one removes it.
        let (front, asking, id) = (Arc::clone(&front), asking.clone(), snapshot.id.clone());
        tokio::spawn(async move { front.fleet.remove_snapshot(&id, &asking).await });
    }
    let mut sandboxes = Vec::new();
    let mut failure = None;
    for outcome in made {
        match outcome {
            Ok(created) => sandboxes.push(created),
            Err(error) => failure = failure.or(Some(error)),
        }
    }
    if let Some(error) = failure {
        // All of them, or none.
        for created in sandboxes.iter().filter(|created| created.created) {
            let _ = front.fleet.delete(&created.sandbox.name, &asking).await;
        }
        return Err(error.into());
    }
    let SnapshotInfo { how, held_ms, left_out, .. } = snapshot;
    Ok((StatusCode::CREATED, Json(Forked { sandboxes, how, held_ms: held_ms.unwrap_or_default(), left_out })))
}

/// Put a sandbox back to a snapshot
///
/// No command may run in it.
#[utoipa::path(post, path = "/v1/sandboxes/{name}/restore", tag = "snapshots", operation_id = "restore_sandbox",
    params(("name" = String, Path, description = "Name or id of the sandbox")),
    request_body = RestoreSandbox,
    responses((status = 200, description = "The sandbox has the files of the snapshot", body = Restored)))]
async fn restore(
    State(front): State<Arc<Front>>,
    Extension(asking): Extension<Asking>,
    Named(name): Named,
    request: Result<Body<RestoreSandbox>, Refusal>,
) -> Answer<Json<Restored>> {
    // Before the body, in which a field is needed.
    asking.caller.may_have_sandboxes()?;
    let Body(request) = request?;
    Ok(Json(front.fleet.restore(&name, &request, &asking).await?))
}

/// Put a sandbox back to one of its last checkpoints
#[utoipa::path(post, path = "/v1/sandboxes/{name}/undo", tag = "snapshots", operation_id = "undo_sandbox",
    params(("name" = String, Path, description = "Name or id of the sandbox")),
    request_body = UndoSandbox,
    responses((status = 200, description = "The sandbox has the files of the checkpoint", body = Restored)))]
async fn undo(
    State(front): State<Arc<Front>>,
    Extension(asking): Extension<Asking>,
    Named(name): Named,
    Body(request): Body<UndoSandbox>,
) -> Answer<Json<Restored>> {
    asking.caller.may_have_sandboxes()?;
    Ok(Json(front.fleet.undo(&name, &request, &asking).await?))
}

fn snapshot_name(text: &str) -> Result<SnapshotName, SandboxError> {
    text.parse().map_err(|error| invalid(format!("{error}")))
}

fn check(request: &ForkSandbox) -> Result<(), SandboxError> {
    if !(1..=MAX_FORKS).contains(&request.count) {
        return Err(ErrorCode::RequestValue.error(format!("`count`: must be from 1 to {MAX_FORKS}")));
    }
    if !request.keys.is_empty() && request.keys.len() != request.count as usize {
        let message = format!("`keys` has {}, and `count` is {}", request.keys.len(), request.count);
        return Err(ErrorCode::RequestConflict.error(message).hint("name a key for each fork, or none"));
    }
    let (idle_s, lease_s) = (request.idle_s, request.lease_s);
    within_bounds(&CreateSandbox { idle_s, lease_s, ..CreateSandbox::default() })
}

/// The forks as requests of their own: each is judged as if its caller had asked for it.
fn forks(request: &ForkSandbox, parent: &Forkable, snapshot: &SnapshotInfo) -> Vec<CreateSandbox> {
    let fork = |index: usize| {
        let mut sandbox = parent.requested.clone();
        sandbox.snapshot = Some(snapshot.id.clone());
        CreateSandbox {
            key: request.keys.get(index).cloned(),
            persistent: Some(request.persistent.unwrap_or(parent.persistent)),
            profile: Some(parent.profile.clone()).filter(|profile| !profile.is_empty()),
            idle_s: Some(request.idle_s.unwrap_or(parent.idle_s)),
            lease_s: request.lease_s,
            sandbox,
            ..CreateSandbox::default()
        }
    };
    (0..request.count as usize).map(fork).collect()
}

async fn make(front: &Arc<Front>, asking: &Asking, fork: CreateSandbox) -> Result<Created, SandboxError> {
    let identity: Identity = front.fleet.identify(&fork, asking)?;
    let lease_request = lease_request(front, asking, fork, identity, None).await?;
    front.fleet.create(lease_request, asking).await
}

/// Each is a sandbox with processes of its own.
const MAX_FORKS: u32 = 64;
