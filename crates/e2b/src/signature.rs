//! Signed addresses of files: `v1_` and the SHA-256 of path, operation, user, access token and the time until which it counts.

use crate::fault::Fault;
use crate::token::same;
use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use sha2::{Digest, Sha256};

/// What a signature is asked to allow.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Signed<'r> {
    pub(crate) path: &'r str,
    /// `read` or `write`.
    pub(crate) operation: &'static str,
    /// As it stands in the address; empty where none does.
    pub(crate) user: &'r str,
    pub(crate) signature: &'r str,
    /// Seconds since 1970, as text.
    pub(crate) expires: Option<&'r str>,
}

impl Signed<'_> {
    /// Whether it was made with this token, whatever the time is.
    pub(crate) fn is_by(&self, token: &str) -> bool {
        let mut text = format!("{}:{}:{}:{token}", self.path, self.operation, self.user);
        if let Some(expires) = self.expires {
            text.push(':');
            text.push_str(expires);
        }
        let made = format!("v1_{}", STANDARD_NO_PAD.encode(Sha256::digest(text)));
        same(&made, self.signature)
    }

    pub(crate) fn judge(&self, token: &str, now_s: i64) -> Result<(), Fault> {
        if !self.is_by(token) {
            return Err(Fault::unauthorized("invalid signature"));
        }
        match self.expires.map(str::parse::<i64>) {
            None => Ok(()),
            Some(Ok(expires)) if now_s <= expires => Ok(()),
            Some(_) => Err(Fault::unauthorized("signature is already expired")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(path: &str, operation: &str, user: &str, token: &str, expires: Option<&str>) -> String {
        let mut text = [path, operation, user, token].join(":");
        text.extend(expires.map(|expires| format!(":{expires}")));
        format!("v1_{}", STANDARD_NO_PAD.encode(Sha256::digest(text)))
    }

    #[test]
    fn a_signature_allows_what_was_signed_and_nothing_else() {
        let signature = made("/a", "read", "user", "t", Some("100"));
        let signed = Signed {
            path: "/a",
            operation: "read",
            user: "user",
            signature: &signature,
            expires: Some("100"),
        };
        assert_eq!(signed.judge("t", 100), Ok(()));
        let invalid = Fault::unauthorized("invalid signature");
        assert_eq!(signed.judge("t", 101), Err(Fault::unauthorized("signature is already expired")));
        assert_eq!(signed.judge("u", 101), Err(invalid.clone()), "the signature is judged first");
        for changed in [
            Signed { path: "/b", ..signed },
            Signed { operation: "write", ..signed },
            Signed { user: "", ..signed },
            Signed { expires: Some("200"), ..signed },
            Signed { expires: None, ..signed },
            Signed { signature: "", ..signed },
        ] {
            assert_eq!(changed.judge("t", 0), Err(invalid.clone()), "{changed:?}");
        }
        let forever = made("/a", "write", "", "t", None);
        let signed = Signed { operation: "write", user: "", signature: &forever, expires: None, ..signed };
        assert_eq!(signed.judge("t", i64::MAX), Ok(()));
    }
}
