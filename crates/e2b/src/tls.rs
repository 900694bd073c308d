//! TLS for the names of the domain: with a certificate that the operator has, or with one of a CA of our own. The CA is made once and
//! kept, so that clients trust it once; what it signs is made anew with each daemon.

use belljar_spec::{ErrorCode, SandboxError};
use belljar_state::{Survives, write_atomic};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use time::{Duration, OffsetDateTime};
use tokio_rustls::TlsAcceptor;

/// A certificate that the operator has: for the domain and for every name directly below it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Certificate {
    /// The chain, in PEM.
    pub chain: PathBuf,
    pub key: PathBuf,
}

/// What speaks TLS with clients.
pub(crate) fn acceptor(
    directory: &Path,
    domain: &str,
    given: Option<&Certificate>,
) -> Result<TlsAcceptor, SandboxError> {
    let (chain, key) = match given {
        Some(given) => read(given)?,
        None => signed(directory, domain)?,
    };
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .and_then(|config| config.with_no_client_auth().with_single_cert(chain, key));
    let mut config = config.map_err(|error| failed(format!("the certificate cannot be used: {error}")))?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

type Identity = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

fn read(given: &Certificate) -> Result<Identity, SandboxError> {
    let unreadable = |path: &Path, error: &dyn std::fmt::Display| {
        ErrorCode::PathInvalid.error(format!("{}: {error}", path.display())).hint("name a file in PEM")
    };
    let chain = CertificateDer::pem_file_iter(&given.chain).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let chain = chain.map_err(|error| unreadable(&given.chain, &error))?;
    let key = PrivateKeyDer::from_pem_file(&given.key).map_err(|error| unreadable(&given.key, &error))?;
    Ok((chain, key))
}

/// The certificate of our own CA in this directory, in PEM; made, if there is none.
pub fn certificate_authority(directory: &Path) -> Result<PathBuf, SandboxError> {
    let path = directory.join(CA);
    if !path.exists() {
        let key = key(directory)?;
        let certificate = authority_params().self_signed(&key).map_err(unsigned)?;
        write(&path, &certificate.pem())?;
    }
    Ok(path)
}

/// A certificate for a domain, signed by our own CA.
fn signed(directory: &Path, domain: &str) -> Result<Identity, SandboxError> {
    certificate_authority(directory)?;
    // Clients know the CA by its name and key; when it was made is in the file that they trust.
    let issuer = Issuer::new(authority_params(), key(directory)?);
    let mut params = CertificateParams::new([domain.to_string(), format!("*.{domain}")]).map_err(unsigned)?;
    params.distinguished_name.push(DnType::CommonName, domain);
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.use_authority_key_identifier_extension = true;
    (params.not_before, params.not_after) = validity(Duration::days(397));
    let own = KeyPair::generate().map_err(unsigned)?;
    let leaf = params.signed_by(&own, &issuer).map_err(unsigned)?;
    let key = PrivateKeyDer::try_from(own.serialize_der()).map_err(|error| failed(error.to_string()))?;
    Ok((vec![leaf.der().clone()], key))
}

fn authority_params() -> CertificateParams {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params.distinguished_name.push(DnType::CommonName, "belljar E2B");
    (params.not_before, params.not_after) = validity(Duration::days(10 * 365));
    params
}

/// The key of the CA.
fn key(directory: &Path) -> Result<KeyPair, SandboxError> {
    let path = directory.join(CA_KEY);
    match fs::read_to_string(&path) {
        Ok(text) => KeyPair::from_pem(&text).map_err(|error| {
            let message = format!("{} is not a key: {error}", path.display());
            failed(message).hint("move it away together with the CA beside it: both are made anew")
        }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let key = KeyPair::generate().map_err(unsigned)?;
            write(&path, &key.serialize_pem())?;
            // An older CA is another key's.
            match fs::remove_file(directory.join(CA)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed(error.to_string())),
                _ => Ok(key),
            }
        }
        Err(error) => Err(failed(format!("{}: {error}", path.display()))),
    }
}

fn write(path: &Path, text: &str) -> Result<(), SandboxError> {
    let written = write_atomic(path, text.as_bytes(), Survives::PowerCut);
    written.map_err(|error| failed(format!("cannot write {}: {error}", path.display())))
}

fn unsigned(error: rcgen::Error) -> SandboxError {
    failed(format!("no certificate can be made: {error}"))
}

fn failed(message: String) -> SandboxError {
    ErrorCode::StateFailed.error(message)
}

/// From a little ago, for clocks that are behind.
fn validity(length: Duration) -> (OffsetDateTime, OffsetDateTime) {
    let now = OffsetDateTime::now_utc();
    (now - Duration::hours(1), now + length)
}

const CA: &str = "ca.pem";
const CA_KEY: &str = "ca.key";

#[cfg(test)]
mod tests {
    use super::*;
    use rustls::pki_types::ServerName;
    use rustls::{ClientConfig, RootCertStore};
    use tokio_rustls::TlsConnector;

    async fn name_is_trusted(directory: &Path, name: &'static str) -> bool {
        let mut roots = RootCertStore::empty();
        let ca = certificate_authority(directory).unwrap();
        roots.add(CertificateDer::from_pem_file(ca).unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config =
            ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let config = config.with_root_certificates(roots).with_no_client_auth();
        let (ours, theirs) = tokio::io::duplex(1 << 16);
        let accepting = acceptor(directory, "bell.test", None).unwrap();
        tokio::spawn(async move { accepting.accept(theirs).await.map(drop) });
        TlsConnector::from(Arc::new(config)).connect(ServerName::try_from(name).unwrap(), ours).await.is_ok()
    }

    #[tokio::test]
    async fn who_trusts_the_ca_once_trusts_every_later_daemon_for_its_names_alone() {
        let folder = tempfile::tempdir().unwrap();
        let ca = fs::read(certificate_authority(folder.path()).unwrap()).unwrap();
        for name in ["api.bell.test", "49983-abc.bell.test", "bell.test"] {
            assert!(name_is_trusted(folder.path(), name).await, "{name}");
        }
        for name in ["bell.example", "a.b.bell.test"] {
            assert!(!name_is_trusted(folder.path(), name).await, "{name}");
        }
        assert_eq!(fs::read(certificate_authority(folder.path()).unwrap()).unwrap(), ca);
        let mode = std::os::unix::fs::MetadataExt::mode(&fs::metadata(folder.path().join(CA_KEY)).unwrap());
        assert_eq!(mode & 0o777, 0o600);
    }
}
