//! A connection as a byte stream for a protocol library: what was read ahead comes first, and everything is counted.
//!
//! A library of TLS reads four kilobytes at a time, which would be a system call each. So what there is is read at once,
//! into room that all connections of the thread share, and only what the library does not take yet is kept.

use crate::relay::Counts;
use crate::serving::Serving;
use std::cell::RefCell;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// One side of a connection.
pub(crate) struct Side {
    stream: TcpStream,
    ahead: Vec<u8>,
    /// So much of it was given out.
    given: usize,
    counted: Option<Counted>,
}

/// Who pays for the bytes of a side.
pub(crate) struct Counted {
    pub(crate) serving: Arc<Serving>,
    pub(crate) counts: Arc<Counts>,
}

impl Side {
    /// The side of the sandbox: its bytes are counted when they pass the other one.
    pub(crate) fn inside(stream: TcpStream, ahead: Vec<u8>) -> Side {
        Side { stream, ahead, given: 0, counted: None }
    }

    /// The side of the server.
    pub(crate) fn outside(stream: TcpStream, counted: Counted) -> Side {
        Side { stream, ahead: Vec::new(), given: 0, counted: Some(counted) }
    }

    fn spend(&self, bytes: usize) -> io::Result<()> {
        let Some(counted) = &self.counted else { return Ok(()) };
        counted.serving.meter.spend(bytes as u64).map_err(|_| {
            counted.counts.ran_out.store(true, Ordering::Relaxed);
            io::Error::from(io::ErrorKind::QuotaExceeded)
        })
    }

    /// What was paid for and did not pass.
    fn give_back(&self, bytes: usize) {
        if let Some(counted) = &self.counted {
            counted.serving.meter.give_back(bytes as u64);
        }
    }

    fn count(&self, bytes: usize, direction: impl Fn(&Counts) -> &AtomicU64) {
        if let Some(counted) = &self.counted {
            direction(&counted.counts).fetch_add(bytes as u64, Ordering::Relaxed);
        }
    }
}

impl AsyncRead for Side {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.given == self.ahead.len() {
            if buffer.remaining() >= LARGE {
                let before = buffer.filled().len();
                ready!(Pin::new(&mut self.stream).poll_read(context, buffer))?;
                let length = buffer.filled().len() - before;
                self.count(length, |counts| &counts.received);
                return Poll::Ready(self.spend(length));
            }
            ready!(self.fill(context))?;
        }
        let rest = &self.ahead[self.given..];
        let length = rest.len().min(buffer.remaining());
        buffer.put_slice(&rest[..length]);
        self.given += length;
        if self.given == self.ahead.len() {
            // A quiet connection holds no memory.
            (self.ahead, self.given) = (Vec::new(), 0);
        }
        Poll::Ready(Ok(()))
    }
}

impl Side {
    /// Reads all that there is, as far as there is room.
    fn fill(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let read = SCRATCH.with_borrow_mut(|scratch| {
            let mut room = ReadBuf::new(scratch);
            ready!(Pin::new(&mut self.stream).poll_read(context, &mut room))?;
            (self.ahead, self.given) = (room.filled().to_vec(), 0);
            Poll::Ready(io::Result::Ok(()))
        });
        ready!(read)?;
        let length = self.ahead.len();
        self.count(length, |counts| &counts.received);
        Poll::Ready(self.spend(length))
    }

    /// Accounts for what was written, of what was paid for.
    fn written(&self, paid: usize, outcome: &Poll<io::Result<usize>>) {
        let written = match outcome {
            Poll::Ready(Ok(written)) => *written,
            Poll::Ready(Err(_)) | Poll::Pending => 0,
        };
        self.give_back(paid - written);
        self.count(written, |counts| &counts.sent);
    }
}

impl AsyncWrite for Side {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        // Paid before it leaves: what is taken back afterwards is outside already.
        self.spend(bytes.len())?;
        let outcome = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.written(bytes.len(), &outcome);
        outcome
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let length = pieces.iter().map(|piece| piece.len()).sum();
        self.spend(length)?;
        let outcome = Pin::new(&mut self.stream).poll_write_vectored(context, pieces);
        self.written(length, &outcome);
        outcome
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

thread_local! {
    /// Used for the moment of one read.
    static SCRATCH: RefCell<Box<[u8]>> = RefCell::new(vec![0; ROOM].into_boxed_slice());
}

/// As much as arrives between two looks at a fast connection.
const ROOM: usize = 64 * 1024;
/// A caller that has room for this much reads directly from the socket.
const LARGE: usize = 32 * 1024;
