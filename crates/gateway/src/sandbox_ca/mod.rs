//! A sandbox's own CA: it signs for the servers that the gateway speaks for, and is trusted only inside that sandbox. Its
//! key is made here, is never written anywhere, and goes away with the sandbox.

mod leaf;

use crate::tls_interception::Alpn;
use belljar_spec::SandboxId;
use belljar_spec::egress::HostName;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, KeyUsagePurpose};
use rustls::ServerConfig;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;
use time::{Duration, OffsetDateTime};

/// Signs for any name, for one sandbox.
pub struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    pem: String,
    leaves: Mutex<HashMap<(HostName, Option<Alpn>), Leaf>>,
}

/// The server's side of TLS for one name.
#[derive(Clone)]
struct Leaf {
    made: Instant,
    config: Arc<ServerConfig>,
}

/// No certificate could be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no certificate can be made: {0}")]
pub struct AuthorityError(String);

impl Authority {
    /// A new one, with a key of its own.
    pub fn new(id: SandboxId) -> Result<Authority, AuthorityError> {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        params.distinguished_name.push(DnType::CommonName, format!("belljar sandbox {id}"));
        (params.not_before, params.not_after) = validity(YEARS);
        let issuer = KeyPair::generate().and_then(|key| CertifiedIssuer::self_signed(params, key))?;
        Ok(Authority { pem: issuer.pem(), issuer, leaves: Mutex::default() })
    }

    /// What clients inside have to trust.
    pub fn certificate_pem(&self) -> &str {
        &self.pem
    }

    /// How to serve as this name, speaking this; made once, and again before it expires.
    pub(crate) fn server(
        &self,
        name: &HostName,
        alpn: Option<Alpn>,
    ) -> Result<Arc<ServerConfig>, AuthorityError> {
        let mut leaves = self.leaves.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (name.clone(), alpn);
        if let Some(leaf) = leaves.get(&key).filter(|leaf| leaf.made.elapsed() < FRESH) {
            return Ok(Arc::clone(&leaf.config));
        }
        if leaves.len() >= MAX_LEAVES {
            leaves.clear();
        }
        let config = Arc::new(leaf::server(name, alpn, &self.issuer)?);
        leaves.insert(key, Leaf { made: Instant::now(), config: Arc::clone(&config) });
        Ok(config)
    }
}

impl From<rcgen::Error> for AuthorityError {
    fn from(error: rcgen::Error) -> AuthorityError {
        AuthorityError(error.to_string())
    }
}

impl From<rustls::Error> for AuthorityError {
    fn from(error: rustls::Error) -> AuthorityError {
        AuthorityError(error.to_string())
    }
}

/// From a little ago, for clocks that are behind.
fn validity(length: Duration) -> (OffsetDateTime, OffsetDateTime) {
    let now = OffsetDateTime::now_utc();
    (now - Duration::hours(1), now + length)
}

/// Longer than any sandbox lives.
const YEARS: Duration = Duration::days(2 * 365);
/// Leaves are valid for a day; a client that gets one has at least half of it left.
const FRESH: std::time::Duration = std::time::Duration::from_secs(12 * 60 * 60);
/// Few programs speak to more servers than this; one that does makes us sign again.
const MAX_LEAVES: usize = 512;

#[cfg(test)]
mod tests {
    use super::*;
    use rustls::pki_types::pem::PemObject;
    use rustls::pki_types::{CertificateDer, ServerName};
    use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConnection};

    fn authority(byte: u8) -> Authority {
        Authority::new(SandboxId::from_random([byte; 8])).expect("an authority")
    }

    /// Shakes hands in memory; says what was agreed on.
    fn shake(trusts: &Authority, serves: &Authority, name: &str) -> Result<Option<Vec<u8>>, String> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(trusts.certificate_pem().as_bytes()).unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let server_name = ServerName::try_from("a.example").unwrap();
        let mut client = ClientConnection::new(Arc::new(config), server_name).unwrap();
        let config = serves.server(&name.parse().unwrap(), Some(Alpn::Http1)).unwrap();
        let mut server = ServerConnection::new(config).unwrap();
        let describe = |error: rustls::Error| error.to_string();
        for _ in 0..4 {
            let mut bytes = Vec::new();
            client.write_tls(&mut bytes).unwrap();
            server.read_tls(&mut bytes.as_slice()).unwrap();
            server.process_new_packets().map_err(describe)?;
            bytes.clear();
            while server.wants_write() {
                server.write_tls(&mut bytes).unwrap();
            }
            client.read_tls(&mut bytes.as_slice()).unwrap();
            client.process_new_packets().map_err(describe)?;
        }
        Ok(client.alpn_protocol().map(<[u8]>::to_vec))
    }

    #[test]
    fn a_client_that_trusts_the_authority_trusts_its_leaves_and_no_others() {
        let (one, other) = (authority(1), authority(2));
        assert_eq!(shake(&one, &one, "a.example"), Ok(Some(b"http/1.1".to_vec())));
        assert!(shake(&one, &other, "a.example").is_err(), "another sandbox's authority is worthless here");
        assert!(shake(&one, &one, "b.example").is_err(), "a leaf is for one name");
    }

    #[test]
    fn a_leaf_is_made_once_and_no_more_are_kept_than_there_is_room_for() {
        let authority = authority(3);
        let first = authority.server(&"a.example".parse().unwrap(), None).unwrap();
        let again = authority.server(&"a.example".parse().unwrap(), None).unwrap();
        assert!(Arc::ptr_eq(&first, &again));
        let h2 = authority.server(&"a.example".parse().unwrap(), Some(Alpn::Http2)).unwrap();
        assert!(!Arc::ptr_eq(&first, &h2));
        for number in 0..MAX_LEAVES {
            authority.server(&format!("n{number}.example").parse().unwrap(), None).unwrap();
        }
        assert!(authority.leaves.lock().unwrap().len() <= MAX_LEAVES);
    }

    #[test]
    fn a_long_name_has_a_certificate_too() {
        let long = format!("{}.example", ["a"; 60].join(".b"));
        assert!(authority(4).server(&long.parse().unwrap(), None).is_ok());
    }
}
