//! A sandbox as a caller asks for it. Flags, profiles, the HTTP API, records and plans all hold this one type: every value in it makes
//! sense by itself, and what was left out is `None`, `false` or empty. It becomes a [`crate::SandboxSpec`] when the settings of the
//! machine are known.
//!
//! A new option is a field of [`SandboxRequest`] or of one of its parts, with the class of callers that may ask for it. How it is merged
//! with a profile ([`over`]) and compared with a living sandbox ([`fits`]) follows from its type; whether a grant may ask for it, from its class,
//! with a rule in [`within`] for the class `grant`. docs/internals.md lists the other places of a new option.

mod check;
mod egress;
mod env;
mod field;
mod fits;
mod grant;
mod limits;
mod llm;
mod over;
mod path;
mod within;
mod workspace;

pub use check::wrong_value;
pub use egress::{AllowRule, DenyRule, EgressRequest};
pub use env::EnvValue;
pub use grant::{GrantRules, HostGrant};
pub use limits::LimitsRequest;
pub use llm::{LlmRequest, LlmUrl};
pub use over::Wider;
pub use path::{HostPath, HostPathError};
pub use within::{not_granted, pattern_matches};
pub use workspace::WorkspaceRequest;

use crate::secret::{GitHubProfile, RepositoryName, SecretName};
use crate::{
    Assurance, BackendChoice, EnvName, ForwardedPort, Root, SnapshotName, UserName, VolumeName, VolumePath,
};
use field::{Field, request};
use serde::{Deserialize, Deserializer, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

request! {
    /// What is said of a sandbox: the same words as on the command line.
    pub struct SandboxRequest {
        /// auto, native, bwrap, landlock, docker, docker+runsc, e2b, container or host.
        backend: Option<BackendChoice> as Option<String>, grant;
        /// The weakest isolation that is accepted: host, container, landlock, namespace, gvisor or microvm.
        at_least: Option<Assurance> as Option<String>, anyone;
        /// What `/` is made of: `host`, `golden`, `oci:IMAGE`, or the path of a directory. Left out: the host's system.
        rootfs: Option<Root> as Option<String>, grant;
        /// The snapshot whose files it begins with: its name or its id, of the caller's own. Left out: none.
        snapshot: Option<SnapshotName> as Option<String>, anyone;
        workspace: WorkspaceRequest, grant;
        egress: EgressRequest, grant;
        llm: Option<LlmRequest>, grant;
        /// Credentials that it may use without holding them: names of the vault or of the configuration.
        secrets: Vec<SecretName> as Vec<String>, grant;
        /// Web search with a key that it does not hold: tavily, exa, brave, or `auto` for the first that is kept.
        web_search: Option<WebSearch> as Option<String>, grant;
        /// A token of the GitHub App.
        github: Option<GitHubRequest>, owner;
        /// Variables of every command. `secret:NAME` is a placeholder for a secret.
        env: BTreeMap<EnvName, EnvValue> as BTreeMap<String, crate::OsText>, grant;
        limits: LimitsRequest, grant;
        /// Ports inside that can be reached from outside.
        ports: Vec<u16>, anyone;
        /// Ports of the host that lead to ports inside: `3000`, `8080:3000`, `0.0.0.0:8080:3000`. Without an address, the host's loopback.
        forward_ports: Vec<ForwardedPort> as Vec<String>, owner;
        /// Whether commands may make user namespaces.
        #[serde(deserialize_with = "true_or_none")]
        #[cfg_attr(feature = "schema", schema(default = false))]
        nested: Option<bool> as bool, owner;
        /// Volumes that outlive it: name to path inside.
        volumes: BTreeMap<VolumeName, VolumePath> as BTreeMap<String, String>, grant;
        /// The name of the user that commands run as; its home is /home/NAME. Left out: `agent`.
        user: Option<UserName> as Option<String>, anyone;
        /// Without marker and protected paths, for the person whose machine it is.
        admin: bool, owner;
        /// With `admin`: as root inside.
        root: bool, owner;
    }
}

/// `false` in JSON says nothing: older versions always write it. In a profile it forbids.
fn true_or_none<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<bool>, D::Error> {
    Ok(Option::<bool>::deserialize(deserializer)?.filter(|value| *value))
}

/// A token of the GitHub App that is made for one sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct GitHubRequest {
    /// What it is good for: read, issues-write, review-write or repo-write.
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub profile: GitHubProfile,
    /// `owner/name`. Left out: all that the App is installed for.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schema(value_type = Vec<String>))]
    pub repositories: Vec<RepositoryName>,
}

impl Field for GitHubRequest {
    fn is_unsaid(&self) -> bool {
        false
    }

    fn over(self, _: GitHubRequest) -> GitHubRequest {
        self
    }

    fn compare(&self, effective: &Self, living: &Self, at: &str, found: &mut Vec<String>) {
        self.profile.compare(&effective.profile, &living.profile, &format!("{at}.profile"), found);
        let at = format!("{at}.repositories");
        self.repositories.compare(&effective.repositories, &living.repositories, &at, found);
    }
}

/// Which service searches the web for the sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WebSearch {
    /// The first whose key there is.
    Detect,
    /// The same; none, where no key is kept or nothing may leave: the agent has another way to search.
    IfStored,
    /// This one.
    Named(SecretName),
}

impl FromStr for WebSearch {
    type Err = crate::secret::SecretNameError;

    fn from_str(text: &str) -> Result<WebSearch, Self::Err> {
        if text == AUTO { Ok(WebSearch::Detect) } else { text.parse().map(WebSearch::Named) }
    }
}

impl fmt::Display for WebSearch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WebSearch::Detect | WebSearch::IfStored => f.write_str(AUTO),
            WebSearch::Named(name) => write!(f, "{name}"),
        }
    }
}

crate::text::serde_as_text!(WebSearch);

const AUTO: &str = "auto";

#[cfg(test)]
mod tests;
