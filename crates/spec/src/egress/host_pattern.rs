//! Which names a rule means.

use super::{HostName, HostNameError, Printable};
use psl::Psl as _;
use serde::{Serialize, Serializer};
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// `github.com` means the apex and everything below it, `=github.com` only itself. Of a name that a company shares among its
/// customers (`github.io`) the subtree has to be meant: it is written `*.github.io`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum HostPattern {
    /// The name and all its subdomains.
    Subtree(HostName),
    /// The name itself.
    Exact(HostName),
}

impl HostPattern {
    /// Does it mean this name?
    pub fn matches(&self, name: &HostName) -> bool {
        match self {
            HostPattern::Subtree(apex) => name.is_within(apex),
            HostPattern::Exact(exact) => name == exact,
        }
    }

    /// Does it mean every name that the other one means?
    pub fn covers(&self, other: &HostPattern) -> bool {
        match (self, other) {
            (HostPattern::Subtree(apex), other) => other.name().is_within(apex),
            (HostPattern::Exact(exact), HostPattern::Exact(other)) => exact == other,
            (HostPattern::Exact(_), HostPattern::Subtree(_)) => false,
        }
    }

    /// The name that it is made of.
    pub fn name(&self) -> &HostName {
        match self {
            HostPattern::Subtree(name) | HostPattern::Exact(name) => name,
        }
    }

    /// The widest pattern that a rule may have for this name: the subtree, but never one that many owners share.
    pub fn covering(name: &HostName) -> HostPattern {
        match suffix(name) {
            Some(_) => HostPattern::Exact(name.clone()),
            None => HostPattern::Subtree(name.clone()),
        }
    }

    /// As `from_str`, but a public suffix may be named: `com` in a rule that forbids opens nothing.
    pub(super) fn of_any_width(text: &str) -> Result<HostPattern, HostPatternError> {
        let (exact, written) = match text.strip_prefix('=') {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        if let Some(name) = written.strip_prefix("*.").and_then(|name| name.parse::<HostName>().ok())
            && !exact
            && suffix(&name) == Some(Suffix::Shared)
        {
            return Ok(HostPattern::Subtree(name));
        }
        if written.contains('*') {
            return Err(wildcard(text, written));
        }
        if written.contains("://") {
            let rest = written.split_once("://").map_or("", |(_, rest)| rest);
            let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
            return Err(HostPatternError::Url { text: text.into(), host: host.into() });
        }
        if let Some((_, host)) = written.rsplit_once('@') {
            let host = host.split([':', '/']).next().unwrap_or_default();
            return Err(HostPatternError::User { text: text.into(), host: host.into() });
        }
        if let Some((host, _)) = written.split_once('/') {
            return Err(HostPatternError::Path { text: text.into(), host: host.into() });
        }
        match written.parse::<HostName>() {
            Ok(name) if exact => Ok(HostPattern::Exact(name)),
            Ok(name) => Ok(HostPattern::Subtree(name)),
            Err(HostNameError::Address(address)) => Err(HostPatternError::Address(address)),
            Err(error) => Err(HostPatternError::Name(error)),
        }
    }
}

/// Text that is no pattern, and what to write instead.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HostPatternError {
    /// `*.x.com`: the name alone says it.
    #[error("`{text}` has a wildcard: write `{fix}`, which means it and all its subdomains")]
    Wildcard { text: Printable, fix: Printable },
    /// `*`: that is a mode.
    #[error("`{0}` is every name: use the egress mode `open` for any public name")]
    Everything(Printable),
    /// `x.*`: an ending under which anyone can register.
    #[error("`{text}` has a wildcard where none can be: write each name out, as in `example.com`")]
    WildcardInside { text: Printable },
    /// `https://x.com/`.
    #[error("`{text}` is a URL: write the host alone, `{host}`")]
    Url { text: Printable, host: Printable },
    /// `git@x.com`.
    #[error("`{text}` names a user: write the host alone, `{host}`")]
    User { text: Printable, host: Printable },
    /// `x.com/path`.
    #[error("`{text}` has a path: write the host alone, `{host}`; rules know names, ports and protocols")]
    Path { text: Printable, host: Printable },
    /// A number.
    #[error("`{0}` is an address: only names can be allowed, write the host's name")]
    Address(IpAddr),
    /// `com`, `co.uk`: many owners, one rule.
    #[error(
        "`{0}` is a public suffix, under which anybody can have a name: write the names that are needed, or `={0}` for itself alone"
    )]
    PublicSuffix(HostName),
    /// `github.io`: many customers, one rule.
    #[error(
        "`{0}` is shared by customers of one company, and anybody can become one: write the names that are needed, as in `NAME.{0}`, `={0}` for itself alone, or `*.{0}` if all of them are meant"
    )]
    SharedSuffix(HostName),
    /// Not a name in another way.
    #[error(transparent)]
    Name(HostNameError),
}

