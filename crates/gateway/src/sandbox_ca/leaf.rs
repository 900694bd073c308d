//! A certificate for one server, and the settings of TLS that use it.

use super::{AuthorityError, validity};
use crate::tls_interception::Alpn;
use belljar_spec::egress::HostName;
use rcgen::{CertificateParams, DnType, ExtendedKeyUsagePurpose, Issuer, KeyPair, KeyUsagePurpose};
use rustls::ServerConfig;
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::server::ServerSessionMemoryCache;
use std::sync::Arc;
use time::Duration;

/// A server of this name, with a new key (ECDSA P-256).
pub(super) fn server(
    name: &HostName,
    alpn: Option<Alpn>,
    issuer: &Issuer<'static, KeyPair>,
) -> Result<ServerConfig, AuthorityError> {
    let mut params = CertificateParams::new(vec![name.to_string()])?;
    // What a certificate is for stands beside; a common name may not be longer.
    let common = if name.as_str().len() <= COMMON_NAME { name.as_str() } else { "belljar" };
    params.distinguished_name.push(DnType::CommonName, common);
    params.use_authority_key_identifier_extension = true;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    (params.not_before, params.not_after) = validity(DAY);
    let key = KeyPair::generate()?;
    let certificate = params.signed_by(&key, issuer)?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(
            vec![certificate.der().clone()],
            PrivatePkcs8KeyDer::from(key.serialize_der()).into(),
        )?;
    // Sessions are taken up again by few connections at once; the library would keep as many for each name.
    config.session_storage = ServerSessionMemoryCache::new(SESSIONS);
    config.alpn_protocols = alpn.map(|alpn| alpn.name().to_vec()).into_iter().collect();
    Ok(config)
}

const DAY: Duration = Duration::hours(24);
const SESSIONS: usize = 16;
/// RFC 5280, appendix A: ub-common-name.
const COMMON_NAME: usize = 64;
