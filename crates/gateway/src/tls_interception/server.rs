//! The side of the client: TLS with the certificate that the sandbox's authority made.

use crate::stream::Side;
use belljar_spec::egress::Reason;
use rustls::{AlertDescription, ServerConfig};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// Shakes hands with a client whose hello is in `ahead`. Says why it came to nothing, if that is worth recording.
pub(super) async fn accept(
    inside: TcpStream,
    ahead: Vec<u8>,
    config: Arc<ServerConfig>,
) -> Result<TlsStream<Side>, Option<(Reason, String)>> {
    let handshake = TlsAcceptor::from(config).accept(Side::inside(inside, ahead));
    match timeout(HANDSHAKE, handshake).await {
        Ok(Ok(stream)) => Ok(stream),
        Ok(Err(error)) => Err(why(&error)),
        Err(_) => Err(Some((Reason::SilentClient, "in the middle of the handshake".into()))),
    }
}

/// A client that does not like a certificate says so, or hangs up when it sees it.
fn why(error: &io::Error) -> Option<(Reason, String)> {
    use AlertDescription::{
        AccessDenied, BadCertificate, CertificateExpired, CertificateRevoked, CertificateUnknown, UnknownCA,
        UnsupportedCertificate,
    };
    let tls = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    match tls {
        Some(rustls::Error::AlertReceived(
            alert @ (UnknownCA
            | BadCertificate
            | CertificateUnknown
            | CertificateExpired
            | CertificateRevoked
            | UnsupportedCertificate
            | AccessDenied),
        )) => Some((Reason::ClientDistrusts, format!("{alert:?}"))),
        Some(error) => Some((Reason::MalformedStart, error.to_string())),
        None if error.kind() == io::ErrorKind::UnexpectedEof => {
            Some((Reason::ClientDistrusts, "it hung up when it saw the certificate".into()))
        }
        None => None,
    }
}

/// A client has the hello behind it and needs a moment more.
const HANDSHAKE: Duration = Duration::from_secs(15);
