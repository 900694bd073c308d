//! Bodies on their way: as they come, watched for placeholders, or with real values taken out.

use super::framed::{Framing, Unreadable};
use crate::credentials::{Credentials, Origin, Redact, Watch};
use belljar_git::advertisement::AddCapability;
use belljar_spec::egress::Refusal;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::Version;
use hyper::body::{Body as HttpBody, Bytes, Frame, Incoming, SizeHint};
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::sync::mpsc::Receiver;
use tokio::time::{Sleep, sleep, timeout};

/// A body of any kind. An error in it keeps its causes: a stream's reset is passed on by its reason.
pub(super) type Body = UnsyncBoxBody<Bytes, BodyError>;

#[derive(Debug, thiserror::Error)]
pub(super) enum BodyError {
    #[error(transparent)]
    Broken(#[from] hyper::Error),
    #[error("the stream was broken off")]
    BrokenOff(#[source] h2::Error),
    #[error("a placeholder is in the body")]
    Placeholder,
    #[error(transparent)]
    Unreadable(#[from] Unreadable),
    #[error("what was kept cannot be read again")]
    Spool(#[source] std::io::Error),
}

/// A body as it comes. The library takes an HTTP/2 stream that was reset for one that has ended, if the reset's code is not
/// an error (CANCEL, NO_ERROR); passed on like that, half of an upload would be all of it to the server.
pub(super) struct Passing {
    body: Incoming,
    version: Version,
}

impl Passing {
    /// Of a message of this version.
    pub(super) fn new(body: Incoming, version: Version) -> Passing {
        Passing { body, version }
    }
}

impl HttpBody for Passing {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match ready!(Pin::new(&mut self.body).poll_frame(context)) {
            None if self.version == Version::HTTP_2 && !self.body.is_end_stream() => {
                Poll::Ready(Some(Err(BodyError::BrokenOff(h2::Reason::CANCEL.into()))))
            }
            None => Poll::Ready(None),
            Some(frame) => Poll::Ready(Some(frame.map_err(BodyError::from))),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Of our own.
pub(super) fn whole(content: impl Into<Bytes>) -> Body {
    Full::new(content.into()).map_err(|never| match never {}).boxed_unsync()
}

/// A body that was kept in a file, and how long it is.
pub(super) struct SpooledBody {
    pieces: Receiver<std::io::Result<Bytes>>,
    left: u64,
}

impl SpooledBody {
    pub(super) fn new(pieces: Receiver<std::io::Result<Bytes>>, length: u64) -> SpooledBody {
        SpooledBody { pieces, left: length }
    }
}

impl HttpBody for SpooledBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match ready!(self.pieces.poll_recv(context)) {
            Some(Ok(piece)) => {
                self.left = self.left.saturating_sub(piece.len() as u64);
                Poll::Ready(Some(Ok(Frame::data(piece))))
            }
            Some(Err(error)) => Poll::Ready(Some(Err(BodyError::Spool(error)))),
            None => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.left == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}

/// A list of refs on its way to a client that will push: it is asked to leave nothing out of its pack.
pub(super) struct WholePacks {
    body: Body,
    add: Option<AddCapability>,
}

impl WholePacks {
    pub(super) fn new(body: Body) -> WholePacks {
        WholePacks { body, add: Some(AddCapability::new("no-thin")) }
    }
}

impl HttpBody for WholePacks {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = &mut *self;
        loop {
            let Some(frame) = ready!(Pin::new(&mut this.body).poll_frame(context)) else {
                let rest = this.add.take().map(|mut add| add.finish()).unwrap_or_default();
                let rest = (!rest.is_empty()).then(|| Ok(Frame::data(Bytes::from(rest))));
                return Poll::Ready(rest);
            };
            let passed = match (frame?.into_data(), &mut this.add) {
                (Ok(data), Some(add)) => add.feed(&data),
                (Ok(data), None) => data.to_vec(),
                (Err(trailers), _) => return Poll::Ready(Some(Ok(trailers))),
            };
            if !passed.is_empty() {
                return Poll::Ready(Some(Ok(Frame::data(Bytes::from(passed)))));
            }
        }
    }
}

/// Reads what a refused client still sends, as far as that is little: closed with bytes unread, its connection would be
/// reset, and the answer with it.
pub(super) async fn drain(mut body: Incoming) {
    let mut left = DRAINED;
    let all = async {
        while let Some(Ok(frame)) = body.frame().await {
            left = left.saturating_sub(frame.data_ref().map_or(0, Bytes::len));
            if left == 0 {
                break;
            }
        }
    };
    let _ = timeout(DRAIN_TIMEOUT, all).await;
}

/// What became of a body that was watched.
pub(super) type Verdict = Arc<OnceLock<Refusal>>;

/// A request's body, watched. What is found ends it.
pub(super) struct Watched {
    body: Passing,
    watch: Watch,
    credentials: Arc<Credentials>,
    to: Origin,
    verdict: Verdict,
}

impl Watched {
    pub(super) fn new(
        body: Passing,
        watch: Watch,
        credentials: &Arc<Credentials>,
        to: &Origin,
    ) -> (Watched, Verdict) {
        let verdict = Verdict::default();
        let (credentials, to) = (Arc::clone(credentials), to.clone());
        (Watched { body, watch, credentials, to, verdict: Arc::clone(&verdict) }, verdict)
    }
}

impl HttpBody for Watched {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let Some(frame) = ready!(Pin::new(&mut self.body).poll_frame(context)) else {
            return Poll::Ready(None);
        };
        let frame = match frame {
            Ok(frame) => frame,
            Err(error) => return Poll::Ready(Some(Err(error))),
        };
        let this = &mut *self;
        let mut found = Ok(());
        if let Some(data) = frame.data_ref() {
            found = this.watch.feed(data);
        }
        for value in frame.trailers_ref().into_iter().flat_map(|trailers| trailers.values()) {
            found = found.and_then(|()| this.watch.feed(value.as_bytes()));
        }
        match found {
            Ok(()) => Poll::Ready(Some(Ok(frame))),
            Err(found) => {
                let _ = this.verdict.set(this.credentials.found(&this.to, &found));
                Poll::Ready(Some(Err(BodyError::Placeholder)))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A response's body, without real values. It has as many bytes as it had.
pub(super) struct Redacted {
    body: Passing,
    redact: Redact,
    framing: Framing,
    /// Since a message is over, and its end waits for the next.
    pause: Option<Pin<Box<Sleep>>>,
    /// What comes behind the last bytes.
    trailers: Option<Frame<Bytes>>,
    is_over: bool,
}

impl Redacted {
    pub(super) fn new(body: Passing, redact: Redact, framing: Framing) -> Redacted {
        let is_over = body.is_end_stream();
        Redacted { body, redact, framing, pause: None, trailers: None, is_over }
    }

    /// When nothing came: whether the end of a message has waited long enough. How long depends on no value.
    fn paused(&mut self, context: &mut Context<'_>) -> Poll<Bytes> {
        if !self.framing.is_between_messages() || !self.redact.is_waiting() {
            return Poll::Pending;
        }
        let pause = self.pause.get_or_insert_with(|| Box::pin(sleep(PAUSE)));
        ready!(pause.as_mut().poll(context));
        self.pause = None;
        Poll::Ready(self.redact.finish())
    }
}

impl HttpBody for Redacted {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = &mut *self;
        loop {
            if this.is_over {
                return Poll::Ready(this.trailers.take().map(Ok));
            }
            let Poll::Ready(next) = Pin::new(&mut this.body).poll_frame(context) else {
                return this.paused(context).map(|rest| Some(Ok(Frame::data(rest))));
            };
            this.pause = None;
            let piece = match next {
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => match this.framing.feed(&mut this.redact, data) {
                        Ok(piece) => piece,
                        Err(error) => return Poll::Ready(Some(Err(error.into()))),
                    },
                    Err(frame) => {
                        if let Ok(mut trailers) = frame.into_trailers() {
                            this.redact.headers(&mut trailers);
                            this.trailers = Some(Frame::trailers(trailers));
                        }
                        this.is_over = true;
                        this.framing.finish(&mut this.redact)
                    }
                },
                None => {
                    this.is_over = true;
                    this.framing.finish(&mut this.redact)
                }
            };
            if !piece.is_empty() {
                return Poll::Ready(Some(Ok(Frame::data(piece))));
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.is_over && self.trailers.is_none()
    }

    /// The length is the same: what is put in is as long as what is taken out.
    fn size_hint(&self) -> SizeHint {
        if self.is_over { SizeHint::default() } else { self.body.size_hint() }
    }
}

/// More is not worth an answer that arrives.
const DRAINED: usize = 1024 * 1024;
const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);
/// Longer than a server takes to continue with what it has begun to send, also one that had to wait for room.
const PAUSE: Duration = Duration::from_millis(500);
