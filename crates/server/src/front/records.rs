//! What was decided for a sandbox, from its log: in parts, or as it is written. The log outlives the sandbox, and so do these.

use super::Front;
use super::extract::{Named, Part, QueryParams};
use super::gate::Asking;
use crate::answer::{Answer, invalid};
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use belljar_api::{AuditRecord, Page};
use belljar_audit::{LogFile, Reader, Record};
use belljar_spec::{ErrorCode, SandboxError};
use futures_util::stream;
use serde::Deserialize;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tracing::error;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub(super) fn routes() -> OpenApiRouter<Arc<Front>> {
    OpenApiRouter::new().routes(routes!(egress)).routes(routes!(audit))
}

#[derive(Debug, Clone, Default, Deserialize, IntoParams)]
#[serde(default)]
#[into_params(parameter_in = Query)]
struct Which {
    /// How many at most.
    #[param(minimum = 1, maximum = 1000, default = 100)]
    limit: Option<usize>,
    /// What comes behind this, which is `next` of the part before.
    after: Option<String>,
    /// Go on with what is written from now on, as a stream of events, until the sandbox ends.
    follow: Option<bool>,
}

/// List egress decisions of a sandbox
#[utoipa::path(
    get, path = "/v1/sandboxes/{name}/egress", tag = "records",
    params(("name" = String, Path, description = "Name or id of the sandbox"), Which,
        ("last-event-id" = Option<String>, Header, description = "With `follow`: continue after this event")),
    responses(
        (status = 200, description = "One page of records, or with `follow` all of them as they are written", content(
            (Page<AuditRecord> = "application/json"), (String = "text/event-stream")))),
)]
async fn egress(
    front: State<Arc<Front>>,
    asking: Extension<Asking>,
    name: Named,
    which: QueryParams<Which>,
    headers: HeaderMap,
) -> Answer<Response> {
    records(front, asking, name, which, headers, is_egress).await
}

/// List all records of a sandbox
#[utoipa::path(
    get, path = "/v1/sandboxes/{name}/audit", tag = "records",
    params(("name" = String, Path, description = "Name or id of the sandbox"), Which,
        ("last-event-id" = Option<String>, Header, description = "With `follow`: continue after this event")),
    responses(
        (status = 200, description = "One page of records, or with `follow` all of them as they are written", content(
            (Page<AuditRecord> = "application/json"), (String = "text/event-stream")))),
)]
async fn audit(
    front: State<Arc<Front>>,
    asking: Extension<Asking>,
    name: Named,
    which: QueryParams<Which>,
    headers: HeaderMap,
) -> Answer<Response> {
    records(front, asking, name, which, headers, |_| true).await
}

type Choice = fn(&Record) -> bool;

async fn records(
    State(front): State<Arc<Front>>,
    Extension(asking): Extension<Asking>,
    Named(name): Named,
    QueryParams(which): QueryParams<Which>,
    headers: HeaderMap,
    choice: Choice,
) -> Answer<Response> {
    let file = front.log_of(&asking, &name).await?;
    let part = Part { limit: which.limit, after: which.after };
    let limit = part.limit()?;
    let behind = match part.after.as_deref() {
        None => 0,
        Some(after) => after.parse().map_err(|_| invalid("`after` is the number of a record"))?,
    };
    if which.follow == Some(true) {
        let last =
            headers.get("last-event-id").and_then(|id| id.to_str().ok()).and_then(|id| id.parse().ok());
        return Ok(follow(file, last.unwrap_or(behind), choice)?.into_response());
    }
    let page = tokio::task::spawn_blocking(move || read(&file, behind, limit, choice)).await;
    let page = page.map_err(|_| ErrorCode::StateFailed.error("the log could not be read"))??;
    Ok(Json(page).into_response())
}

