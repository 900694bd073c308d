//! Which version is meant: an exact one is kept as it is, `latest`, another tag and ranges become the version that they stand
//! for today. It happens before a build, so that equal versions make equal builds, and Docker's cache knows them again.
//!
//! Pure: [`super::ask`] asks the registries.

use belljar_spec::{ErrorCode, SandboxError};
use semver::{Version, VersionReq};
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

/// A version as it was written: `2.1.3`, `latest`, `^2.1`, `>=1 <3`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum VersionRequest {
    /// This one, whether or not a registry knows it.
    Exact(Version),
    /// What the makers call so: `latest`, `next`.
    Tag(String),
    /// The highest that fits one of these.
    Range { written: String, any_of: Vec<VersionReq> },
}

/// Not a version.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no version: write one like `2.1.3`, a range like `^2.1`, or a tag like `latest`")]
pub struct NoVersion(String);

/// What there is of a program.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Published {
    /// Names that the makers gave to versions.
    pub tags: BTreeMap<String, String>,
    /// All of them, in no order.
    pub versions: Vec<Version>,
}

impl VersionRequest {
    /// What the makers call the newest.
    pub fn latest() -> VersionRequest {
        VersionRequest::Tag("latest".into())
    }

    /// The version that is meant, given what there is of `program`.
    pub fn among(&self, program: &str, published: &Published) -> Result<Version, SandboxError> {
        let none =
            |why: String| ErrorCode::RequestValue.error(why).hint("write an exact version, or `latest`");
        match self {
            VersionRequest::Exact(version) => Ok(version.clone()),
            VersionRequest::Tag(tag) => {
                let known = published.tags.get(tag).and_then(|version| Version::parse(version).ok());
                known.ok_or_else(|| none(format!("no version of `{program}` is called `{tag}`")))
            }
            VersionRequest::Range { written, any_of } => {
                let fits = |version: &&Version| any_of.iter().any(|range| range.matches(version));
                let highest = published.versions.iter().filter(fits).max().cloned();
                highest.ok_or_else(|| none(format!("no version of `{program}` fits `{written}`")))
            }
        }
    }
}

impl FromStr for VersionRequest {
    type Err = NoVersion;

    fn from_str(text: &str) -> Result<VersionRequest, NoVersion> {
        let no = || NoVersion(text.chars().filter(|letter| !letter.is_control()).take(60).collect());
        let text = text.trim();
        if text.is_empty() || text.len() > MAX_RANGE_BYTES {
            return Err(no());
        }
        let plain = text.trim_start_matches('=').trim_start().trim_start_matches('v');
        if let Ok(version) = Version::parse(plain) {
            return Ok(VersionRequest::Exact(version));
        }
        let any_of: Option<Vec<VersionReq>> = text.split("||").map(range).collect();
        match any_of {
            Some(any_of) => Ok(VersionRequest::Range { written: text.into(), any_of }),
            None if is_tag(text) => Ok(VersionRequest::Tag(text.into())),
            None => Err(no()),
        }
    }
}

impl fmt::Display for VersionRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            VersionRequest::Exact(version) => write!(f, "{version}"),
            VersionRequest::Tag(text) | VersionRequest::Range { written: text, .. } => f.write_str(text),
        }
    }
}

/// A range as npm writes it: parts that must all fit stand side by side, and `1.2` means `1.2.x`.
fn range(text: &str) -> Option<VersionReq> {
    let text = text.trim();
    if let Some((from, to)) = text.split_once(" - ") {
        return VersionReq::parse(&format!(">={}, <={}", from.trim(), to.trim())).ok();
    }
    // An operator may stand apart from its version.
    let mut parts: Vec<String> = Vec::new();
    for word in text.split([' ', ',']).filter(|word| !word.is_empty()) {
        match parts.last_mut() {
            Some(last) if last.ends_with(['<', '>', '=', '^', '~']) => last.push_str(word),
            _ => parts.push(word.to_string()),
        }
    }
    for part in &mut parts {
        let is_bare = part.starts_with(|first: char| first.is_ascii_digit());
        // Where the crate reads `1.2` as `^1.2`, npm does not.
        if is_bare && !part.contains(['*', 'x', 'X']) {
            part.insert(0, '=');
        }
    }
    match parts.is_empty() {
        true => None,
        false => VersionReq::parse(&parts.join(", ")).ok(),
    }
}

fn is_tag(text: &str) -> bool {
    let is_letter = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '.' | '_' | '-');
    text.starts_with(|first: char| first.is_ascii_alphabetic()) && text.chars().all(is_letter)
}

/// No range that a person writes is longer.
const MAX_RANGE_BYTES: usize = 200;

#[cfg(test)]
mod tests {
    use super::*;

    fn published() -> Published {
        let versions = ["0.9.0", "1.2.0", "1.2.9", "1.3.0", "2.0.0", "2.1.0", "3.0.0-beta.1"];
        Published {
            tags: BTreeMap::from([
                ("latest".into(), "2.0.0".into()),
                ("next".into(), "3.0.0-beta.1".into()),
                ("broken".into(), "two".into()),
            ]),
            versions: versions.iter().rev().map(|version| version.parse().unwrap()).collect(),
        }
    }

    #[test]
    fn a_version_is_the_one_that_npm_would_take() {
        for (written, meant) in [
            ("latest", "2.0.0"),
            ("next", "3.0.0-beta.1"),
            ("1.2.0", "1.2.0"),
            ("v1.2.0", "1.2.0"),
            ("=1.2.0", "1.2.0"),
            ("7.7.7", "7.7.7"),
            ("1.2", "1.2.9"),
            ("1", "1.3.0"),
            ("1.x", "1.3.0"),
            ("1.2.x", "1.2.9"),
            ("*", "2.1.0"),
            ("^1.2", "1.3.0"),
            ("~1.2.0", "1.2.9"),
            (">=1 <2", "1.3.0"),
            (">= 1.2.0 < 1.3", "1.2.9"),
            ("1.2 - 2.0", "2.0.0"),
            ("^0.9 || ^1.2", "1.3.0"),
            (">=3.0.0-beta", "3.0.0-beta.1"),
        ] {
            let requested: VersionRequest = written.parse().unwrap();
            assert_eq!(requested.among("it", &published()).unwrap().to_string(), meant, "{written}");
        }
    }

    #[test]
    fn what_was_never_published_is_said() {
        for written in ["^4", "nightly", "broken"] {
            let error = written.parse::<VersionRequest>().unwrap().among("it", &published()).unwrap_err();
            assert_eq!(error.code, ErrorCode::RequestValue, "{written}");
            assert!(error.message.contains(written) && error.message.contains("`it`"), "{}", error.message);
        }
    }

    #[test]
    fn what_is_no_version_is_refused() {
        for text in
            ["", " ", "1.2.3; rm -rf /", "$(id)", "-g", "1.2.3\n", "file:/x", "git+ssh://x", "^", "a b"]
        {
            let parsed = text.parse::<VersionRequest>();
            assert!(parsed.is_err() || text.trim() == "1.2.3", "{text:?} is {parsed:?}");
        }
    }
}
