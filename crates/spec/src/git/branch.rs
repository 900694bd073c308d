//! A branch's name.

use serde::Serialize;
use std::fmt;
use std::str::FromStr;

/// The name of a branch, without `refs/heads/`: what git itself accepts (git-check-ref-format(1)).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct BranchName(String);

impl BranchName {
    /// As text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The whole name of its ref.
    pub fn full(&self) -> String {
        format!("{HEADS}{}", self.0)
    }

    /// The branch that a ref's whole name means, if it means one.
    pub fn of_ref(name: &str) -> Option<BranchName> {
        name.strip_prefix(HEADS)?.parse().ok()
    }
}

impl fmt::Display for BranchName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Not a name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{name}` is not the name of a branch: {why}")]
pub struct BranchNameError {
    name: String,
    why: &'static str,
}

impl FromStr for BranchName {
    type Err = BranchNameError;

    fn from_str(text: &str) -> Result<BranchName, BranchNameError> {
        match fault(text) {
            None => Ok(BranchName(text.to_string())),
            Some(why) => Err(BranchNameError { name: text.escape_debug().to_string(), why }),
        }
    }
}

fn fault(name: &str) -> Option<&'static str> {
    if name.is_empty() {
        return Some("it is empty");
    }
    if name.len() > MAX_BRANCH_BYTES {
        return Some("it is too long");
    }
    if name.starts_with('-') {
        return Some("it starts with `-`");
    }
    if name == "HEAD" || name == "@" {
        return Some("it has a meaning of its own");
    }
    if name.contains("..") || name.contains("@{") {
        return Some("it contains `..` or `@{`");
    }
    if name.chars().any(|char| char.is_control() || " ~^:?*[\\\u{7f}".contains(char)) {
        return Some("it contains a space, a control character or one of ~^:?*[\\");
    }
    let bad_part = |part: &str| {
        part.is_empty() || part.starts_with('.') || part.ends_with('.') || part.ends_with(".lock")
    };
    name.split('/')
        .any(bad_part)
        .then_some("a part of it is empty, starts or ends with `.`, or ends with `.lock`")
}

const HEADS: &str = "refs/heads/";
/// A file system's limit on one part; real names are not that long.
const MAX_BRANCH_BYTES: usize = 244;

crate::text::read_as_text!(BranchName);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_git_takes() {
        for name in ["main", "a/b", "a-b", "feature/x.y", "é", "refs/heads/x", "1"] {
            assert_eq!(name.parse::<BranchName>().map(|name| name.to_string()).as_deref(), Ok(name));
        }
    }

    #[test]
    fn names_that_it_does_not() {
        for name in [
            "", "-x", "HEAD", "@", "a..b", "a b", "a\nb", "a~", "a^", "a:b", "a?", "a*", "a[", "a\\b", "/a",
            "a/", "a//b", ".a", "a/.b", "a.", "a.lock", "a.lock/b", "a@{b", "a\u{0}b",
        ] {
            assert!(name.parse::<BranchName>().is_err(), "{name}");
        }
    }

    #[test]
    fn only_heads_are_branches() {
        assert_eq!(BranchName::of_ref("refs/heads/a/b").map(|name| name.to_string()).as_deref(), Some("a/b"));
        for name in ["refs/tags/v1", "refs/heads/", "refs/heads/a..b", "heads/main", "main"] {
            assert_eq!(BranchName::of_ref(name), None, "{name}");
        }
    }
}
