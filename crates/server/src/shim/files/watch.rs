//! What changes in a folder, as server-sent events.

use super::PathQuery;
use crate::shim::LiveSandbox;
use crate::shim::extract::QueryParams;
use crate::shim::failure::Answer;
use axum::extract::State;
use axum::response::Sse;
use axum::response::sse::{Event, KeepAlive};
use belljar_api::{ErrorBody, WatchEvent, WatchKind};
use belljar_engine::{ChangeKind, FileChange};
use futures_util::{Stream, stream};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

/// Watch a folder.
///
/// Whatever happens after the answer has begun is told. It ends when the folder is gone.
#[utoipa::path(
    get, path = "/v1/sandboxes/{name}/files/watch", tag = "files", operation_id = "watch_files",
    params(
        ("name" = String, Path, description = "Name of the sandbox."),
        ("path" = String, Query, description = "Path relative to the workspace, or absolute inside."),
        ("recursive" = Option<bool>, Query, description = "Whether everything below the folder is watched."),
    ),
    responses(
        (status = 200, description = "Changes of files.", body = WatchEvent, content_type = "text/event-stream"),
        (status = "4XX", description = "The request was refused or failed: the body says why.", body = ErrorBody),
    )
)]
pub(super) async fn watch(
    State(live): State<Arc<LiveSandbox>>,
    QueryParams(query): QueryParams<PathQuery>,
) -> Answer<Sse<impl Stream<Item = Result<Event, Infallible>>>> {
    let using = live.using().await?;
    let watch = live.sandbox().watch(query.path()?, query.recursive()).await?;
    let events = stream::unfold((watch, using), |(mut watch, using)| async move {
        // An error is the end of the sandbox.
        let change = watch.next().await.ok().flatten()?;
        Some((Ok(event(change)), (watch, using)))
    });
    Ok(Sse::new(events).keep_alive(KeepAlive::new().interval(QUIET)))
}

fn event(change: FileChange) -> Event {
    let kind = match change.kind {
        ChangeKind::Created => WatchKind::Created,
        ChangeKind::Modified => WatchKind::Modified,
        ChangeKind::Removed => WatchKind::Removed,
        ChangeKind::Overflow => WatchKind::Overflow,
    };
    let event = WatchEvent { kind, path: change.path.to_string_lossy().into_owned() };
    Event::default().data(serde_json::to_string(&event).expect("an event is words"))
}

/// After so long without an event a keep-alive is sent, so that no proxy between takes the connection for dead.
const QUIET: Duration = Duration::from_secs(15);
