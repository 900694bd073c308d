//! The GitHub App: who mints tokens, and what a token may do.

use super::SecretRef;
use crate::egress::{HostName, Printable};
use serde::Serialize;
use std::fmt;
use std::str::FromStr;

/// An App and where it is installed, as an operator or a user configured it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GitHubApp {
    /// The App's id.
    pub app: u64,
    /// The id of its installation.
    pub installation: u64,
    /// Where its private key is kept, in PEM.
    pub key: SecretRef,
    /// Where its API is: `https://api.github.com`, without a slash at the end.
    pub api: String,
    /// Where git is spoken.
    pub host: HostName,
}

/// What the token of one sandbox may do, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GitHubGrant {
    pub app: GitHubApp,
    pub profile: GitHubProfile,
    /// Only these; none named means all that the App is installed for.
    pub repositories: Vec<RepositoryName>,
    /// Whether the App's private key itself goes into the sandbox. A process that has it can mint any token.
    pub danger_forward_key: bool,
}

/// Least first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum GitHubProfile {
    /// Look.
    Read,
    /// Open and label issues.
    IssuesWrite,
    /// Review pull requests too.
    ReviewWrite,
    /// Push too.
    RepoWrite,
}

impl GitHubProfile {
    /// Every one.
    pub const ALL: [GitHubProfile; 4] = [
        GitHubProfile::Read,
        GitHubProfile::IssuesWrite,
        GitHubProfile::ReviewWrite,
        GitHubProfile::RepoWrite,
    ];

    /// What GitHub is asked for: permission and access. Nothing else, whatever the App itself may do.
    pub fn permissions(self) -> [(&'static str, &'static str); 4] {
        let (contents, issues, pull_requests) = match self {
            GitHubProfile::Read => ("read", "read", "read"),
            GitHubProfile::IssuesWrite => ("read", "write", "read"),
            GitHubProfile::ReviewWrite => ("read", "write", "write"),
            GitHubProfile::RepoWrite => ("write", "write", "write"),
        };
        [("contents", contents), ("issues", issues), ("metadata", "read"), ("pull_requests", pull_requests)]
    }

    /// As it is written.
    pub fn as_str(self) -> &'static str {
        match self {
            GitHubProfile::Read => "read",
            GitHubProfile::IssuesWrite => "issues-write",
            GitHubProfile::ReviewWrite => "review-write",
            GitHubProfile::RepoWrite => "repo-write",
        }
    }
}

/// Not a profile.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a profile: write read, issues-write, review-write or repo-write")]
pub struct UnknownProfile(Printable);

impl FromStr for GitHubProfile {
    type Err = UnknownProfile;

    fn from_str(text: &str) -> Result<GitHubProfile, UnknownProfile> {
        let known = GitHubProfile::ALL.into_iter().find(|profile| profile.as_str() == text);
        known.ok_or_else(|| UnknownProfile(text.into()))
    }
}

impl fmt::Display for GitHubProfile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

crate::text::read_as_text!(GitHubProfile);

/// `OWNER/NAME`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RepositoryName {
    owner: String,
    name: String,
}

impl RepositoryName {
    /// Whose.
    pub fn owner(&self) -> &str {
        &self.owner
    }

    /// What it is called, without its owner.
    pub fn name(&self) -> &str {
        &self.name
    }
}

/// Not a repository.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a repository: write OWNER/NAME, as in `acme/widgets`")]
pub struct RepositoryNameError(Printable);

impl FromStr for RepositoryName {
    type Err = RepositoryNameError;

    fn from_str(text: &str) -> Result<RepositoryName, RepositoryNameError> {
        let plain = |part: &str| {
            let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
            !part.is_empty() && part.len() <= 100 && part != "." && part != ".." && part.bytes().all(fits)
        };
        match text.split_once('/') {
            Some((owner, name)) if plain(owner) && plain(name) => {
                Ok(RepositoryName { owner: owner.into(), name: name.into() })
            }
            _ => Err(RepositoryNameError(text.into())),
        }
    }
}

impl fmt::Display for RepositoryName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.owner, self.name)
    }
}

crate::text::serde_as_text!(RepositoryName);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_profile_asks_for_exactly_this() {
        for (profile, expected) in [
            ("read", "contents:read issues:read metadata:read pull_requests:read"),
            ("issues-write", "contents:read issues:write metadata:read pull_requests:read"),
            ("review-write", "contents:read issues:write metadata:read pull_requests:write"),
            ("repo-write", "contents:write issues:write metadata:read pull_requests:write"),
        ] {
            let permissions = profile.parse::<GitHubProfile>().expect(profile).permissions();
            let written: Vec<String> =
                permissions.iter().map(|(what, how)| format!("{what}:{how}")).collect();
            assert_eq!(written.join(" "), expected);
        }
        assert!("admin".parse::<GitHubProfile>().is_err());
    }

    #[test]
    fn a_repository_has_an_owner_and_a_name() {
        assert_eq!(
            "acme/widgets.rs".parse::<RepositoryName>().map(|r| r.to_string()),
            Ok("acme/widgets.rs".into())
        );
        for text in ["", "acme", "acme/", "/x", "a/b/c", "a/..", "a b/c", "a/b?c"] {
            assert!(text.parse::<RepositoryName>().is_err(), "{text}");
        }
    }
}
