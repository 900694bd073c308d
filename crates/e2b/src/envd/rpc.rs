//! Calls: what a request says, and how its answer is sent.

use crate::connect::{FrameReader, RpcError, end, message};
use crate::http::Incoming;
use crate::http::{Body, MAX_JSON_BYTES, collect, header, parsed, streamed, with_type};
use http_body_util::BodyExt;
use hyper::body::Bytes;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::{Request, Response, StatusCode};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;
use std::future::Future;
use std::io;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::{Instant, interval_at};

/// The message of a unary call.
pub(crate) async fn unary<T: DeserializeOwned>(request: Request<Incoming>) -> Result<T, RpcError> {
    let bytes = collect(request.into_body(), MAX_JSON_BYTES).await;
    let bytes = bytes.map_err(|fault| RpcError::invalid(fault.message))?;
    parsed(&bytes).map_err(RpcError::invalid)
}

/// The one message of a call that is answered by a stream.
pub(crate) async fn single<T: DeserializeOwned>(request: Request<Incoming>) -> Result<T, RpcError> {
    let mut messages = Messages::of(request);
    let message = messages.next().await?;
    message.ok_or_else(|| RpcError::invalid("there is no message in the request"))
}

/// The messages of a client that streams.
pub(crate) struct Messages {
    body: Incoming,
    reader: FrameReader,
}

impl Messages {
    pub(crate) fn of(request: Request<Incoming>) -> Messages {
        Messages { body: request.into_body(), reader: FrameReader::default() }
    }

    /// The next one; nothing behind the last.
    pub(crate) async fn next<T: DeserializeOwned>(&mut self) -> Result<Option<T>, RpcError> {
        loop {
            let frame = self.reader.next_frame().map_err(|error| RpcError::invalid(error.message()))?;
            match frame {
                Some(frame) if frame.is_end => return Ok(None),
                Some(frame) => return parsed(&frame.payload).map(Some).map_err(RpcError::invalid),
                None => {}
            }
            let cut = || RpcError::invalid("the request ended within a message");
            match self.body.frame().await {
                Some(Ok(piece)) => {
                    if let Ok(bytes) = piece.into_data() {
                        self.reader.push(&bytes);
                    }
                }
                Some(Err(_)) => return Err(cut()),
                None if self.reader.is_empty() => return Ok(None),
                None => return Err(cut()),
            }
        }
    }
}

/// How long a client waits for the whole call, if it said so.
pub(crate) fn deadline<B>(request: &Request<B>) -> Option<Duration> {
    header(request, "connect-timeout-ms")?.parse().ok().map(Duration::from_millis)
}

/// How often a client wants to hear that a stream is alive.
pub(crate) fn keepalive<B>(request: &Request<B>) -> Duration {
    let asked = header(request, "keepalive-ping-interval").and_then(|text| text.parse().ok());
    Duration::from_secs(asked.unwrap_or(KEEPALIVE_S).clamp(1, 3600))
}

/// The answer to a unary call.
pub(crate) fn answer(outcome: Result<serde_json::Value, RpcError>) -> Response<Body> {
    match outcome {
        Ok(value) => with_type(StatusCode::OK, "application/json", value.to_string()),
        Err(error) => with_type(error.code.status(), "application/json", error.body().to_string()),
    }
}

/// Where the messages of an answer go.
pub(crate) struct Sender {
    to: mpsc::Sender<io::Result<Bytes>>,
    keepalive: Duration,
    /// What says that a stream is alive.
    pulse: serde_json::Value,
}

/// The client has gone.
#[derive(Debug)]
pub(crate) struct Gone;

impl Sender {
    pub(crate) async fn send(&self, value: &impl Serialize) -> Result<(), Gone> {
        self.to.send(Ok(message(value).into())).await.map_err(|_| Gone)
    }

    /// Waits for something, and tells the client meanwhile that the stream is alive.
    pub(crate) async fn wait<T>(&self, next: impl Future<Output = T>) -> Result<T, Gone> {
        let mut next = std::pin::pin!(next);
        let mut pulse = interval_at(Instant::now() + self.keepalive, self.keepalive);
        loop {
            tokio::select! {
                found = &mut next => return Ok(found),
                () = self.to.closed() => return Err(Gone),
                _ = pulse.tick() => self.send(&self.pulse).await?,
            }
        }
    }
}

/// A stream of messages. `work` sends them, and is gone with the client; its error is the last message.
pub(crate) fn stream<F>(
    keepalive: Duration,
    pulse: serde_json::Value,
    work: impl FnOnce(Sender) -> F,
) -> Response<Body>
where
    F: Future<Output = Result<(), Ended>> + Send + 'static,
{
    let (to, pieces) = mpsc::channel(PIECES);
    let work = work(Sender { to: to.clone(), keepalive, pulse });
    tokio::spawn(async move {
        let last = match work.await {
            Ok(()) => end(None),
            Err(Ended::Failed(error)) => end(Some(&error)),
            Err(Ended::Gone) => return,
            Err(Ended::Broken) => {
                let _ = to.send(Err(io::ErrorKind::ConnectionReset.into())).await;
                return;
            }
        };
        let _ = to.send(Ok(last.into())).await;
    });
    let mut response = Response::new(streamed(pieces));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/connect+json"));
    response
}

/// A stream that ends at once, with this error.
pub(crate) fn failed(error: &RpcError) -> Response<Body> {
    with_type(StatusCode::OK, "application/connect+json", end(Some(error)))
}

/// Why a stream ends before its time.
#[derive(Debug)]
pub(crate) enum Ended {
    Failed(RpcError),
    /// The client has gone.
    Gone,
    /// The sandbox has: the client is to see a broken connection.
    Broken,
}

impl From<Gone> for Ended {
    fn from(_: Gone) -> Ended {
        Ended::Gone
    }
}

impl From<RpcError> for Ended {
    fn from(error: RpcError) -> Ended {
        Ended::Failed(error)
    }
}

pub(crate) fn empty() -> serde_json::Value {
    json!({})
}

/// More wait in the kernel, and at last the command does.
const PIECES: usize = 16;
const KEEPALIVE_S: u64 = 90;
