//! SHA-256, and what has it.

use aws_lc_rs::digest::{Context, SHA256};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::io::{self, Read, Write};
use std::str::FromStr;

/// `sha256:` and 64 digits. Other algorithms are refused: they are not in use, and one is easier to trust.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Digest(String);

/// Not a digest.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no digest: `sha256:` and 64 digits in lower case")]
pub struct DigestError(String);

impl Digest {
    /// Of these bytes.
    pub fn of(bytes: &[u8]) -> Digest {
        let mut hasher = Hasher::new();
        hasher.update(bytes);
        hasher.finish()
    }

    /// The digits alone, which are also a good name for a file.
    pub fn hex(&self) -> &str {
        &self.0["sha256:".len()..]
    }
}

impl FromStr for Digest {
    type Err = DigestError;

    fn from_str(text: &str) -> Result<Digest, DigestError> {
        let digits = text.strip_prefix("sha256:").unwrap_or_default();
        if digits.len() == 64 && digits.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')) {
            Ok(Digest(text.to_string()))
        } else {
            Err(DigestError(text.chars().take(80).collect()))
        }
    }
}

impl TryFrom<String> for Digest {
    type Error = DigestError;

    fn try_from(text: String) -> Result<Digest, DigestError> {
        text.parse()
    }
}

impl From<Digest> for String {
    fn from(digest: Digest) -> String {
        digest.0
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Makes a digest of what goes by.
pub(crate) struct Hasher(Context);

impl Hasher {
    pub(crate) fn new() -> Hasher {
        Hasher(Context::new(&SHA256))
    }

    pub(crate) fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    pub(crate) fn finish(self) -> Digest {
        let mut text = String::from("sha256:");
        for byte in self.0.finish().as_ref() {
            // A string can always be written to.
            let _ = fmt::Write::write_fmt(&mut text, format_args!("{byte:02x}"));
        }
        Digest(text)
    }

    /// Of all that a reader gives.
    pub(crate) fn of_reader(mut reader: impl Read) -> io::Result<(Digest, u64)> {
        let mut hasher = Hasher::new();
        let length = io::copy(&mut reader, &mut hasher)?;
        Ok((hasher.finish(), length))
    }
}

impl Write for Hasher {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_has_one_spelling() {
        let empty = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(Digest::of(b"").to_string(), empty);
        assert_eq!(empty.parse::<Digest>().unwrap().hex().len(), 64);
        for text in ["", "sha256:", &empty.to_uppercase(), &empty[7..], "sha512:00", &format!("{empty}0")] {
            assert!(text.parse::<Digest>().is_err(), "{text}");
        }
        assert!(
            "sha256:../../../../../../../../../../../../../../../../../etc/passwd01"
                .parse::<Digest>()
                .is_err()
        );
    }
}
