//! A TLS server with a certificate of a test's authority.

use crate::{Leaf, Server};
use rustls::crypto::aws_lc_rs;
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use std::io::Read;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::ops::Deref;
use std::sync::{Arc, Mutex, PoisonError};

/// Serves TLS; keeps which names clients asked for.
pub struct TlsServer {
    server: Server,
    server_names: Arc<Mutex<Vec<String>>>,
}

impl TlsServer {
    /// At a free port of this address. Each connection gets a thread that runs `handler` once TLS is agreed on.
    pub fn start(
        at: impl Into<IpAddr>,
        leaf: &Leaf,
        handler: impl Fn(&mut StreamOwned<ServerConnection, TcpStream>) + Send + Sync + 'static,
    ) -> TlsServer {
        TlsServer::at(SocketAddr::new(at.into(), 0), leaf, handler)
    }

    /// At this very address.
    pub fn at(
        at: SocketAddr,
        leaf: &Leaf,
        handler: impl Fn(&mut StreamOwned<ServerConnection, TcpStream>) + Send + Sync + 'static,
    ) -> TlsServer {
        let config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("the provider has the usual versions")
            .with_no_client_auth()
            .with_single_cert(leaf.chain.clone(), leaf.key.clone_key())
            .expect("certificate and key belong together");
        let config = Arc::new(config);
        let server_names = Arc::new(Mutex::new(Vec::new()));
        let names = Arc::clone(&server_names);
        let server = Server::at(at, move |mut stream| {
            // A head and a body in two segments would wait for an acknowledgement, 40 ms each time.
            let _ = stream.set_nodelay(true);
            let mut tls = ServerConnection::new(Arc::clone(&config)).expect("the settings are fine");
            while tls.is_handshaking() {
                if tls.complete_io(&mut stream).is_err() {
                    return;
                }
            }
            let name = tls.server_name().unwrap_or_default().to_string();
            names.lock().unwrap_or_else(PoisonError::into_inner).push(name);
            let mut stream = StreamOwned::new(tls, stream);
            handler(&mut stream);
            stream.conn.send_close_notify();
            let _ = stream.conn.complete_io(&mut stream.sock);
            // Closed with bytes unread, the client would see a reset instead of the last answer.
            let _ = stream.sock.shutdown(std::net::Shutdown::Write);
            let _ = stream.sock.set_read_timeout(Some(LAST));
            let _ = std::io::copy(&mut (&stream.sock).take(1 << 20), &mut std::io::sink());
        });
        TlsServer { server, server_names }
    }

    /// The server name of every handshake that succeeded.
    pub fn requested_names(&self) -> Vec<String> {
        self.server_names.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Deref for TlsServer {
    type Target = Server;

    fn deref(&self) -> &Server {
        &self.server
    }
}

/// How long a client may continue after the server has ended the connection.
const LAST: std::time::Duration = std::time::Duration::from_secs(2);
