//! `POST commands`: starts a command, and waits for its end if the client wants that.

use super::COMMAND_HEADER;
use super::command::Command;
use super::events::{Which, events};
use super::understand::understand;
use crate::shim::LiveSandbox;
use crate::shim::extract::Body;
use crate::shim::failure::Answer;
use axum::Json;
use axum::body::Body as Bytes;
use axum::extract::State;
use axum::http::header::{ACCEPT, CONTENT_TYPE};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use belljar_api::{CommandEvent, CommandInfo, ErrorBody, StartCommand};
use belljar_spec::ErrorCode;
use futures_util::{StreamExt, stream};
use std::convert::Infallible;
use std::sync::Arc;

/// Run a command.
///
/// Waits for its end and answers with what it wrote. With `Accept: text/event-stream` it tells what happens as it happens. With
/// `background` it answers at once. A client that hangs up leaves the command running: it is found in the list of commands, with
/// all its output. The header `x-belljar-command` of the answer has its name before it ends.
#[utoipa::path(
    post, path = "/v1/sandboxes/{name}/commands", tag = "commands", operation_id = "start_command",
    params(("name" = String, Path, description = "Name of the sandbox.")),
    request_body = StartCommand,
    responses(
        (status = 200, description = "Result of the command; or, as events, its output and its end.", content(
            (CommandInfo = "application/json"), (CommandEvent = "text/event-stream"))),
        (status = 201, description = "The command runs in the background.", body = CommandInfo),
        (status = "4XX", description = "The command was not started.", body = ErrorBody),
    )
)]
pub(super) async fn start(
    State(live): State<Arc<LiveSandbox>>,
    headers: HeaderMap,
    Body(start): Body<StartCommand>,
) -> Answer<Response> {
    let _using = live.using().await?;
    if live.is_paused() {
        return Err(ErrorCode::SandboxPaused
            .error("the sandbox is paused, and no command starts in it")
            .hint("resume it first")
            .into());
    }
    let background = start.background;
    let (terms, start) = understand(start, live.sandbox().limits())?;
    let command = live.commands.start(&live, terms, start)?;
    let named = [(COMMAND_HEADER, command.id())];
    if background {
        return Ok((StatusCode::CREATED, named, Json(command.info())).into_response());
    }
    if wants_events(&headers) {
        return Ok((named, events(command, Which::All)).into_response());
    }
    Ok((named, [(CONTENT_TYPE, "application/json")], info_at_its_end(command)).into_response())
}

/// The answer's head is sent at once, so that the client knows which command it waits for.
fn info_at_its_end(command: Arc<Command>) -> Bytes {
    let full_info = async move {
        command.ended().await;
        let text = serde_json::to_vec(&command.full_info()).expect("a result is words and numbers");
        Ok::<_, Infallible>(text)
    };
    // An empty piece first: it is no byte of the body, and makes it begin.
    Bytes::from_stream(stream::iter([Ok(Vec::new())]).chain(stream::once(full_info)))
}

fn wants_events(headers: &HeaderMap) -> bool {
    let accepted = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    accepted.into_iter().any(|value| value.contains("text/event-stream"))
}
