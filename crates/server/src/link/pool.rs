//! Connections to one shim. Each carries one request at a time; one that has carried its answer to the end is used again.

use axum::body::Body;
use belljar_spec::{ErrorCode, SandboxError};
use hyper::body::{Body as HttpBody, Bytes, Frame, Incoming, SizeHint};
use hyper::client::conn::http1::{self, SendRequest};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::net::UnixStream;

/// The connections of one shim.
#[derive(Debug)]
pub(super) struct Pool {
    address: String,
    idle: Mutex<Vec<SendRequest<Body>>>,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// No process listens there: the shim has ended.
    #[error("the sandbox's shim is gone")]
    Gone(#[source] io::Error),
    /// It listened, and did not answer.
    #[error("the sandbox's shim ended while it was asked")]
    Broken(#[source] hyper::Error),
}

impl LinkError {
    /// As a caller of a sandbox sees it.
    pub fn to_error(&self) -> SandboxError {
        ErrorCode::SandboxNotAlive
            .error(format!("the sandbox is not alive: {self}"))
            .hint("create it again with its key: a persistent one still has its files")
    }
}

impl Pool {
    pub(super) fn new(address: String) -> Pool {
        Pool { address, idle: Mutex::default() }
    }

    /// A new stream to the shim.
    pub(super) async fn dial(&self) -> io::Result<UnixStream> {
        let mut tries = TRIES;
        loop {
            // The leading zero is what makes a name abstract (unix(7)).
            match UnixStream::connect(format!("\0{}", self.address)).await {
                // Many requests come at once, and its queue is full.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && tries > 0 => {
                    tries -= 1;
                    tokio::time::sleep(BETWEEN_TRIES).await;
                }
                outcome => return outcome,
            }
        }
    }

    /// Asks, and gives the head of the answer; its body comes as it is read.
    pub(super) async fn send(
        self: &Arc<Self>,
        mut request: Request<Body>,
    ) -> Result<Response<Passing>, LinkError> {
        loop {
            let used_before = self.take();
            let is_new = used_before.is_none();
            let mut sender = match used_before {
                Some(sender) => sender,
                None => self.connect().await?,
            };
            match sender.try_send_request(request).await {
                Ok(response) => {
                    return Ok(response
                        .map(|body| Passing { body, connection: Some((sender, Arc::downgrade(self))) }));
                }
                Err(mut error) => match error.take_message() {
                    // It was closed while it was idle; nothing of the request was sent.
                    Some(unsent) if !is_new => request = unsent,
                    _ => return Err(LinkError::Broken(error.into_error())),
                },
            }
        }
    }

    async fn connect(&self) -> Result<SendRequest<Body>, LinkError> {
        let stream = self.dial().await.map_err(LinkError::Gone)?;
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(LinkError::Broken)?;
        // The request that waits for an answer gets the connection's error.
        tokio::spawn(connection.with_upgrades());
        Ok(sender)
    }

    fn take(&self) -> Option<SendRequest<Body>> {
        let mut idle = self.idle();
        while let Some(sender) = idle.pop() {
            if sender.is_ready() {
                return Some(sender);
            }
        }
        None
    }

    fn give_back(&self, sender: SendRequest<Body>) {
        let mut idle = self.idle();
        if idle.len() < MAX_IDLE {
            idle.push(sender);
        }
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<SendRequest<Body>>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The body of an answer that passes through.
#[derive(Debug)]
pub struct Passing {
    body: Incoming,
    connection: Option<(SendRequest<Body>, Weak<Pool>)>,
}

impl HttpBody for Passing {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for Passing {
    fn drop(&mut self) {
        let Some((mut sender, pool)) = self.connection.take() else { return };
        if !self.body.is_end_stream() && self.body.size_hint().exact() != Some(0) {
            // Not read to its end, and never will be: the shim sees that by the closed connection.
            return;
        }
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                if sender.ready().await.is_ok()
                    && let Some(pool) = pool.upgrade()
                {
                    pool.give_back(sender);
                }
            });
        }
    }
}

/// More than people and programs ask of one sandbox in the same moment; others are closed after use.
const MAX_IDLE: usize = 16;
/// A queue that is full for longer than this belongs to a shim that accepts no connections.
const TRIES: u32 = 200;
const BETWEEN_TRIES: Duration = Duration::from_millis(5);
