//! What of a workspace a sandbox does not see, or sees with placeholders.

use crate::glob;
use serde::Serialize;
use std::fmt;
use std::str::FromStr;

/// A file or folder of a workspace, where `*` stands for any letters of a name. Without a slash it is a name at any depth (`.env`,
/// `*.pem`), with one a path from the top of the workspace (`config/keys`, `/.env`).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(into = "String")]
pub struct HidePattern {
    parts: Vec<String>,
    /// It is a path, and not only a name.
    is_path: bool,
}

impl HidePattern {
    /// Whether a path is meant, by its names from the top of the workspace.
    pub fn matches(&self, path: &[&str]) -> bool {
        let path = match self.is_path {
            true => path,
            false => &path[path.len().saturating_sub(1)..],
        };
        path.len() == self.parts.len()
            && self.parts.iter().zip(path).all(|(pattern, name)| glob::matches(pattern, name))
    }
}

impl fmt::Display for HidePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.parts.join("/");
        match self.is_path && self.parts.len() == 1 {
            true => write!(f, "/{path}"),
            false => f.write_str(&path),
        }
    }
}

impl From<HidePattern> for String {
    fn from(pattern: HidePattern) -> String {
        pattern.to_string()
    }
}

/// Not such a pattern.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` names no files of a workspace: write a name (`.env`, `*.pem`) or a path from the top of the workspace (`config/keys`), without `..`"
)]
pub struct HidePatternError(String);

impl FromStr for HidePattern {
    type Err = HidePatternError;

    fn from_str(text: &str) -> Result<HidePattern, HidePatternError> {
        let refused = || HidePatternError(text.escape_debug().to_string());
        let parts: Vec<&str> = text.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
        let is_everything = |part: &&str| part.bytes().all(|byte| byte == b'*');
        if parts.is_empty() || parts.contains(&"..") || parts[0] == ".git" || text.contains('\0') {
            return Err(refused());
        }
        // All of a workspace is no workspace.
        if parts.len() == 1 && is_everything(&parts[0]) {
            return Err(refused());
        }
        // A slash at the end alone says that it is a folder.
        let is_path = text.trim_end_matches('/').contains('/');
        Ok(HidePattern { parts: parts.into_iter().map(String::from).collect(), is_path })
    }
}

crate::text::read_as_text!(HidePattern);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_meant_at_any_depth_and_a_path_from_the_top() {
        for (pattern, path, expected) in [
            (".env", ".env", true),
            (".env", "web/api/.env", true),
            (".env", ".env.local", false),
            (".env.*", "web/.env.local", true),
            ("*.pem", "a.pem", true),
            ("keys/", "a/keys", true),
            ("/.env", ".env", true),
            ("./.env", ".env", true),
            ("/.env", "web/.env", false),
            ("config/*.key", "config/a.key", true),
            ("config/*.key", "config/a/b.key", false),
            ("config/*.key", "web/config/a.key", false),
        ] {
            let names: Vec<&str> = path.split('/').collect();
            assert_eq!(pattern.parse::<HidePattern>().unwrap().matches(&names), expected, "{pattern} {path}");
        }
        for text in ["", "/", ".", "..", "a/../b", "*", "**", ".git", ".git/config", "a\0"] {
            assert!(text.parse::<HidePattern>().is_err(), "{text}");
        }
        for text in [".env", "/.env", "a/b", "*.pem"] {
            assert_eq!(text.parse::<HidePattern>().unwrap().to_string(), text);
        }
    }
}
