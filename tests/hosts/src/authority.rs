//! A certificate authority of a test.

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, KeyUsagePurpose};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};

/// Signs for any name.
pub struct Authority(CertifiedIssuer<'static, KeyPair>);

/// A certificate and its key.
pub struct Leaf {
    pub(crate) chain: Vec<CertificateDer<'static>>,
    pub(crate) key: PrivateKeyDer<'static>,
    certificate_pem: String,
    key_pem: String,
}

impl Authority {
    /// A new one, which no client trusts yet.
    #[expect(clippy::new_without_default, reason = "no two are the same")]
    pub fn new() -> Authority {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        params.distinguished_name.push(DnType::CommonName, "belljar test authority");
        let key = KeyPair::generate().expect("a key is made");
        Authority(CertifiedIssuer::self_signed(params, key).expect("an authority signs itself"))
    }

    /// What a client has to trust.
    pub fn pem(&self) -> String {
        self.0.pem()
    }

    /// The same, as a library wants it.
    pub(crate) fn certificate(&self) -> CertificateDer<'static> {
        self.0.der().clone()
    }

    /// A certificate that was valid, until a while ago.
    pub fn expired_leaf<const N: usize>(&self, names: [&str; N]) -> Leaf {
        let now = time::OffsetDateTime::now_utc();
        self.leaf_of(names, |params| {
            params.not_before = now - time::Duration::days(10);
            params.not_after = now - time::Duration::days(1);
        })
    }

    /// A certificate for these names; one that is an address is for that address.
    pub fn leaf<const N: usize>(&self, names: [&str; N]) -> Leaf {
        self.leaf_of(names, |_| {})
    }

    fn leaf_of<const N: usize>(&self, names: [&str; N], change: impl FnOnce(&mut CertificateParams)) -> Leaf {
        let mut params =
            CertificateParams::new(names.map(String::from)).expect("names that a certificate can have");
        params.use_authority_key_identifier_extension = true;
        params.distinguished_name.push(DnType::CommonName, names[0]);
        change(&mut params);
        let key = KeyPair::generate().expect("a key is made");
        let certificate = params.signed_by(&key, &self.0).expect("the authority signs");
        Leaf {
            certificate_pem: certificate.pem(),
            key_pem: key.serialize_pem(),
            chain: vec![certificate.der().clone()],
            key: PrivatePkcs8KeyDer::from(key.serialize_der()).into(),
        }
    }
}

impl Leaf {
    /// The certificate, for a server that reads files.
    pub fn certificate_pem(&self) -> &str {
        &self.certificate_pem
    }

    /// Its key.
    pub fn key_pem(&self) -> &str {
        &self.key_pem
    }
}
