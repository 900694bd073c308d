//! Patterns of branches.

use super::BranchName;
use crate::glob;
use serde::Serialize;
use std::fmt;
use std::str::FromStr;

/// Some branches: `agent/*` is everything below `agent/`, `*` every branch, `!main` all but it. A star stands for any
/// characters, slashes too.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(into = "String")]
pub struct RefPattern {
    glob: String,
    excludes: bool,
}

impl RefPattern {
    /// Exactly this branch.
    pub fn exactly(branch: &BranchName) -> RefPattern {
        // A branch's name has no star and no `!` in front that would mean something: see `allows`.
        RefPattern { glob: branch.as_str().to_string(), excludes: false }
    }

    /// Are these branches taken out of what other patterns allow?
    pub fn excludes(&self) -> bool {
        self.excludes
    }

    /// Does it mean this branch?
    pub fn matches(&self, branch: &BranchName) -> bool {
        glob::matches(&self.glob, branch.as_str())
    }
}

impl fmt::Display for RefPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", if self.excludes { "!" } else { "" }, self.glob)
    }
}

impl From<RefPattern> for String {
    fn from(pattern: RefPattern) -> String {
        pattern.to_string()
    }
}

/// Not a pattern.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is not a pattern of branches: write a name, with `*` for any characters and `!` in front for all but it"
)]
pub struct RefPatternError(String);

impl FromStr for RefPattern {
    type Err = RefPatternError;

    fn from_str(text: &str) -> Result<RefPattern, RefPatternError> {
        let (glob, excludes) = text.strip_prefix('!').map_or((text, false), |glob| (glob, true));
        let filled = glob.replace('*', "x");
        match filled.parse::<BranchName>() {
            Ok(_) => Ok(RefPattern { glob: glob.to_string(), excludes }),
            Err(_) => Err(RefPatternError(text.escape_debug().to_string())),
        }
    }
}

crate::text::read_as_text!(RefPattern);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_stand_for_anything() {
        for (pattern, name, expected) in [
            ("*", "main", true),
            ("agent/*", "agent/a/b", true),
            ("agent/*", "agent", false),
            ("agent/*", "xagent/a", false),
            ("a*c", "abc", true),
            ("a*c", "abd", false),
            ("main", "main", true),
            ("main", "main2", false),
            ("!main", "main", true),
        ] {
            let pattern: RefPattern = pattern.parse().unwrap();
            assert_eq!(pattern.matches(&name.parse().unwrap()), expected, "{pattern} {name}");
        }
    }

    #[test]
    fn what_no_branch_can_be_called_is_no_pattern() {
        for text in ["", "!", "a b", "a..b", "-x", "a[b]", "refs/heads/x?", "!!a b"] {
            assert!(text.parse::<RefPattern>().is_err(), "{text}");
        }
    }
}
