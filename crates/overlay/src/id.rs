//! Layer ids.

use belljar_sys::rustix::rand::{GetRandomFlags, getrandom};
use serde::{Serialize, Serializer};
use std::fmt;

/// Sixteen hexadecimal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LayerId(u64);

impl LayerId {
    /// Makes a new id.
    pub(super) fn random() -> std::io::Result<LayerId> {
        let mut bytes = [0; 8];
        getrandom(&mut bytes, GetRandomFlags::empty())?;
        Ok(LayerId(u64::from_be_bytes(bytes)))
    }

    /// Parses the exact form.
    pub fn parse(text: &str) -> Option<LayerId> {
        let plain = text.len() == 16 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        plain.then(|| u64::from_str_radix(text, 16).ok().map(LayerId))?
    }
}

impl fmt::Display for LayerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl Serialize for LayerId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}
