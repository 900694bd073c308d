//! A credential: a secret, and the only places where it may be used.

use super::{SecretName, SecretRef};
use crate::EnvName;
use crate::egress::{HostName, HostPattern, PortRange, Printable, RequestFilter};
use std::fmt;

/// A secret bound to places. The sandbox holds a placeholder under `variables`; the gateway puts the real value in on
/// the way to one of `bindings`, and refuses the placeholder everywhere else.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Credential {
    /// What it is asked for by: `--secret github`.
    pub name: SecretName,
    /// Where the value comes from.
    pub source: SecretSource,
    /// Where it may go. Never empty.
    pub bindings: Vec<CredentialBinding>,
    /// Under which names a sandbox finds the placeholder.
    pub variables: Vec<EnvName>,
    /// Whether bodies on the way there are looked at.
    pub bodies: Bodies,
}

/// Whether the body of a request to a credential's place may have a placeholder in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Bodies {
    /// It may not.
    #[default]
    Watched,
    /// It may: what an agent tells a model is whatever its tools printed, `env` among it.
    Open,
}

/// Where a value comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SecretSource {
    /// It is kept somewhere.
    Stored(SecretRef),
    /// It is made when it is needed: a token of the GitHub App that is configured.
    GitHubApp,
}

/// A host, its port, and the requests there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CredentialBinding {
    pub host: HostPattern,
    pub ports: PortRange,
    pub requests: RequestFilter,
    /// In what it may go there. Never empty.
    pub locations: Vec<CredentialLocation>,
    /// Which of the requests get the value.
    pub inject: Inject,
}

/// Which requests get a credential's value, of those that may carry it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Inject {
    /// Those that hold the placeholder. A program that is led there by a page or a redirect holds none, and is not authenticated.
    #[default]
    Placeholder,
    /// Those that have nothing in any carrier too: they get it in the first. For programs that cannot be told of a key.
    Always,
}

impl Inject {
    /// As in a file.
    pub fn as_str(self) -> &'static str {
        match self {
            Inject::Placeholder => "placeholder",
            Inject::Always => "always",
        }
    }
}

/// A real value that goes into the environment of one sandbox, because the run said so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Forwarded {
    pub variable: EnvName,
    pub source: SecretRef,
}

/// How a request carries a credential.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CredentialLocation {
    /// `authorization: Bearer VALUE`; also with the word `token`, as GitHub has it.
    Bearer,
    /// `authorization: Basic`, the value as the password. The user is the one that git is told, and that a request gets which has
    /// none.
    Basic { user: String },
    /// A header of its own, in lower case: `x-api-key: VALUE`.
    Header(String),
    /// A parameter of the query: `?key=VALUE`.
    Query(String),
}

impl CredentialBinding {
    /// Is it this host and port, whatever the request?
    pub fn is_at(&self, name: &HostName, port: u16) -> bool {
        self.host.matches(name) && self.ports.contains(port)
    }
}

impl CredentialLocation {
    /// A header by its name.
    pub fn header(name: &str) -> Result<CredentialLocation, LocationError> {
        let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
        if name.is_empty() || !name.bytes().all(is_token) {
            return Err(LocationError::Header(name.into()));
        }
        let name = name.to_ascii_lowercase();
        match name.as_str() {
            "authorization" => Err(LocationError::Authorization),
            "host" | "connection" | "content-length" | "transfer-encoding" | "te" | "upgrade" | "cookie" => {
                Err(LocationError::Header(name.as_str().into()))
            }
            _ => Ok(CredentialLocation::Header(name)),
        }
    }

    /// A parameter by its name.
    pub fn query(name: &str) -> Result<CredentialLocation, LocationError> {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        if name.is_empty() || !name.bytes().all(plain) {
            return Err(LocationError::Query(name.into()));
        }
        Ok(CredentialLocation::Query(name.to_string()))
    }

    /// Basic, with this user.
    pub fn basic(user: &str) -> Result<CredentialLocation, LocationError> {
        if user.is_empty() || !user.bytes().all(|byte| byte.is_ascii_graphic() && byte != b':') {
            return Err(LocationError::User(user.into()));
        }
        Ok(CredentialLocation::Basic { user: user.to_string() })
    }
}

/// Not a carrier.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LocationError {
    #[error("`{0}` is not a header that can carry a secret: write one like `x-api-key`")]
    Header(Printable),
    #[error("`authorization` has a form of its own: write `bearer`, or `basic` with a user")]
    Authorization,
    #[error("`{0}` is not a parameter of a query: use letters, digits, `-`, `_` and `.`")]
    Query(Printable),
    #[error("`{0}` is not a user: use visible letters without `:`")]
    User(Printable),
}

impl fmt::Display for SecretSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SecretSource::Stored(reference) => reference.fmt(f),
            SecretSource::GitHubApp => f.write_str("the GitHub App"),
        }
    }
}

impl fmt::Display for CredentialLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CredentialLocation::Bearer => f.write_str("bearer"),
            CredentialLocation::Basic { user } => write!(f, "basic, as `{user}`"),
            CredentialLocation::Header(name) => write!(f, "the header `{name}`"),
            CredentialLocation::Query(name) => write!(f, "the parameter `{name}`"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_location_is_one_that_a_request_can_have() {
        assert_eq!(
            CredentialLocation::header("X-Api-Key"),
            Ok(CredentialLocation::Header("x-api-key".into()))
        );
        for name in ["", "a b", "a:b", "x\r\ny", "Host", "content-length", "ä"] {
            assert!(matches!(CredentialLocation::header(name), Err(LocationError::Header(_))), "{name:?}");
        }
        assert_eq!(CredentialLocation::header("Authorization"), Err(LocationError::Authorization));
        assert!(CredentialLocation::query("key").is_ok() && CredentialLocation::query("a&b").is_err());
        assert!(
            CredentialLocation::basic("x-access-token").is_ok() && CredentialLocation::basic("a:b").is_err()
        );
    }
}
