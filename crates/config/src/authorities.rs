//! Additional CAs for servers: PEM files, read with the configuration.

use crate::fault::plain;
use belljar_gateway::check_authorities;
use std::fs;
use std::path::{Path, PathBuf};

/// A file with certificates to trust.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuthorityFile {
    pub path: PathBuf,
    /// Whether all of them are valid CA certificates.
    pub pem: Vec<u8>,
}

impl AuthorityFile {
    pub(crate) fn read(path: &str) -> Result<AuthorityFile, String> {
        let shown = plain(path);
        if !Path::new(path).is_absolute() {
            return Err(format!("`{shown}` is not a whole path: begin with `/`"));
        }
        let size = fs::metadata(path).map_err(|error| format!("`{shown}` cannot be read: {error}"))?.len();
        if size > MAX {
            return Err(format!("`{shown}` is larger than a file of certificates: at most {MAX} bytes"));
        }
        let pem = fs::read(path).map_err(|error| format!("`{shown}` cannot be read: {error}"))?;
        match check_authorities(&pem) {
            Ok(0) => Err(format!("`{shown}` holds no certificate: write a file of PEM")),
            Ok(_) => Ok(AuthorityFile { path: path.into(), pem }),
            Err(why) => Err(format!("`{shown}`: {why}")),
        }
    }
}

/// Four times the size of all public CAs.
const MAX: u64 = 1024 * 1024;
