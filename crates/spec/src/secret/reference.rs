//! Where the value of a secret is kept.

use super::{SecretName, SecretNameError};
use crate::egress::Printable;
use crate::{EnvName, EnvNameError};
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// `secret:NAME`, `env:NAME` or `file:/PATH`: in the vault, in the environment of the host, in a file of the host.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum SecretRef {
    Vault(SecretName),
    Env(EnvName),
    File(PathBuf),
}

/// Not a reference. What was written is not repeated: it may be the secret itself.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SecretRefError {
    #[error("this is not a reference to a secret: write `secret:NAME`, `env:NAME` or `file:/PATH`")]
    UnknownKind,
    #[error(transparent)]
    Name(#[from] SecretNameError),
    #[error(transparent)]
    Env(#[from] EnvNameError),
    #[error("`file:{0}` is not an absolute path: write it from the root, as in `file:/run/secrets/key`")]
    RelativePath(Printable),
}

impl FromStr for SecretRef {
    type Err = SecretRefError;

    fn from_str(text: &str) -> Result<SecretRef, SecretRefError> {
        match text.split_once(':') {
            Some(("secret", name)) => Ok(SecretRef::Vault(name.parse()?)),
            Some(("env", name)) => Ok(SecretRef::Env(name.parse()?)),
            Some(("file", path)) if Path::new(path).is_absolute() => Ok(SecretRef::File(path.into())),
            Some(("file", path)) => Err(SecretRefError::RelativePath(path.into())),
            _ => Err(SecretRefError::UnknownKind),
        }
    }
}

impl fmt::Display for SecretRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SecretRef::Vault(name) => write!(f, "secret:{name}"),
            SecretRef::Env(name) => write!(f, "env:{name}"),
            SecretRef::File(path) => write!(f, "file:{}", Printable::from(path.to_string_lossy().as_ref())),
        }
    }
}

crate::text::serde_as_text!(SecretRef);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reference_says_where() {
        for text in ["secret:github", "env:GITHUB_TOKEN", "file:/run/secrets/key"] {
            assert_eq!(
                text.parse::<SecretRef>().map(|reference| reference.to_string()),
                Ok(text.to_string())
            );
        }
    }

    #[test]
    fn what_may_be_the_secret_itself_is_not_repeated() {
        let error = "ghp_0123456789".parse::<SecretRef>().expect_err("no reference").to_string();
        assert!(!error.contains("0123456789"), "{error}");
        for text in ["", "secret:", "secret:a/b", "env:", "env:A=B", "file:key", "vault:x"] {
            assert!(text.parse::<SecretRef>().is_err(), "{text:?}");
        }
    }
}
