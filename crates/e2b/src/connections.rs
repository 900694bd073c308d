//! Connections of clients, and which sandbox each is busy with: when a sandbox ends or is paused, what streams from it breaks at once.
//!
//! A connection is broken by a reset (`SO_LINGER` of zero): some clients take a clean end, also of TLS, for the end of the answer, and
//! would wait for the rest or report success. HTTP/1.1 has one request at a time on a connection, so no other sandbox's is hurt.

use std::collections::HashMap;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::{Notify, OwnedSemaphorePermit};

/// One connection of a client.
#[derive(Debug, Default)]
pub(crate) struct Connection {
    is_broken: AtomicBool,
    broken: Notify,
}

impl Connection {
    fn break_off(&self) {
        self.is_broken.store(true, Ordering::Relaxed);
        self.broken.notify_one();
    }

    /// Ready when it is to be dropped.
    pub(crate) async fn broken(&self) {
        self.broken.notified().await;
    }
}

/// A client's TCP connection. Dropped after its connection was broken, it is reset.
pub(crate) struct Breakable {
    stream: TcpStream,
    connection: Arc<Connection>,
    /// Its place among all connections. Given back behind the stream, also where that was upgraded: hence the order of the fields.
    _place: OwnedSemaphorePermit,
}

impl Breakable {
    pub(crate) fn new(
        stream: TcpStream,
        connection: Arc<Connection>,
        place: OwnedSemaphorePermit,
    ) -> Breakable {
        Breakable { stream, connection, _place: place }
    }
}

impl Drop for Breakable {
    fn drop(&mut self) {
        if self.connection.is_broken.load(Ordering::Relaxed) {
            let linger = Some(std::time::Duration::ZERO);
            // If it fails, the client sees a clean end instead.
            let _ = belljar_sys::rustix::net::sockopt::set_socket_linger(&self.stream, linger);
        }
    }
}

impl AsyncRead for Breakable {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Breakable {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// The requests that are under way, by sandbox.
#[derive(Debug, Default)]
pub(crate) struct UnderWay {
    next: AtomicU64,
    requests: Mutex<HashMap<String, HashMap<u64, Arc<Connection>>>>,
}

/// A request that is under way, until this is dropped.
#[derive(Debug)]
pub(crate) struct Request {
    all: Arc<UnderWay>,
    sandbox: String,
    number: u64,
}

impl UnderWay {
    /// A request to a sandbox began on a connection.
    pub(crate) fn begin(self: &Arc<UnderWay>, sandbox: &str, connection: &Arc<Connection>) -> Request {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        self.requests().entry(sandbox.into()).or_default().insert(number, Arc::clone(connection));
        Request { all: Arc::clone(self), sandbox: sandbox.into(), number }
    }

    /// Breaks every connection with a request to this sandbox.
    pub(crate) fn break_off(&self, sandbox: &str) {
        for connection in self.requests().remove(sandbox).into_iter().flat_map(HashMap::into_values) {
            connection.break_off();
        }
    }

    fn requests(&self) -> MutexGuard<'_, HashMap<String, HashMap<u64, Arc<Connection>>>> {
        // Every change is one call: a panic leaves it right.
        self.requests.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        let mut requests = self.all.requests();
        if let Some(of_sandbox) = requests.get_mut(&self.sandbox) {
            of_sandbox.remove(&self.number);
            if of_sandbox.is_empty() {
                requests.remove(&self.sandbox);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_connections_that_are_busy_with_a_sandbox_break() {
        let all = Arc::new(UnderWay::default());
        let connections = [(); 3].map(|()| Arc::new(Connection::default()));
        let _a = all.begin("a", &connections[0]);
        let _b = all.begin("b", &connections[1]);
        drop(all.begin("a", &connections[2]));
        all.break_off("a");
        let broken = connections.map(|connection| connection.is_broken.load(Ordering::Relaxed));
        assert_eq!(broken, [true, false, false]);
        drop(_a);
        drop(_b);
        assert!(all.requests().is_empty());
    }
}
