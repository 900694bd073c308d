//! Both directions of a command at once, over a WebSocket. When the daemon ends and comes back, both continue: output from where
//! it was, input with what was not sent. Input that was in flight may be lost; [`AttachEvent::Resumed`] tells the caller.

use crate::client::commands::below;
use crate::client::error::ClientError;
use crate::client::follow::patiently;
use crate::client::sandbox::Sandbox;
use crate::{ApiError, Attached, CommandInfo, CommandResult, Control, StreamName, Terminal};
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt, StreamExt};
use hyper::Method;
use hyper::body::Bytes;
use hyper::header::SEC_WEBSOCKET_ACCEPT;
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use std::sync::Arc;
use tokio::sync::{Mutex, watch};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::client::generate_key;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::{Message, Role};

type Socket = WebSocketStream<TokioIo<Upgraded>>;

/// A command that we hear and speak to.
pub struct Attachment {
    sandbox: Sandbox,
    command: String,
    output: SplitStream<Socket>,
    input: AttachInput,
    /// Which connection it is, for those who wait for a new one.
    turns: watch::Sender<u64>,
    cursor: u64,
    started: bool,
    over: bool,
}

/// What is heard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AttachEvent {
    Started(CommandInfo),
    Output(StreamName, Bytes),
    /// The connection broke, and another one continues. Input that was in flight then may be lost.
    Resumed,
    /// Output was lost: more than is kept was written while this client did not listen.
    Skipped,
    Ended(CommandResult),
    /// Something that was said was not understood.
    Refused(ApiError),
}

/// The way in. Clones are the same way.
#[derive(Clone)]
pub struct AttachInput {
    sink: Arc<Mutex<SplitSink<Socket, Message>>>,
    turn: watch::Receiver<u64>,
}

impl Sandbox {
    /// Hears a command from this cursor on, and speaks to it.
    pub async fn attach(&self, command: &str, from: u64) -> Result<Attachment, ClientError> {
        let (sink, output) = open(self, command, from).await?.split();
        let (turns, turn) = watch::channel(0);
        Ok(Attachment {
            sandbox: self.clone(),
            command: command.into(),
            output,
            input: AttachInput { sink: Arc::new(Mutex::new(sink)), turn },
            turns,
            cursor: from,
            started: false,
            over: false,
        })
    }
}

impl Attachment {
    /// The way in, to be used beside [`next`](Attachment::next): who only speaks and never listens may wait for ever.
    pub fn input(&self) -> AttachInput {
        self.input.clone()
    }

    /// Behind the output that was received: where a later attachment continues.
    pub fn cursor(&self) -> u64 {
        self.cursor
    }

    /// The next one; nothing behind the end. May be dropped while it waits, and nothing is lost.
    pub async fn next(&mut self) -> Result<Option<AttachEvent>, ClientError> {
        while !self.over {
            let message = match self.output.next().await {
                Some(Ok(message)) => message,
                Some(Err(_)) | None => {
                    self.resume().await?;
                    return Ok(Some(AttachEvent::Resumed));
                }
            };
            match message {
                Message::Binary(bytes) => return self.read_output(bytes).map(Some),
                Message::Text(text) => {
                    if let Some(event) = self.read_notice(text.as_str())? {
                        return Ok(Some(event));
                    }
                }
                // A close is followed by the end; the rest is answered by the protocol itself.
                Message::Close(_) | Message::Ping(_) | Message::Pong(_) | Message::Frame(_) => {}
            }
        }
        Ok(None)
    }

    fn read_output(&mut self, mut bytes: Bytes) -> Result<AttachEvent, ClientError> {
        let stream = match bytes.first() {
            Some(1) => StreamName::Stdout,
            Some(2) => StreamName::Stderr,
            _ => return Err(ClientError::Protocol("output of no stream".into())),
        };
        let output = bytes.split_off(1);
        self.cursor += output.len() as u64;
        Ok(AttachEvent::Output(stream, output))
    }

    fn read_notice(&mut self, text: &str) -> Result<Option<AttachEvent>, ClientError> {
        let attached: Attached =
            serde_json::from_str(text).map_err(|error| ClientError::Protocol(error.to_string()))?;
        Ok(match attached {
            // Said on each connection, and news only on the first.
            Attached::Started { .. } if std::mem::replace(&mut self.started, true) => None,
            Attached::Started { command } => Some(AttachEvent::Started(command)),
            Attached::Skipped { cursor } => {
                self.cursor = cursor;
                Some(AttachEvent::Skipped)
            }
            Attached::Ended { result } => {
                self.over = true;
                Some(AttachEvent::Ended(result))
            }
            Attached::Error { error } => Some(AttachEvent::Refused(error)),
        })
    }

    async fn resume(&mut self) -> Result<(), ClientError> {
        let (sandbox, command, cursor) = (&self.sandbox, &self.command, self.cursor);
        let socket = patiently(sandbox.client.time_limit, || open(sandbox, command, cursor)).await?;
        let (sink, output) = socket.split();
        // A writer that still has the old sink gets its error, and releases the lock.
        *self.input.sink.lock().await = sink;
        self.output = output;
        self.turns.send_modify(|turn| *turn += 1);
        Ok(())
    }
}

impl AttachInput {
    /// Standard input, or what was typed.
    pub async fn bytes(&mut self, bytes: impl Into<Bytes>) -> Result<(), ClientError> {
        self.send(Message::Binary(bytes.into())).await
    }

    /// There will be no more.
    pub async fn end(&mut self) -> Result<(), ClientError> {
        self.control(&Control::StdinEnd).await
    }

    pub async fn resize(&mut self, size: Terminal) -> Result<(), ClientError> {
        self.control(&Control::Resize { rows: size.rows, cols: size.cols }).await
    }

    /// `SIGINT`, or a number.
    pub async fn signal(&mut self, signal: &str) -> Result<(), ClientError> {
        self.control(&Control::Signal { signal: signal.into() }).await
    }

    async fn control(&mut self, control: &Control) -> Result<(), ClientError> {
        let text = serde_json::to_string(control).expect("plain data can be written as JSON");
        self.send(Message::Text(text.into())).await
    }

    async fn send(&mut self, message: Message) -> Result<(), ClientError> {
        loop {
            let turn = *self.turn.borrow();
            let sent = self.sink.lock().await.send(message.clone()).await;
            match sent {
                Ok(()) => return Ok(()),
                // The listener finds out too, and makes a new connection.
                Err(why) => {
                    let newer = self.turn.wait_for(|now| *now > turn).await;
                    newer.map_err(|_| ClientError::Gone(why.to_string()))?;
                }
            }
        }
    }
}

async fn open(sandbox: &Sandbox, command: &str, from: u64) -> Result<Socket, ClientError> {
    let key = generate_key();
    let expected = derive_accept_key(key.as_bytes());
    let response = sandbox
        .call(Method::GET, &below(command, "/attach"))
        .query("from", from)
        .header("sec-websocket-key", key)
        .header("sec-websocket-version", "13")
        .upgrade("websocket")
        .await?;
    if response
        .headers()
        .get(SEC_WEBSOCKET_ACCEPT)
        .is_none_or(|accepted| accepted.as_bytes() != expected.as_bytes())
    {
        return Err(ClientError::Protocol("the WebSocket was not accepted".into()));
    }
    let upgraded = hyper::upgrade::on(response).await?;
    Ok(WebSocketStream::from_raw_socket(TokioIo::new(upgraded), Role::Client, None).await)
}
