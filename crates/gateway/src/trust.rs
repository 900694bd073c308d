//! The CAs that the host trusts when it speaks TLS to a server: the system's, and those that were named.

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use std::sync::{Arc, OnceLock};

/// A client's side of TLS. The system's trust is read once a process; `more` is PEM.
pub(crate) fn client(more: &[u8]) -> Result<ClientConfig, TrustError> {
    let mut roots = RootCertStore::clone(system());
    for certificate in CertificateDer::pem_slice_iter(more) {
        let added = certificate
            .map_err(|error| error.to_string())
            .and_then(|certificate| roots.add(certificate).map_err(|error| error.to_string()));
        added.map_err(TrustError::NoCertificate)?;
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| TrustError::Setup(error.to_string()))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(config)
}

/// How many certificates there are in some PEM; says what is wrong with one that cannot be trusted.
pub fn check_authorities(pem: &[u8]) -> Result<usize, String> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem) {
        let certificate = certificate.map_err(|error| error.to_string())?;
        roots.add(certificate).map_err(|error| error.to_string())?;
    }
    Ok(roots.len())
}

/// No trust could be made of what was given.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TrustError {
    #[error("a certificate to trust is none: {0}")]
    NoCertificate(String),
    #[error("TLS cannot be set up: {0}")]
    Setup(String),
}

fn system() -> &'static Arc<RootCertStore> {
    static SYSTEM: OnceLock<Arc<RootCertStore>> = OnceLock::new();
    SYSTEM.get_or_init(|| {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        Arc::new(roots)
    })
}
