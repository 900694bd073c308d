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

/// The same bytes, none of the pieces longer than `MAX_PIECE_BYTES`: a channel is bounded by their count.
pub(crate) fn split(mut bytes: Bytes) -> impl Iterator<Item = Bytes> + Send {
    std::iter::from_fn(move || {
        let length = bytes.len().min(MAX_PIECE_BYTES);
        (length > 0).then(|| bytes.split_to(length))
    })
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
/// What is on its way is bounded by this times the count of pieces.
pub(crate) const MAX_PIECE_BYTES: usize = 64 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_pieces_are_cut_and_nothing_is_lost() {
        for length in [0, 1, MAX_PIECE_BYTES, MAX_PIECE_BYTES + 1, 3 * MAX_PIECE_BYTES + 5] {
            let bytes: Vec<u8> = (0_u8..251).cycle().take(length).collect();
            let pieces: Vec<Bytes> = split(bytes.clone().into()).collect();
            assert!(pieces.iter().all(|piece| (1..=MAX_PIECE_BYTES).contains(&piece.len())), "{length}");
            let found: Vec<u8> = pieces.iter().flat_map(|piece| piece.to_vec()).collect();
            assert!(found == bytes, "{length}");
        }
    }
}
