//! The whole name of a ref.

use belljar_spec::git::BranchName;
use std::fmt;

/// The whole name of a ref, as git accepts it in a push: below `refs/`, every part well formed.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RefName(String);

impl RefName {
    /// Parses a name from the wire. git accepts any bytes; a policy is text, so a name has to be valid UTF-8.
    pub fn parse(bytes: &[u8]) -> Result<RefName, NotARefName> {
        let text = std::str::from_utf8(bytes).map_err(|_| NotARefName)?;
        let below = text.strip_prefix("refs/").ok_or(NotARefName)?;
        // `refs/stash` is a ref too. The rules for branch names apply to all refs.
        if below.parse::<BranchName>().is_err() {
            return Err(NotARefName);
        }
        Ok(RefName(text.to_string()))
    }

    /// As text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The branch, if it is one.
    pub fn branch(&self) -> Option<BranchName> {
        BranchName::of_ref(&self.0)
    }

    /// The tag, if it is one.
    pub fn tag(&self) -> Option<&str> {
        self.0.strip_prefix("refs/tags/")
    }
}

impl fmt::Display for RefName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Not the name of a ref.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not the name of a ref")]
pub struct NotARefName;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_whole_and_well_formed() {
        for (name, is_one) in [
            (&b"refs/heads/main"[..], true),
            (b"refs/tags/v1", true),
            (b"refs/belljar/a/b", true),
            (b"refs/heads/\xc3\xa9", true),
            (b"refs/heads/\xff", false),
            (b"HEAD", false),
            (b"main", false),
            (b"refs/", false),
            (b"refs/stash", true),
            (b"refs/heads", true),
            (b"refs/heads/", false),
            (b"refs/heads//main", false),
            (b"refs/heads/../main", false),
            (b"refs/heads/main.lock", false),
            (b"refs/heads/main ", false),
            (b"refs/heads/main\n", false),
            (b"Refs/heads/main", false),
            (b"refs/heads/a\0b", false),
        ] {
            assert_eq!(RefName::parse(name).is_ok(), is_one, "{}", name.escape_ascii());
        }
    }
}
