//! A sandbox's name.

use serde::{Serialize, Serializer};
use std::fmt;

/// Sixteen hexadecimal digits, made by the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SandboxId(u64);

impl SandboxId {
    /// From random bytes.
    pub fn from_random(bytes: [u8; 8]) -> SandboxId {
        SandboxId(u64::from_be_bytes(bytes))
    }

    /// Exactly as it is written, so that one sandbox has one name: no sign, no capitals, no missing zeros.
    pub fn parse(text: &str) -> Option<SandboxId> {
        let digits = text.len() == 16 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        digits.then(|| u64::from_str_radix(text, 16).ok().map(SandboxId)).flatten()
    }

    /// As a number, to derive other numbers from.
    pub fn as_u64(self) -> u64 {
        self.0
    }
}

impl fmt::Display for SandboxId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl Serialize for SandboxId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}
