//! What a secret is called.

use crate::egress::Printable;
use serde::Serialize;
use std::fmt;
use std::str::FromStr;

/// The name of a secret or of a credential. Letters, digits, `-`, `_` and `.`; it can stand in a file's name, on a
/// command line and in a record.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct SecretName(String);

impl SecretName {
    /// As text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Not a name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is not the name of a secret: use up to {MAX} letters, digits, `-`, `_` and `.`, beginning with a letter or a digit"
)]
pub struct SecretNameError(Printable);

impl FromStr for SecretName {
    type Err = SecretNameError;

    fn from_str(text: &str) -> Result<SecretName, SecretNameError> {
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
        let begins = text.bytes().next().is_some_and(|first| first.is_ascii_alphanumeric());
        if begins && text.len() <= MAX && text.bytes().all(fits) {
            return Ok(SecretName(text.to_string()));
        }
        Err(SecretNameError(text.into()))
    }
}

impl fmt::Display for SecretName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

crate::text::read_as_text!(SecretName);

const MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_a_word() {
        for name in ["github", "ANTHROPIC_API_KEY", "a", "7", "my.key-2"] {
            assert_eq!(name.parse::<SecretName>().map(|name| name.to_string()), Ok(name.to_string()));
        }
        for text in ["", ".", "-x", "_x", "a b", "a/b", "a\n", "ä", "a=b", &"x".repeat(65)] {
            assert!(text.parse::<SecretName>().is_err(), "{text:?}");
        }
    }
}
