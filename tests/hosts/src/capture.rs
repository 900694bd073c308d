//! A host that only listens: what ever arrives at it, over TCP or UDP, is kept.

use crate::Server;
use crate::server::both;
use std::io::Read;
use std::net::{IpAddr, SocketAddr, TcpListener, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

/// Keeps every connection, byte and datagram that arrives at one port of one address.
pub struct Capture {
    tcp: Server,
    stopped: Arc<AtomicBool>,
    seen: Arc<Mutex<Seen>>,
}

/// A datagram that arrived.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Datagram {
    pub from: SocketAddr,
    pub bytes: Vec<u8>,
}

#[derive(Default)]
struct Seen {
    streams: Vec<Vec<u8>>,
    datagrams: Vec<Datagram>,
}

impl Capture {
    /// At a free port of this address, the same for TCP and UDP.
    pub fn start(at: impl Into<IpAddr>) -> Capture {
        let (udp, tcp) = both(at.into());
        Capture::on(udp, tcp)
    }

    /// At this very address.
    pub fn at(at: SocketAddr) -> Capture {
        let bound = UdpSocket::bind(at).and_then(|udp| Ok((udp, TcpListener::bind(at)?)));
        let (udp, tcp) = bound.unwrap_or_else(|error| panic!("no capture at {at}: {error}"));
        Capture::on(udp, tcp)
    }

    fn on(udp: UdpSocket, tcp: TcpListener) -> Capture {
        let seen = Arc::new(Mutex::new(Seen::default()));
        let streams = Arc::clone(&seen);
        let tcp = Server::on(tcp, move |mut stream| {
            let number = {
                let mut seen = streams.lock().unwrap_or_else(PoisonError::into_inner);
                seen.streams.push(Vec::new());
                seen.streams.len() - 1
            };
            let mut buffer = [0; 4096];
            while let Ok(length @ 1..) = stream.read(&mut buffer) {
                let mut seen = streams.lock().unwrap_or_else(PoisonError::into_inner);
                seen.streams[number].extend_from_slice(&buffer[..length]);
            }
        });
        let stopped = Arc::new(AtomicBool::new(false));
        let (stop, datagrams) = (Arc::clone(&stopped), Arc::clone(&seen));
        udp.set_read_timeout(Some(LOOK_UP)).expect("a socket takes a timeout");
        thread::spawn(move || {
            let mut buffer = vec![0; 64 * 1024];
            while !stop.load(Ordering::SeqCst) {
                if let Ok((length, from)) = udp.recv_from(&mut buffer) {
                    let bytes = buffer[..length].to_vec();
                    datagrams
                        .lock()
                        .unwrap_or_else(PoisonError::into_inner)
                        .datagrams
                        .push(Datagram { from, bytes });
                }
            }
        });
        Capture { tcp, stopped, seen }
    }

    /// Where it is.
    pub fn address(&self) -> SocketAddr {
        self.tcp.address()
    }

    /// Its port.
    pub fn port(&self) -> u16 {
        self.tcp.port()
    }

    /// What came over TCP: the bytes of each connection, also of one without any.
    pub fn connections(&self) -> Vec<Vec<u8>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).streams.clone()
    }

    /// What came over UDP.
    pub fn datagrams(&self) -> Vec<Datagram> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).datagrams.clone()
    }

    /// Fails if anything at all arrived.
    #[track_caller]
    pub fn assert_nothing_arrived(&self) {
        // Over loopback it is here by now, but its thread may not have had its turn.
        thread::sleep(LOOK_UP);
        let connections: Vec<String> =
            self.connections().iter().map(|bytes| String::from_utf8_lossy(bytes).into_owned()).collect();
        assert!(
            connections.is_empty() && self.tcp.accepted() == 0,
            "{} got connections: {connections:?}",
            self.address()
        );
        assert_eq!(self.datagrams(), [], "{} got datagrams", self.address());
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        self.stopped.store(true, Ordering::SeqCst);
    }
}

const LOOK_UP: Duration = Duration::from_millis(50);
