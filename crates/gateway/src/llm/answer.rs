//! An answer on its way in: piece by piece as it comes, counted, and without the key.

use super::call::{Call, End};
use crate::credentials::Redact;
use crate::outbound::ReusableConnection;
use crate::serving::Serving;
use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, Sleep, sleep};

pub(super) struct Answer {
    incoming: Incoming,
    redact: Option<Redact>,
    call: Call,
    connection: Option<ReusableConnection>,
    serving: Arc<Serving>,
    silence: Pin<Box<Sleep>>,
    over: bool,
    _place: OwnedSemaphorePermit,
}

impl Answer {
    pub(super) fn new(
        incoming: Incoming,
        redact: Option<Redact>,
        call: Call,
        connection: ReusableConnection,
        serving: Arc<Serving>,
        place: OwnedSemaphorePermit,
    ) -> Answer {
        let mut answer = Answer {
            over: false,
            incoming,
            redact,
            call,
            connection: Some(connection),
            serving,
            silence: Box::pin(sleep(SILENCE)),
            _place: place,
        };
        if answer.incoming.is_end_stream() {
            answer.finish();
        }
        answer
    }

    /// Written down before the client can know that it was the last.
    fn finish(&mut self) -> Option<Bytes> {
        self.over = true;
        let rest = self.redact.as_mut().map(Redact::finish).filter(|rest| !rest.is_empty());
        if let Some(rest) = &rest {
            self.call.saw(rest);
        }
        self.call.end(End::Finished);
        if let Some(connection) = self.connection.take() {
            connection.keep();
        }
        rest
    }

    fn fail(&mut self, end: End, error: io::Error) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        self.over = true;
        self.call.end(end);
        Poll::Ready(Some(Err(error)))
    }

    fn pass(&mut self, bytes: Bytes) -> Bytes {
        let passed = match &mut self.redact {
            Some(redact) => redact.feed(bytes),
            None => bytes,
        };
        // What is written down of it has no key in it either.
        self.call.saw(&passed);
        if !self.incoming.is_end_stream() {
            return passed;
        }
        match self.finish() {
            Some(rest) => [passed, rest].concat().into(),
            None => passed,
        }
    }
}

impl Body for Answer {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        while !self.over {
            let frame = match Pin::new(&mut self.incoming).poll_frame(context) {
                Poll::Pending => {
                    return match self.silence.as_mut().poll(context) {
                        Poll::Pending => Poll::Pending,
                        Poll::Ready(()) => self.fail(End::TooSlow, io::ErrorKind::TimedOut.into()),
                    };
                }
                Poll::Ready(None) => {
                    return Poll::Ready(self.finish().map(|rest| Ok(Frame::data(rest))));
                }
                Poll::Ready(Some(Err(error))) => {
                    return self.fail(End::BrokenOff, io::Error::other(error));
                }
                Poll::Ready(Some(Ok(frame))) => frame,
            };
            self.silence.as_mut().reset(Instant::now() + SILENCE);
            // Trailers end here: clients do not need them, and they are not searched for the key.
            let Ok(bytes) = frame.into_data() else { continue };
            if self.serving.meter.spend(bytes.len() as u64).is_err() {
                return self.fail(End::ByteLimit, io::ErrorKind::QuotaExceeded.into());
            }
            let passed = self.pass(bytes);
            if !passed.is_empty() {
                return Poll::Ready(Some(Ok(Frame::data(passed))));
            }
        }
        Poll::Ready(None)
    }

    fn is_end_stream(&self) -> bool {
        self.over
    }

    fn size_hint(&self) -> SizeHint {
        // What is blotted out is as long as before.
        if self.over { SizeHint::with_exact(0) } else { self.incoming.size_hint() }
    }
}

/// A model that thinks says something from time to time, or sends pings.
const SILENCE: Duration = Duration::from_secs(900);
