//! The side of the server: dialled as any other connection, and verified by the system's authorities and the policy's.

use super::Alpn;
use super::alpn::NOTHING_IN_COMMON;
use crate::connection::open;
use crate::credentials::Origin;
use crate::decide;
use crate::record::OpenRecord;
use crate::serving::Serving;
use crate::stream::{Counted, Side};
use belljar_audit::Ending;
use belljar_spec::egress::{Protocol, Reason, Refusal, UNKNOWN_AUTHORITY};
use rustls::client::ResolvesClientCert;
use rustls::pki_types::ServerName;
use rustls::sign::CertifiedKey;
use rustls::{AlertDescription, CertificateError, ClientConfig, SignatureScheme};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// A server that was verified.
pub(crate) struct Reached {
    pub(crate) stream: TlsStream<Side>,
    pub(crate) record: OpenRecord,
    /// What it chose of what it was offered.
    pub(crate) alpn: Option<Alpn>,
    /// Whether it asked for a certificate of the client.
    pub(crate) certificate_request: Arc<CertificateRequest>,
}

/// Dials a server and shakes hands. A server that cannot be verified gets nothing but the hello.
pub(crate) async fn reach(serving: &Arc<Serving>, to: &Origin, offer: &[Alpn]) -> Result<Reached, Refusal> {
    let refusal = |reason| Refusal::new(&to.name, Some(to.port), reason).protocol(Protocol::Tls);
    let allowed = decide::opening(&serving.policy, &to.name, to.port).map_err(refusal)?;
    let trust =
        serving.trust().map_err(|error| refusal(Reason::UpstreamUntrusted).detail(&error.to_string()))?;
    let permit = serving.permit(allowed, Protocol::Tls).await?;
    let (outside, mut record) = open(&permit, serving).await?;
    let counted = Counted { serving: Arc::clone(serving), counts: Arc::clone(&record.counts) };
    let certificate_request = Arc::new(CertificateRequest::default());
    let mut config = ClientConfig::clone(trust);
    config.alpn_protocols = offer.iter().map(|alpn| alpn.name().to_vec()).collect();
    config.client_auth_cert_resolver = Arc::clone(&certificate_request) as Arc<dyn ResolvesClientCert>;
    let name = ServerName::try_from(to.name.as_str().to_string())
        .map_err(|error| refusal(Reason::UpstreamUntrusted).detail(&error.to_string()))?;
    let handshake = TlsConnector::from(Arc::new(config)).connect(name, Side::outside(outside, counted));
    let shaken = timeout(HANDSHAKE, handshake).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
    match shaken {
        Ok(stream) => {
            let alpn = stream.get_ref().1.alpn_protocol().and_then(Alpn::named);
            Ok(Reached { stream, record, alpn, certificate_request })
        }
        Err(error) => {
            record.ending = Ending::Refused;
            if record.counts.ran_out.load(Ordering::Relaxed) {
                record.ending = Ending::ByteLimit;
                return Err(refusal(Reason::ByteLimit));
            }
            let (reason, detail) = why(&error, &certificate_request);
            Err(refusal(reason).detail(&detail))
        }
    }
}

fn why(error: &io::Error, certificate_request: &CertificateRequest) -> (Reason, String) {
    let tls = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    match tls {
        Some(rustls::Error::InvalidCertificate(why)) => (Reason::UpstreamUntrusted, untrusted(why)),
        Some(rustls::Error::NoCertificatesPresented) => (Reason::UpstreamUntrusted, "it has none".into()),
        Some(rustls::Error::AlertReceived(AlertDescription::NoApplicationProtocol)) => {
            (Reason::DialFailed, NOTHING_IN_COMMON.into())
        }
        _ if certificate_request.was_received() => (Reason::ClientCertificateRequested, error.to_string()),
        _ => (Reason::DialFailed, format!("no TLS with the server: {error}")),
    }
}

/// What is wrong with a certificate, for people.
fn untrusted(why: &CertificateError) -> String {
    match why {
        CertificateError::UnknownIssuer => UNKNOWN_AUTHORITY.into(),
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => "it has expired".into(),
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "it is not valid yet: look at the clocks of both machines".into()
        }
        CertificateError::Revoked => "it was revoked".into(),
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            "it is of another name".into()
        }
        other => other.to_string().chars().take(WORDS).collect(),
    }
}

/// Has no certificate of a client, and notes whether one was wanted. Servers may ask and continue without.
#[derive(Debug, Default)]
pub(crate) struct CertificateRequest(AtomicBool);

impl CertificateRequest {
    pub(crate) fn was_received(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

impl ResolvesClientCert for CertificateRequest {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        self.0.store(true, Ordering::Relaxed);
        None
    }

    fn has_certs(&self) -> bool {
        false
    }
}

/// Longer than any network needs for a few messages.
const HANDSHAKE: Duration = Duration::from_secs(15);
/// Of a library's description; the rest lists names of the certificate.
const WORDS: usize = 160;