fn read(
    file: &LogFile,
    behind: u64,
    limit: usize,
    choice: Choice,
) -> Result<Page<AuditRecord>, SandboxError> {
    let mut reader = Reader::open(&file.path)?;
    let mut items: Vec<AuditRecord> = Vec::new();
    while let Some(record) = reader.next_record()? {
        if record.line <= behind || !choice(&record) {
            continue;
        }
        if items.len() == limit {
            let next = items.last().map(|last| last.line.to_string());
            return Ok(Page { items, next });
        }
        items.push(to_api(record));
    }
    Ok(Page { items, next: None })
}

/// Events until the sandbox has ended.
fn follow(
    file: LogFile,
    behind: u64,
    choice: Choice,
) -> Result<Sse<impl stream::Stream<Item = Result<Event, Infallible>>>, SandboxError> {
    let reader = Reader::open(&file.path)?;
    let following = Following { file, reader, behind, choice, ended: false };
    let events = stream::unfold(following, |mut following| async move {
        let event = following.next().await?;
        Some((Ok(event), following))
    });
    Ok(Sse::new(events).keep_alive(KeepAlive::new().interval(ALIVE)))
}

struct Following {
    file: LogFile,
    reader: Reader,
    behind: u64,
    choice: Choice,
    ended: bool,
}

impl Following {
    async fn next(&mut self) -> Option<Event> {
        loop {
            if self.ended {
                return None;
            }
            // Asked first: what was written before it died is read below.
            let live = self.file.is_live();
            loop {
                match self.reader.next_record() {
                    Ok(Some(record)) => {
                        self.ended = record.event.is_end();
                        if record.line > self.behind && (self.choice)(&record) {
                            return Some(event(record));
                        }
                    }
                    Ok(None) => break,
                    Err(error) => {
                        error!("cannot continue with a log: {error}");
                        return None;
                    }
                }
            }
            if !live {
                return None;
            }
            tokio::time::sleep(BETWEEN_LOOKS).await;
        }
    }
}

fn event(record: Record) -> Event {
    let to_api = to_api(record);
    let event = Event::default().id(to_api.line.to_string());
    event.json_data(&to_api).unwrap_or_default()
}

fn to_api(record: Record) -> AuditRecord {
    AuditRecord { line: record.line, event: record.written(), time: record.time }
}

/// Records about names, connections, requests and calls that wanted to leave.
fn is_egress(record: &Record) -> bool {
    use belljar_audit::Event::*;
    // What another version wrote may be about that: shown rather than hidden.
    let Some(event) = record.event.known() else { return record.event.other_kind().is_some() };
    match event {
        NameRefused { .. }
        | ConnectionOpened { .. }
        | ConnectionClosed { .. }
        | ConnectionRefused { .. }
        | RequestRefused { .. }
        | Fetched { .. }
        | FetchRefused { .. }
        | ModelAsked { .. }
        | ModelCalled { .. }
        | ModelRefused { .. }
        | PlaceholderElsewhere { .. }
        | PushSent { .. }
        | PushRefused { .. }
        | PolicyChanged { .. }
        | ApprovalRequested { .. }
        | ApprovalAnswered { .. } => true,
        SandboxStarted { .. }
        | CommandStarted { .. }
        | CommandEnded { .. }
        | FolderShared { .. }
        | SnapshotTaken { .. }
        | SnapshotRestored { .. }
        | RouteOpened { .. }
        | CredentialUsed { .. }
        | SecretForwarded { .. }
        | TokenMinted { .. }
        | TokenRevoked { .. }
        | RecordsStopped { .. }
        | RecordsSuppressed { .. }
        | RecordsLost { .. }
        | HostFetched { .. }
        | HostPushed { .. }
        | HostPushRefused { .. }
        | HostRelayBroken { .. }
        | SandboxEnded {} => false,
    }
}

/// Soon enough for a person who watches.
const BETWEEN_LOOKS: Duration = Duration::from_millis(200);
/// So that a connection on which nothing happens is not taken for a dead one.
const ALIVE: Duration = Duration::from_secs(15);
