//! CAs to trust besides the system's: where registries have certificates of a private CA.

use belljar_spec::{ErrorCode, SandboxError};
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// Certificates that can be trusted, as PEM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Authorities {
    pem: String,
    certificates: Vec<CertificateDer<'static>>,
}

impl Authorities {
    /// Those of a file.
    pub fn read(path: &Path) -> Result<Authorities, SandboxError> {
        let no = |why: String| {
            ErrorCode::RequestValue
                .error(format!("cannot trust `{}`: {why}", path.display()))
                .hint("name a file with certificates of authorities, as PEM")
        };
        let mut pem = String::new();
        let file = File::open(path).map_err(|error| no(error.to_string()))?;
        file.take(MAX_AUTHORITIES_BYTES).read_to_string(&mut pem).map_err(|error| no(error.to_string()))?;
        Authorities::parse(pem).map_err(no)
    }

    fn parse(pem: String) -> Result<Authorities, String> {
        let certificates = CertificateDer::pem_slice_iter(pem.as_bytes()).collect::<Result<Vec<_>, _>>();
        let certificates = certificates.map_err(|error| error.to_string())?;
        let authorities = Authorities { pem, certificates };
        match authorities.add_to(&mut RootCertStore::empty()) {
            Ok(0) => Err("there is no certificate in it".to_string()),
            Ok(_) => Ok(authorities),
            Err(error) => Err(error.to_string()),
        }
    }

    pub(super) fn pem(&self) -> &str {
        &self.pem
    }

    /// Says how many there are.
    pub(super) fn add_to(&self, roots: &mut RootCertStore) -> Result<usize, rustls::Error> {
        for certificate in &self.certificates {
            roots.add(certificate.clone())?;
        }
        Ok(self.certificates.len())
    }
}

/// All that a system trusts has a quarter of that.
const MAX_AUTHORITIES_BYTES: u64 = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_certificate_is_not_trusted() {
        let broken = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        for pem in ["", "text", broken] {
            assert!(Authorities::parse(pem.to_string()).is_err(), "{pem}");
        }
        assert_eq!(Authorities::read(Path::new("/nowhere")).unwrap_err().code, ErrorCode::RequestValue);
    }
}
