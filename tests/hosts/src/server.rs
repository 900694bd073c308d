//! A TCP server: a thread that accepts, and a thread a connection.

use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicUsize, Ordering};
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
        Server::on(
            TcpListener::bind(at).unwrap_or_else(|error| panic!("no server at {at}: {error}")),
            handler,
        )
    }

    /// At a port that is bound already.
    pub(crate) fn on(listener: TcpListener, handler: impl Fn(TcpStream) + Send + Sync + 'static) -> Server {
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

/// One free port of an address, for UDP and TCP.
pub(crate) fn both(at: IpAddr) -> (UdpSocket, TcpListener) {
    // Another process may have the port of the other kind.
    for _ in 0..100 {
        let udp = UdpSocket::bind((at, 0)).unwrap_or_else(|error| panic!("no port at {at}: {error}"));
        let address = udp.local_addr().expect("it is bound");
        if let Ok(tcp) = TcpListener::bind(address) {
            return (udp, tcp);
        }
    }
    panic!("no port of a hundred is free for both UDP and TCP at {at}")
}

/// An address for a program that binds it later: on loopback, this process's own, at a port that the kernel gives to
/// no program that asks for any.
pub fn own_address() -> SocketAddr {
    static NEXT: AtomicU16 = AtomicU16::new(20_000);
    let [_, high, middle, low] = std::process::id().to_be_bytes();
    let address = Ipv4Addr::new(127, 64 | high, middle, low);
    SocketAddr::new(address.into(), NEXT.fetch_add(1, Ordering::Relaxed))
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
