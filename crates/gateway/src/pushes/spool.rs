//! A push on its way through a file: written and read by threads that may wait for a disk, beside the event loop.

use hyper::body::Bytes;
use std::fs::File;
use std::io::{self, Read, Write};
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::task::{JoinHandle, spawn_blocking};

/// A file that is being written.
pub(crate) struct Spool {
    pieces: Sender<Bytes>,
    writer: JoinHandle<io::Result<File>>,
}

impl Spool {
    /// Into a file that this makes.
    pub(crate) fn new(file: impl FnOnce() -> io::Result<File> + Send + 'static) -> Spool {
        let (pieces, mut coming) = channel::<Bytes>(PIECES);
        let writer = spawn_blocking(move || {
            let mut file = file()?;
            while let Some(piece) = coming.blocking_recv() {
                file.write_all(&piece)?;
            }
            Ok(file)
        });
        Spool { pieces, writer }
    }

    /// More. What went wrong is said in the end.
    pub(crate) async fn write(&self, piece: Bytes) {
        let _ = self.pieces.send(piece).await;
    }

    /// All of it is in the file.
    pub(crate) async fn finish(self) -> io::Result<File> {
        drop(self.pieces);
        self.writer.await.unwrap_or_else(|_| Err(io::Error::other("the writer is gone")))
    }
}

/// What a file holds, from where it stands, piece by piece.
pub(crate) fn spooled(mut file: File) -> Receiver<io::Result<Bytes>> {
    let (pieces, coming) = channel(PIECES);
    spawn_blocking(move || {
        loop {
            let mut piece = vec![0; PIECE];
            let piece = match file.read(&mut piece) {
                Ok(0) => return,
                Ok(length) => {
                    piece.truncate(length);
                    Ok(Bytes::from(piece))
                }
                Err(error) => Err(error),
            };
            let is_last = piece.is_err();
            // The receiver is dropped: the rest is not wanted.
            if pieces.blocking_send(piece).is_err() || is_last {
                return;
            }
        }
    });
    coming
}

/// Pieces that wait for the other side.
const PIECES: usize = 8;
const PIECE: usize = 64 * 1024;
