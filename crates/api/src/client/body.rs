//! What goes with a request and comes with an answer.

use crate::client::connect::Line;
use crate::client::error::ClientError;
use crate::client::pool::Pool;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Empty, Full};
use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, ReadBuf};

/// What goes with a request.
pub(crate) type RequestBody = UnsyncBoxBody<Bytes, io::Error>;

pub(crate) fn nothing() -> RequestBody {
    Empty::new().map_err(|never| match never {}).boxed_unsync()
}

pub(crate) fn bytes(bytes: impl Into<Bytes>) -> RequestBody {
    Full::new(bytes.into()).map_err(|never| match never {}).boxed_unsync()
}

/// What a reader gives, as long as it gives something.
pub(crate) fn streamed(reader: impl AsyncRead + Send + Unpin + 'static, length: Option<u64>) -> RequestBody {
    Streamed { reader, left: length, buffer: vec![0; CHUNK] }.boxed_unsync()
}

struct Streamed<R> {
    reader: R,
    /// Where it was said beforehand.
    left: Option<u64>,
    buffer: Vec<u8>,
}

impl<R: AsyncRead + Unpin> Body for Streamed<R> {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let this = self.get_mut();
        if this.left == Some(0) {
            return Poll::Ready(None);
        }
        let room = this.left.map_or(CHUNK, |left| usize::try_from(left).unwrap_or(CHUNK).min(CHUNK));
        let mut buffer = ReadBuf::new(&mut this.buffer[..room]);
        if let Err(error) = ready!(Pin::new(&mut this.reader).poll_read(cx, &mut buffer)) {
            return Poll::Ready(Some(Err(error)));
        }
        let filled = buffer.filled();
        match (filled.len() as u64, &mut this.left) {
            (0, None) => return Poll::Ready(None),
            (0, Some(_)) => {
                let short = io::Error::new(io::ErrorKind::UnexpectedEof, "it is shorter than it was");
                return Poll::Ready(Some(Err(short)));
            }
            (read, Some(left)) => *left -= read,
            (_, None) => {}
        }
        Poll::Ready(Some(Ok(Frame::data(Bytes::copy_from_slice(filled)))))
    }

    fn size_hint(&self) -> SizeHint {
        self.left.map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}

/// An answer's bytes as they come. Read to its end, its connection is used again.
pub struct Download {
    body: Incoming,
    line: Option<Line>,
    pool: Pool,
}

impl Download {
    pub(crate) fn new(body: Incoming, line: Line, pool: Pool) -> Download {
        Download { body, line: Some(line), pool }
    }

    /// The next bytes; nothing at the end. May be dropped while it waits, and nothing is lost.
    pub async fn next(&mut self) -> Result<Option<Bytes>, ClientError> {
        loop {
            match self.body.frame().await {
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        return Ok(Some(data));
                    }
                }
                Some(Err(error)) => {
                    self.line = None;
                    return Err(error.into());
                }
                None => {
                    if let Some(line) = self.line.take() {
                        self.pool.give_back(line);
                    }
                    return Ok(None);
                }
            }
        }
    }

    /// All of it, if it is no more than `most` bytes.
    pub async fn collect(mut self, most: usize) -> Result<Vec<u8>, ClientError> {
        let mut all = Vec::new();
        while let Some(bytes) = self.next().await? {
            if all.len() + bytes.len() > most {
                return Err(ClientError::Protocol(format!("an answer of more than {most} bytes")));
            }
            all.extend_from_slice(&bytes);
        }
        Ok(all)
    }
}

const CHUNK: usize = 64 * 1024;
