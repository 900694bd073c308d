//! A path of a workspace that no process inside may change.

use serde::Serialize;
use std::fmt;
use std::str::FromStr;

/// A path below a workspace that no process inside may change, whether it is there or not: relative, in its plainest spelling.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct ProtectedPath(String);

impl ProtectedPath {
    /// As text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ProtectedPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Not such a path.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` cannot be protected: write a path below the workspace, without `..`, as in `.github/workflows`"
)]
pub struct ProtectedPathError(String);

impl FromStr for ProtectedPath {
    type Err = ProtectedPathError;

    fn from_str(text: &str) -> Result<ProtectedPath, ProtectedPathError> {
        let refused = || ProtectedPathError(text.escape_debug().to_string());
        if text.starts_with('/') || text.contains('\0') {
            return Err(refused());
        }
        let parts: Vec<&str> = text.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
        if parts.is_empty() || parts.contains(&"..") {
            return Err(refused());
        }
        Ok(ProtectedPath(parts.join("/")))
    }
}

crate::text::read_as_text!(ProtectedPath);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_spelling() {
        for (text, plain) in [(".husky", ".husky"), ("./a//b/", "a/b"), (".git/hooks", ".git/hooks")] {
            assert_eq!(text.parse::<ProtectedPath>().unwrap().as_str(), plain);
        }
        for text in ["", ".", "/etc", "../x", "a/../b", "a\0"] {
            assert!(text.parse::<ProtectedPath>().is_err(), "{text}");
        }
    }
}
