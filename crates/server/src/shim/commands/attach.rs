//! A command over a WebSocket: its output and its input, at the same time. A slow reader slows down no other client, and a client
//! that hangs up leaves the command running, for as long as it may run unattended.

use super::command::{Command, Progress};
use super::signal::signal;
use super::text;
use axum::extract::ws::{Message, WebSocket};
use belljar_api::{ApiError, Attached, Control, StreamName};
use belljar_engine::Input;
use belljar_spec::{ErrorCode, SandboxError, WindowSize};
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt, StreamExt};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::{Instant, interval_at};

/// Speaks with a client, from this cursor on, until the command ends or the client has gone.
pub(super) async fn attend(socket: WebSocket, command: Arc<Command>, from: u64) {
    let _attached = Attachment::of(&command);
    let (mut sink, mut stream) = socket.split();
    let (complain, complaints) = mpsc::channel(COMPLAINTS);
    tokio::select! {
        _ = tell(&command, &mut sink, from, complaints) => {
            let _ = sink.send(Message::Close(None)).await;
        }
        () = hear(&command, &mut stream, complain) => {}
    }
}

/// A client that is attached: such a command is not unattended.
struct Attachment<'c>(&'c Command);

impl Attachment<'_> {
    fn of(command: &Command) -> Attachment<'_> {
        command.attached.send_modify(|count| *count += 1);
        Attachment(command)
    }
}

impl Drop for Attachment<'_> {
    fn drop(&mut self) {
        self.0.attached.send_modify(|count| *count -= 1);
    }
}

/// Tells everything. `None`: the client has gone.
async fn tell(
    command: &Command,
    sink: &mut SplitSink<WebSocket, Message>,
    from: u64,
    mut complaints: mpsc::Receiver<SandboxError>,
) -> Option<()> {
    say(sink, &Attached::Started { command: command.info() }).await?;
    let mut progress = command.progress();
    let mut place = command.log().place(from);
    let skipped = Some(command.log()).filter(|log| log.is_dropped()).map(|log| log.cursor());
    if let Some(cursor) = skipped {
        say(sink, &Attached::Skipped { cursor }).await?;
    }
    let mut pulse = interval_at(Instant::now() + PULSE, PULSE);
    loop {
        let Progress { ended, .. } = *progress.borrow_and_update();
        let piece = command.log().read(&mut place, text::PIECE).ok().flatten();
        if let Some(piece) = piece {
            let number = match piece.stream {
                StreamName::Stdout => 1,
                StreamName::Stderr => 2,
            };
            let mut bytes = Vec::with_capacity(piece.bytes.len() + 1);
            bytes.push(number);
            bytes.extend_from_slice(&piece.bytes);
            sink.send(Message::Binary(bytes.into())).await.ok()?;
            continue;
        }
        if ended {
            return say(sink, &Attached::Ended { result: command.result().cloned().unwrap_or_default() })
                .await;
        }
        tokio::select! {
            _ = progress.changed() => {}
            Some(error) = complaints.recv() => say(sink, &Attached::Error { error: ApiError::from(&error) }).await?,
            _ = pulse.tick() => sink.send(Message::Ping(Vec::new().into())).await.ok()?,
        }
    }
}

/// Hears everything, until the client has gone.
async fn hear(command: &Command, stream: &mut SplitStream<WebSocket>, complain: mpsc::Sender<SandboxError>) {
    while let Some(Ok(message)) = stream.next().await {
        let outcome = match message {
            Message::Binary(bytes) => command.send(Input::Bytes(bytes.into())).await,
            Message::Text(text) => match understand(text.as_str()) {
                Ok(input) => command.send(input).await,
                Err(error) => Err(error),
            },
            Message::Ping(_) | Message::Pong(_) => Ok(()),
            Message::Close(_) => return,
        };
        if let Err(error) = outcome {
            // A client that does not read its errors is told no more of them.
            let _ = complain.try_send(error);
        }
    }
}

fn understand(text: &str) -> Result<Input, SandboxError> {
    let control: Control = serde_json::from_str(text).map_err(|error| {
        ErrorCode::RequestValue.error(format!("this word is not understood: {error}")).caused_by(error)
    })?;
    match control {
        Control::StdinEnd => Ok(Input::End),
        Control::Signal { signal: name } => Ok(Input::Signal(signal(&name)?)),
        Control::Resize { rows: 0, .. } | Control::Resize { cols: 0, .. } => {
            Err(ErrorCode::RequestValue.error("a terminal has one row and one column at least"))
        }
        Control::Resize { rows, cols } => Ok(Input::Resize(WindowSize { rows, cols })),
    }
}

async fn say(sink: &mut SplitSink<WebSocket, Message>, word: &Attached) -> Option<()> {
    let text = serde_json::to_string(word).expect("a word is words and numbers");
    sink.send(Message::Text(text.into())).await.ok()
}

/// How often a client that says nothing is asked whether it is there.
const PULSE: Duration = Duration::from_secs(20);
const COMPLAINTS: usize = 8;
