//! The server with real cryptography: HTTP over TLS, where the path is a number of bytes.

use crate::Outcome;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::thread;

pub(crate) fn config(directory: &Path) -> Outcome<Arc<ServerConfig>> {
    let certificate = CertificateDer::from_pem_file(directory.join(CERTIFICATE))?;
    let key = PrivateKeyDer::from_pem_file(directory.join(KEY))?;
    let config = ServerConfig::builder().with_no_client_auth().with_single_cert(vec![certificate], key)?;
    Ok(Arc::new(config))
}

/// Serves in threads of its own, each of which takes its connections itself.
pub(crate) fn serve(listener: TcpListener, config: &Arc<ServerConfig>) -> io::Result<()> {
    for _ in 0..THREADS {
        let (listener, config) = (listener.try_clone()?, Arc::clone(config));
        thread::spawn(move || {
            while let Ok((stream, _)) = listener.accept() {
                // A client that goes away in the middle is its own business.
                let _ = attend(stream, &config);
            }
        });
    }
    Ok(())
}

fn attend(stream: TcpStream, config: &Arc<ServerConfig>) -> Outcome<()> {
    stream.set_nodelay(true)?;
    let mut tls = StreamOwned::new(ServerConnection::new(Arc::clone(config))?, stream);
    let mut request = Vec::new();
    let mut piece = [0; 4096];
    while !request.ends_with(b"\r\n\r\n") {
        match tls.read(&mut piece)? {
            0 => return Ok(()),
            length => request.extend_from_slice(&piece[..length]),
        }
    }
    let mut left: usize = path(&request).and_then(|path| path.parse().ok()).unwrap_or(0);
    write!(tls, "HTTP/1.1 200 OK\r\nContent-Length: {left}\r\nConnection: close\r\n\r\n")?;
    let bytes = vec![7; left.min(PIECE)];
    while left > 0 {
        let length = left.min(PIECE);
        tls.write_all(&bytes[..length])?;
        left -= length;
    }
    tls.conn.send_close_notify();
    tls.flush()?;
    Ok(())
}

/// What comes after the slash.
fn path(request: &[u8]) -> Option<&str> {
    str::from_utf8(request).ok()?.split(' ').nth(1)?.strip_prefix('/')
}

pub(crate) const CERTIFICATE: &str = "certificate.pem";
pub(crate) const KEY: &str = "key.pem";
/// More than any client here opens at a time.
const THREADS: usize = 48;
const PIECE: usize = 256 * 1024;
