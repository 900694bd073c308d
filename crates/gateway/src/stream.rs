//! A connection as a byte stream for a protocol library: what was read ahead comes first, and everything is counted.

use crate::relay::Counts;
use crate::serving::Serving;
use std::io;
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
        Side { stream, ahead, counted: None }
    }

    /// The side of the server.
    pub(crate) fn outside(stream: TcpStream, counted: Counted) -> Side {
        Side { stream, ahead: Vec::new(), counted: Some(counted) }
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
        if !self.ahead.is_empty() {
            let length = self.ahead.len().min(buffer.remaining());
            buffer.put_slice(&self.ahead[..length]);
            self.ahead.drain(..length);
            return Poll::Ready(Ok(()));
        }
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(context, buffer))?;
        let length = buffer.filled().len() - before;
        self.count(length, |counts| &counts.received);
        Poll::Ready(self.spend(length))
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
        let written = match &outcome {
            Poll::Ready(Ok(written)) => *written,
            Poll::Ready(Err(_)) | Poll::Pending => 0,
        };
        self.give_back(bytes.len() - written);
        self.count(written, |counts| &counts.sent);
        outcome
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
