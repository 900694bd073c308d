//! What is said to a command that runs: input, signals, sizes, and that it shall end.

use super::attach;
use super::named::Named;
use super::signal::signal;
use crate::shim::LiveSandbox;
use crate::shim::extract::{Body, QueryParams, invalid};
use crate::shim::failure::{Answer, Failure};
use axum::Json;
use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::extract::{Request, State, WebSocketUpgrade};
use axum::http::StatusCode;
use axum::response::Response;
use belljar_api::{CommandInfo, ErrorBody, Resize, SendSignal};
use belljar_engine::Input;
use belljar_spec::{ErrorCode, Term, WindowSize, hint};
use futures_util::StreamExt;
use serde::Deserialize;
use std::sync::Arc;

/// Kill a command and everything that descends from it.
///
/// Answers when it has ended. One that had ended already is not forgotten by this.
#[utoipa::path(
    delete, path = "/v1/sandboxes/{name}/commands/{command}", tag = "commands", operation_id = "kill_command",
    params(
        ("name" = String, Path, description = "Name of the sandbox."),
        ("command" = String, Path, description = "The command: `cmd_1`."),
    ),
    responses(
        (status = 200, description = "Result of the command.", body = CommandInfo),
        (status = "4XX", description = "The request was refused or failed: the body says why.", body = ErrorBody),
    )
)]
pub(super) async fn kill(Named(command): Named) -> Json<CommandInfo> {
    command.kill();
    command.ended().await;
    Json(command.info())
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct StdinQuery {
    end: Option<bool>,
}

/// Write to a command's standard input.
///
/// The body is taken as fast as the command reads it. With `end` the input ends behind it.
#[utoipa::path(
    post, path = "/v1/sandboxes/{name}/commands/{command}/stdin", tag = "commands", operation_id = "write_stdin",
    params(
        ("name" = String, Path, description = "Name of the sandbox."),
        ("command" = String, Path, description = "The command: `cmd_1`."),
        ("end" = Option<bool>, Query, description = "Whether standard input ends after this."),
    ),
    request_body(content = Vec<u8>, content_type = "application/octet-stream"),
    responses(
        (status = 204, description = "The bytes are written."),
        (status = "4XX", description = "The request was refused or failed: the body says why.", body = ErrorBody),
    )
)]
pub(super) async fn stdin(
    Named(command): Named,
    QueryParams(query): QueryParams<StdinQuery>,
    request: Request,
) -> Answer<StatusCode> {
    let mut body = request.into_body().into_data_stream();
    let mut is_written = false;
    while let Some(piece) = body.next().await {
        let piece = piece.map_err(|_| invalid("the body did not come whole"))?;
        command.send(Input::Bytes(piece.into())).await?;
        is_written = true;
    }
    let finished = async {
        if query.end == Some(true) {
            command.send(Input::End).await?;
        }
        command.flush_stdin().await
    };
    match finished.await {
        // A command may end as soon as it has read the last byte.
        Err(_) if is_written && command.has_sent_all() => {}
        finished => finished?,
    }
    Ok(StatusCode::NO_CONTENT)
}

/// Send a signal to a command's process group.
#[utoipa::path(
    post, path = "/v1/sandboxes/{name}/commands/{command}/signal", tag = "commands", operation_id = "signal_command",
    params(
        ("name" = String, Path, description = "Name of the sandbox."),
        ("command" = String, Path, description = "The command: `cmd_1`."),
    ),
    request_body = SendSignal,
    responses(
        (status = 204, description = "The signal is sent."),
        (status = "4XX", description = "The request was refused or failed: the body says why.", body = ErrorBody),
    )
)]
pub(super) async fn send_signal(Named(command): Named, Body(body): Body<SendSignal>) -> Answer<StatusCode> {
    command.send(Input::Signal(signal(&body.signal)?)).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Give a command's terminal another size.
#[utoipa::path(
    post, path = "/v1/sandboxes/{name}/commands/{command}/resize", tag = "commands", operation_id = "resize_command",
    params(
        ("name" = String, Path, description = "Name of the sandbox."),
        ("command" = String, Path, description = "The command: `cmd_1`."),
    ),
    request_body = Resize,
    responses(
        (status = 204, description = "The terminal is resized."),
        (status = "4XX", description = "The request was refused or failed: the body says why.", body = ErrorBody),
    )
)]
pub(super) async fn resize(Named(command): Named, Body(size): Body<Resize>) -> Answer<StatusCode> {
    if !command.info().terminal {
        return Err(ErrorCode::CommandEnded
            .error(format!("{} has no terminal", command.id()))
            .hint(hint!("start the command with {}", Term::Terminal))
            .into());
    }
    if size.rows == 0 || size.cols == 0 {
        let message = "a terminal has one row and one column at least";
        return Err(ErrorCode::RequestValue.error(message).into());
    }
    command.send(Input::Resize(WindowSize { rows: size.rows, cols: size.cols })).await?;
    Ok(StatusCode::NO_CONTENT)
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct AttachQuery {
    from: Option<u64>,
}

/// Speak with a command over a WebSocket.
///
/// Binary messages are its standard input; text messages from the client are a `Control`. From here come binary messages, one byte for
/// the stream (1 or 2) and what was written to it, and text messages, each an `Attached`. A client that hangs up leaves it running.
#[utoipa::path(
    get, path = "/v1/sandboxes/{name}/commands/{command}/attach", tag = "commands", operation_id = "attach_command",
    params(
        ("name" = String, Path, description = "Name of the sandbox."),
        ("command" = String, Path, description = "The command: `cmd_1`."),
        ("from" = Option<u64>, Query, description = "Cursor to begin with."),
    ),
    responses(
        (status = 101, description = "Upgrade to a WebSocket."),
        (status = "4XX", description = "The request was refused or failed: the body says why.", body = ErrorBody),
    )
)]
pub(super) async fn attach(
    State(live): State<Arc<LiveSandbox>>,
    Named(command): Named,
    QueryParams(query): QueryParams<AttachQuery>,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Answer<Response> {
    let upgrade = upgrade
        .map_err(|error| Failure(invalid(format!("this is not a WebSocket: {error}")).caused_by(error)))?;
    let from = query.from.unwrap_or(0);
    let conversation = live.converse();
    Ok(upgrade.max_message_size(MAX_MESSAGE_BYTES).on_upgrade(async move |socket| {
        attach::attend(socket, command, from).await;
        drop(conversation);
    }))
}

const MAX_MESSAGE_BYTES: usize = 1 << 20;
