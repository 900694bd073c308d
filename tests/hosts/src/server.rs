//! A TCP server: a thread that accepts, and a thread a connection.

use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

/// Serves until it is dropped; then every connection of it ends.
pub struct Server {
    address: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    stopped: AtomicBool,
    accepted: AtomicUsize,
    open: Mutex<Vec<TcpStream>>,
}

impl Server {
    /// At a free port of this address. Each connection gets a thread that runs `handler`.
    pub fn start(at: impl Into<IpAddr>, handler: impl Fn(TcpStream) + Send + Sync + 'static) -> Server {
        Server::at(SocketAddr::new(at.into(), 0), handler)
    }

    /// At this very address.
    pub fn at(at: SocketAddr, handler: impl Fn(TcpStream) + Send + Sync + 'static) -> Server {
        let listener = TcpListener::bind(at).unwrap_or_else(|error| panic!("no server at {at}: {error}"));
        let address = listener.local_addr().expect("it is bound");
        let shared = Arc::new(Shared::default());
        let (known, handler) = (Arc::clone(&shared), Arc::new(handler));
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if known.stopped.load(Ordering::SeqCst) {
                    return;
                }
                known.accepted.fetch_add(1, Ordering::SeqCst);
                if let Ok(twin) = stream.try_clone() {
                    known.open.lock().unwrap_or_else(PoisonError::into_inner).push(twin);
                }
                let (known, handler) = (Arc::clone(&known), Arc::clone(&handler));
                thread::spawn(move || {
                    let peer = stream.peer_addr().ok();
                    handler(stream);
                    // The twin would keep the connection open.
                    let mut open = known.open.lock().unwrap_or_else(PoisonError::into_inner);
                    open.retain(|twin| twin.peer_addr().ok().is_some_and(|twin| Some(twin) != peer));
                });
            }
        });
        Server { address, shared }
    }

    /// Where it is.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its port.
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// How many connections it got.
    pub fn accepted(&self) -> usize {
        self.shared.accepted.load(Ordering::SeqCst)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shared.stopped.store(true, Ordering::SeqCst);
        for stream in self.shared.open.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
        // Wakes the thread that accepts.
        let _ = TcpStream::connect(self.address);
    }
}