impl FromStr for HostPattern {
    type Err = HostPatternError;

    fn from_str(text: &str) -> Result<HostPattern, HostPatternError> {
        match HostPattern::of_any_width(text)? {
            HostPattern::Subtree(name) => match suffix(&name) {
                Some(Suffix::Public) => Err(HostPatternError::PublicSuffix(name)),
                Some(Suffix::Shared) if !text.starts_with("*.") => Err(HostPatternError::SharedSuffix(name)),
                Some(Suffix::Shared) | None => Ok(HostPattern::Subtree(name)),
            },
            exact @ HostPattern::Exact(_) => Ok(exact),
        }
    }
}

fn wildcard(text: &str, written: &str) -> HostPatternError {
    if written == "*" {
        return HostPatternError::Everything(text.into());
    }
    match written.strip_prefix("*.") {
        Some(rest) if rest.parse::<HostPattern>().is_ok() => {
            HostPatternError::Wildcard { text: text.into(), fix: rest.into() }
        }
        _ => HostPatternError::WildcardInside { text: text.into() },
    }
}

/// A name under which strangers have names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Suffix {
    /// Registries sell them (the ICANN section of the public suffix list).
    Public,
    /// A company gives them to its customers (the private section): `github.io`, `s3.amazonaws.com`.
    Shared,
}

fn suffix(name: &HostName) -> Option<Suffix> {
    let of = |text: &str| {
        let found = psl::List.suffix(text.as_bytes())?;
        let kind = match found.typ()? {
            psl::Type::Icann => Suffix::Public,
            psl::Type::Private => Suffix::Shared,
        };
        (found.as_bytes().len() == text.len()).then_some(kind)
    };
    // Some suffixes are given as `*.ck`: then the name above them is as shared as they are.
    of(name.as_str()).or_else(|| of(&format!("x-.{name}")))
}

impl fmt::Display for HostPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HostPattern::Subtree(name) if suffix(name) == Some(Suffix::Shared) => write!(f, "*.{name}"),
            HostPattern::Subtree(name) => write!(f, "{name}"),
            HostPattern::Exact(name) => write!(f, "={name}"),
        }
    }
}

impl Serialize for HostPattern {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn name(text: &str) -> HostName {
        text.parse().expect("a name")
    }

    #[test]
    fn a_pattern_means_a_subtree_or_itself() {
        for (pattern, host, expected) in [
            ("github.com", "github.com", true),
            ("github.com", "api.github.com", true),
            ("GitHub.com.", "API.github.COM.", true),
            ("github.com", "evilgithub.com", false),
            ("github.com", "github.com.evil", false),
            ("github.com", "github.co", false),
            ("=github.com", "github.com", true),
            ("=github.com", "api.github.com", false),
            ("=com", "com", true),
            ("=com", "example.com", false),
            ("db", "db", true),
            ("db", "a.db", true),
            ("bücher.example", "www.xn--bcher-kva.example", true),
            ("*.github.io", "somebody.github.io", true),
            ("*.github.io", "github.io", true),
            ("=github.io", "somebody.github.io", false),
            ("somebody.github.io", "x.somebody.github.io", true),
        ] {
            let parsed: HostPattern = pattern.parse().expect(pattern);
            assert_eq!(parsed.matches(&name(host)), expected, "{pattern} {host}");
        }
    }

