//! A file on its way to the daemon: one task gives pieces, the request reads them.

use hyper::body::Bytes;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, ReadBuf};
use tokio::sync::mpsc;

/// Both ends. When the sender is dropped, the file ends.
pub(crate) fn channel() -> (mpsc::Sender<io::Result<Bytes>>, PiecesReader) {
    let (to, pieces) = mpsc::channel(PIECES);
    (to, PiecesReader { pieces, rest: Bytes::new() })
}

/// What a task sends, to be read. An error that it sends is one of the reader: the daemon must not take half of a file for the whole.
pub(crate) struct PiecesReader {
    pieces: mpsc::Receiver<io::Result<Bytes>>,
    rest: Bytes,
}

impl AsyncRead for PiecesReader {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.rest.is_empty() {
            match ready!(self.pieces.poll_recv(cx)) {
                Some(piece) => self.rest = piece?,
                None => return Poll::Ready(Ok(())),
            }
        }
        let taken = self.rest.len().min(buffer.remaining());
        buffer.put_slice(&self.rest.split_to(taken));
        Poll::Ready(Ok(()))
    }
}

const PIECES: usize = 8;
