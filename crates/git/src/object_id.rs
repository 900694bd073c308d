//! The name of an object.

use std::fmt;
use std::str::FromStr;

/// The name of an object: a hash, in lower case. All zeros mean that there is no object.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectId(String);

/// The hash function of a repository.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ObjectFormat {
    Sha1,
    Sha256,
}

impl ObjectId {
    /// The id that stands for no object.
    pub fn zero(format: ObjectFormat) -> ObjectId {
        ObjectId("0".repeat(format.digits()))
    }

    /// Parses hex digits. Upper case is accepted, as by git.
    pub fn parse(hex: &[u8]) -> Result<ObjectId, NotAnObjectId> {
        let has_right_length =
            [ObjectFormat::Sha1, ObjectFormat::Sha256].iter().any(|format| format.digits() == hex.len());
        if !has_right_length || !hex.iter().all(u8::is_ascii_hexdigit) {
            return Err(NotAnObjectId);
        }
        Ok(ObjectId(String::from_utf8_lossy(hex).to_ascii_lowercase()))
    }

    /// As hex digits.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether it stands for no object.
    pub fn is_zero(&self) -> bool {
        self.0.bytes().all(|digit| digit == b'0')
    }

    /// Its hash function.
    pub fn format(&self) -> ObjectFormat {
        if self.0.len() == ObjectFormat::Sha1.digits() { ObjectFormat::Sha1 } else { ObjectFormat::Sha256 }
    }
}

impl ObjectFormat {
    /// The number of hex digits of an id.
    pub fn digits(self) -> usize {
        match self {
            ObjectFormat::Sha1 => 40,
            ObjectFormat::Sha256 => 64,
        }
    }

    /// The name in `git init --object-format` and the capability `object-format`.
    pub fn name(self) -> &'static str {
        match self {
            ObjectFormat::Sha1 => "sha1",
            ObjectFormat::Sha256 => "sha256",
        }
    }
}

/// Not 40 or 64 hex digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not the name of an object")]
pub struct NotAnObjectId;

impl FromStr for ObjectId {
    type Err = NotAnObjectId;

    fn from_str(text: &str) -> Result<ObjectId, NotAnObjectId> {
        ObjectId::parse(text.as_bytes())
    }
}

impl fmt::Display for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_hashes_are_names() {
        for (text, is_one) in [
            ("da39a3ee5e6b4b0d3255bfef95601890afd80709".to_string(), true),
            ("DA39A3EE5E6B4B0D3255BFEF95601890AFD80709".to_string(), true),
            ("a".repeat(64), true),
            ("a".repeat(39), false),
            ("a".repeat(41), false),
            ("g".repeat(40), false),
            (String::new(), false),
            (format!("{} ", "a".repeat(39)), false),
        ] {
            assert_eq!(text.parse::<ObjectId>().is_ok(), is_one, "{text}");
        }
        assert!(ObjectId::zero(ObjectFormat::Sha256).is_zero());
        assert_eq!("A".repeat(40).parse::<ObjectId>(), "a".repeat(40).parse());
    }
}
