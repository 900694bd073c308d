//! Looking at commands: which there are, what they write, how they end.

use super::events::{Which, events};
use super::named::Named;
use crate::shim::LiveSandbox;
use crate::shim::extract::{Part, QueryParams, invalid};
use crate::shim::failure::Answer;
use axum::Json;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use belljar_api::{CommandEvent, CommandInfo, ErrorBody, Page};
use belljar_spec::ErrorCode;
use serde::Deserialize;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// List the commands that run, and the last thousand that ended.
#[utoipa::path(
    get, path = "/v1/sandboxes/{name}/commands", tag = "commands", operation_id = "list_commands",
    params(
        ("name" = String, Path, description = "Name of the sandbox."),
        ("limit" = Option<u16>, Query, description = "Page size, 1 to 1000.", minimum = 1, maximum = 1000),
        ("after" = Option<String>, Query, description = "`next` of the page before."),
    ),
    responses(
        (status = 200, description = "One page of commands, the oldest first.", body = Page<CommandInfo>),
        (status = "4XX", description = "The request was refused or failed: the body says why.", body = ErrorBody),
    )
)]
pub(super) async fn list(
    State(live): State<Arc<LiveSandbox>>,
    QueryParams(part): QueryParams<Part>,
) -> Answer<Json<Page<CommandInfo>>> {
    let limit = part.limit()?;
    let after = match part.after.as_deref() {
        None => 0,
        Some(text) => text
            .strip_prefix("cmd_")
            .and_then(|number| number.parse().ok())
            .ok_or_else(|| invalid("`after` is not what `next` said"))?,
    };
    let (commands, more) = live.commands.list(after, limit);
    let next = commands.last().filter(|_| more).map(|command| command.id());
    Ok(Json(Page { items: commands.iter().map(|command| command.info()).collect(), next }))
}

/// Show a command.
#[utoipa::path(
    get, path = "/v1/sandboxes/{name}/commands/{command}", tag = "commands", operation_id = "get_command",
    params(
        ("name" = String, Path, description = "Name of the sandbox."),
        ("command" = String, Path, description = "The command: `cmd_1`."),
    ),
    responses(
        (status = 200, description = "State and result of the command, without its output.", body = CommandInfo),
        (status = "4XX", description = "The request was refused or failed: the body says why.", body = ErrorBody),
    )
)]
pub(super) async fn show(Named(command): Named) -> Json<CommandInfo> {
    Json(command.info())
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct OutputQuery {
    from: Option<u64>,
    follow: Option<bool>,
}

/// Read what a command wrote, and follow what it writes.
///
/// Events of type `output`, then `ended`. The id of each event is the cursor behind it: `Last-Event-ID`, or `from`, continues from there.
#[utoipa::path(
    get, path = "/v1/sandboxes/{name}/commands/{command}/output", tag = "commands", operation_id = "get_output",
    params(
        ("name" = String, Path, description = "Name of the sandbox."),
        ("command" = String, Path, description = "The command: `cmd_1`."),
        ("from" = Option<u64>, Query, description = "Cursor to continue from."),
        ("follow" = Option<bool>, Query, description = "Whether to stream until the command ends. Default: true."),
        ("Last-Event-ID" = Option<String>, Header, description = "The same as `from`, as browsers say it."),
    ),
    responses(
        (status = 200, description = "Output of the command.", body = CommandEvent, content_type = "text/event-stream"),
        (status = "4XX", description = "The request was refused or failed: the body says why.", body = ErrorBody),
    )
)]
pub(super) async fn output(
    Named(command): Named,
    QueryParams(query): QueryParams<OutputQuery>,
    headers: HeaderMap,
) -> Answer<Response> {
    let last = headers.get("last-event-id");
    let last = last.map(|id| id.to_str().ok().and_then(|id| id.parse().ok()));
    let last: Option<u64> = match last {
        Some(None) => return Err(invalid("`Last-Event-ID` is not the id of an event").into()),
        other => other.flatten(),
    };
    if command.log().is_dropped() {
        let message = format!("the output of {} is no longer kept", command.id());
        return Err(ErrorCode::OutputDropped
            .error(message)
            .hint("read it sooner, or give commands a smaller `max_output`")
            .into());
    }
    let from = last.or(query.from).unwrap_or(0);
    let which = if query.follow == Some(false) { Which::Now(from) } else { Which::Behind(from) };
    Ok(events(command, which).into_response())
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct WaitQuery {
    timeout_s: Option<u64>,
}

/// Wait for a command's end.
///
/// Answers with what it wrote, or, when `timeout_s` have passed, that it is still running.
#[utoipa::path(
    post, path = "/v1/sandboxes/{name}/commands/{command}/wait", tag = "commands", operation_id = "wait_for_command",
    params(
        ("name" = String, Path, description = "Name of the sandbox."),
        ("command" = String, Path, description = "The command: `cmd_1`."),
        ("timeout_s" = Option<u64>, Query, description = "Longest time to wait. Default: until the command ends.", maximum = 31536000),
    ),
    responses(
        (status = 200, description = "The command; its `state` says whether it has ended.", body = CommandInfo),
        (status = "4XX", description = "The request was refused or failed: the body says why.", body = ErrorBody),
    )
)]
pub(super) async fn wait(
    Named(command): Named,
    QueryParams(query): QueryParams<WaitQuery>,
) -> Json<CommandInfo> {
    match query.timeout_s {
        None => command.ended().await,
        // Whether it ended in time is in the answer.
        Some(seconds) => drop(timeout(Duration::from_secs(seconds.min(A_YEAR)), command.ended()).await),
    }
    Json(command.full_info())
}

const A_YEAR: u64 = 31_536_000;