    #[test]
    fn what_is_no_pattern_is_refused_with_the_fix() {
        for (text, fix) in [
            ("github.io", "or `*.github.io` if all of them are meant"),
            ("s3.amazonaws.com", "shared by customers"),
            ("vercel.app", "shared by customers"),
            ("workers.dev", "shared by customers"),
            ("=*.github.io", "has a wildcard"),
            ("*.a.github.io", "write `a.github.io`"),
            ("*.x.com", "write `x.com`"),
            ("=*.x.com", "write `x.com`"),
            ("*", "egress mode `open`"),
            ("x.*", "write each name out"),
            ("*.com", "write each name out"),
            ("a*.x.com", "write each name out"),
            ("https://x.com/a?b", "write the host alone, `x.com`"),
            ("ftp://x.com:21/a", "write the host alone, `x.com:21`"),
            ("x.com/a", "write the host alone, `x.com`"),
            ("git@x.com", "write the host alone, `x.com`"),
            ("git@x.com:org/repo", "write the host alone, `x.com`"),
            ("", "host name is missing"),
            ("=", "host name is missing"),
            ("10.0.0.1", "write the host's name"),
            ("0x7f.1", "`127.0.0.1` is an address"),
            ("[::1]", "`::1` is an address"),
            ("com", "public suffix"),
            ("co.uk", "public suffix"),
            ("ck", "public suffix"),
            ("anything.ck", "public suffix"),
            ("kobe.jp", "public suffix"),
            ("xn--p1ai", "public suffix"),
            ("рф", "public suffix"),
            (".x.com", "not a host name"),
            ("x com", "not a host name"),
        ] {
            let error = text.parse::<HostPattern>().expect_err(text).to_string();
            assert!(error.contains(fix), "{text}: {error}");
        }
    }

    #[test]
    fn a_name_without_a_registry_is_no_public_suffix() {
        for text in ["db", "internal", "corp.internal", "localhost", "www.ck", "city.kobe.jp", "github.com"] {
            assert!(text.parse::<HostPattern>().is_ok(), "{text}");
        }
    }

    #[test]
    fn the_covering_pattern_is_one_that_can_be_written() {
        for (text, expected) in [
            ("example.com", "example.com"),
            ("co.uk", "=co.uk"),
            ("github.io", "=github.io"),
            ("a.github.io", "a.github.io"),
        ] {
            assert_eq!(HostPattern::covering(&name(text)).to_string(), expected);
        }
    }

    proptest! {
        #[test]
        fn a_subtree_never_matches_a_sibling(
            apex in "[a-z]{1,8}\\.[a-z]{1,8}\\.example",
            glued in "[a-z0-9-]{0,5}[a-z0-9]",
            after in "[a-z]{1,8}",
        ) {
            let pattern: HostPattern = apex.parse().expect("a pattern");
            prop_assert!(pattern.matches(&name(&apex)));
            // What happens to begin with `xn--` may be no name at all.
            let below = format!("a.{}.{}", glued.trim_start_matches('-'), apex).parse::<HostName>();
            prop_assert!(below.is_err() || below.is_ok_and(|below| pattern.matches(&below)));
            let siblings = [
                format!("x{glued}{apex}"),
                format!("a.x{glued}{apex}"),
                format!("{apex}.{after}"),
                format!("{apex}{after}"),
                format!("x.{apex}.{after}"),
            ];
            for sibling in siblings.iter().filter_map(|sibling| sibling.parse::<HostName>().ok()) {
                prop_assert!(!pattern.matches(&sibling), "{}", sibling);
            }
        }

        #[test]
        fn an_exact_pattern_matches_one_name(apex in "[a-z]{1,8}\\.example", below in "[a-z]{1,8}") {
            let pattern: HostPattern = format!("={apex}").parse().expect("a pattern");
            prop_assert!(pattern.matches(&name(&apex)));
            let below = format!("{below}.{apex}");
            prop_assert!(!pattern.matches(&name(&below)));
        }

        #[test]
        fn any_text_is_refused_or_a_pattern(text in "=?\\PC{0,30}|=?[a-z*.:/@]{0,20}") {
            if let Ok(pattern) = text.parse::<HostPattern>() {
                prop_assert_eq!(pattern.to_string().parse::<HostPattern>(), Ok(pattern.clone()));
                prop_assert!(pattern.matches(pattern.name()));
            }
        }
    }
}
