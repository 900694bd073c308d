//! Tokens of sandboxes. Each follows from a key of this state directory, the sandbox's id and what the token is for: none is kept, and
//! each is the same after a restart. Who has one learns nothing of another.

use aws_lc_rs::hmac;
use data_encoding::HEXLOWER;
use std::fs;
use std::io;
use std::path::Path;

/// What tokens follow from.
pub(crate) struct TokenKey(hmac::Key);

impl TokenKey {
    /// The one in this directory; made, if there is none.
    pub(crate) fn open(directory: &Path) -> io::Result<TokenKey> {
        let path = directory.join("token.key");
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let bytes = random::<KEY_BYTES>()?.to_vec();
                belljar_state::write_atomic(&path, &bytes, belljar_state::Survives::PowerCut)?;
                bytes
            }
            Err(error) => return Err(error),
        };
        if bytes.len() != KEY_BYTES {
            let message =
                format!("{} is damaged: move it away, and every token is a new one", path.display());
            return Err(io::Error::new(io::ErrorKind::InvalidData, message));
        }
        Ok(TokenKey(hmac::Key::new(hmac::HMAC_SHA256, &bytes)))
    }

    /// What opens the files and commands of a sandbox.
    pub(crate) fn access(&self, sandbox: &str) -> String {
        self.derive("access", sandbox)
    }

    /// What opens the ports of a sandbox that is not public.
    pub(crate) fn traffic(&self, sandbox: &str) -> String {
        self.derive("traffic", sandbox)
    }

    /// What lets files of a template be uploaded until a time, in seconds.
    pub(crate) fn upload(&self, template: &str, files: &str, until_s: i64) -> String {
        self.derive("upload", &format!("{template}.{files}.{until_s}"))
    }

    fn derive(&self, purpose: &str, sandbox: &str) -> String {
        // An id has no colon.
        let tag = hmac::sign(&self.0, format!("{purpose}:{sandbox}").as_bytes());
        HEXLOWER.encode(tag.as_ref())
    }
}

/// In a time that does not depend on where they differ.
pub(crate) fn same(a: &str, b: &str) -> bool {
    aws_lc_rs::constant_time::verify_slices_are_equal(a.as_bytes(), b.as_bytes()).is_ok()
}

pub(crate) fn random<const BYTES: usize>() -> io::Result<[u8; BYTES]> {
    let mut bytes = [0; BYTES];
    aws_lc_rs::rand::fill(&mut bytes).map_err(|_| io::Error::other("the kernel gives no random bytes"))?;
    Ok(bytes)
}

const KEY_BYTES: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_the_same_after_a_restart_and_no_other_sandboxes() {
        let folder = tempfile::tempdir().unwrap();
        let (one, other) = (TokenKey::open(folder.path()).unwrap(), TokenKey::open(folder.path()).unwrap());
        assert_eq!(one.access("a"), other.access("a"));
        assert_ne!(one.access("a"), one.access("b"));
        assert_ne!(one.access("a"), one.traffic("a"));
        assert!(same(&one.access("a"), &other.access("a")) && !same(&one.access("a"), &one.access("b")));
        let elsewhere = TokenKey::open(tempfile::tempdir().unwrap().path()).unwrap();
        assert_ne!(one.access("a"), elsewhere.access("a"));
        fs::write(folder.path().join("token.key"), b"short").unwrap();
        assert!(TokenKey::open(folder.path()).is_err());
    }
}
