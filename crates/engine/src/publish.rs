//! What was committed in a clone, pushed to where it came from; and, if asked for, a pull request. Only ever because the user
//! said so.

use crate::wait::wait;
use belljar_gateway::post_json;
use belljar_spec::egress::{HostName, Printable};
use belljar_spec::git::BranchName;
use belljar_spec::secret::{Credential, SecretRef, SecretSource};
use belljar_spec::{CommandLine, ErrorCode, SandboxError, SandboxId, hint};
use belljar_vault::{Secret, SecretError, SecretStore};
use belljar_workspace::clone::{self, Forge, PullRequest, Pushed};
use std::path::Path;

/// What is to be published.
#[derive(Debug, Clone)]
pub struct Publication {
    pub clone: SandboxId,
    /// The branch there; without a name, the one that was worked on.
    pub to: Option<BranchName>,
    /// What the remote asks for, if it does.
    pub token: Option<SecretRef>,
    pub request: Option<PullRequest>,
}

/// What was published.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Published {
    pub pushed: Pushed,
    /// The page of the pull request.
    pub request: Option<Printable>,
}

/// Pushes, and opens a pull request if that was asked for. `trust` is PEM of authorities beside the system's. Blocks.
pub fn publish(
    state: &Path,
    publication: &Publication,
    secrets: &dyn SecretStore,
    trust: &[u8],
) -> Result<Published, SandboxError> {
    let Publication { clone, to, token, request } = publication;
    let read = |reference: &SecretRef| -> Result<Secret, SandboxError> {
        secrets.read_text(reference).map_err(unreadable)
    };
    let token = || token.as_ref().map(&read).transpose();
    let pushed = clone::push(state, *clone, to.as_ref(), token()?)?;
    let request = match (request, token()?) {
        (None, _) => None,
        (Some(request), Some(token)) => {
            Some(clone::pull_request(state, *clone, request, &Http { trust }, &token)?)
        }
        (Some(_), None) => {
            let message = format!("branch {} was pushed; a pull request needs a token", pushed.branch);
            return Err(ErrorCode::CredentialMissing
                .error(message)
                .hint(hint!("name one, as in {}", CommandLine::PublishToken.of("secret:github"))));
        }
    };
    Ok(Published { pushed, request })
}

/// The token that a clone of this address needs: that of a credential which goes there.
pub(crate) fn token(
    url: &str,
    credentials: &[Credential],
    secrets: impl FnOnce() -> std::sync::Arc<dyn SecretStore>,
) -> Result<Option<Secret>, SandboxError> {
    let Some((host, port)) = host_and_port(url) else { return Ok(None) };
    let goes_there =
        |credential: &&Credential| credential.bindings.iter().any(|binding| binding.is_at(&host, port));
    let Some(credential) = credentials.iter().find(goes_there) else { return Ok(None) };
    match &credential.source {
        SecretSource::Stored(reference) => secrets().read_text(reference).map(Some).map_err(unreadable),
        // Minted for the sandbox, and only by the gateway.
        SecretSource::GitHubApp => Ok(None),
    }
}

/// Whom an address of https is at. A user in front of the host is a credential of its own.
fn host_and_port(url: &str) -> Option<(HostName, u16)> {
    let authority = url.strip_prefix("https://")?.split(['/', '?', '#']).next()?;
    let (host, port) = match authority.split_once(':') {
        Some((host, port)) => (host, port.parse().ok()?),
        None => (authority, 443),
    };
    Some((host.parse().ok()?, port))
}

fn unreadable(error: SecretError) -> SandboxError {
    ErrorCode::CredentialMissing.error(error.message).hint(error.hint)
}

struct Http<'a> {
    trust: &'a [u8],
}

impl Forge for Http<'_> {
    fn post_json(&self, url: &str, body: &str, token: &Secret) -> Result<(u16, Vec<u8>), String> {
        wait(async || Ok(post_json(url, body, token, self.trust).await)).map_err(|error| error.to_string())?
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use belljar_spec::egress::{PortRange, RequestFilter};
    use belljar_spec::secret::{Bodies, CredentialBinding, CredentialLocation, Inject};
    use std::sync::Arc;

    struct One;

    impl SecretStore for One {
        fn read(&self, _: &SecretRef) -> Result<Secret, SecretError> {
            Ok(Secret::new(b"0123456789".to_vec()))
        }
    }

    fn bound_to(host: &str, port: u16) -> Credential {
        Credential {
            name: "git".parse().unwrap(),
            source: SecretSource::Stored("secret:git".parse().unwrap()),
            bindings: vec![CredentialBinding {
                host: host.parse().unwrap(),
                ports: PortRange::only(port).unwrap(),
                requests: RequestFilter::default(),
                locations: vec![CredentialLocation::Bearer],
                inject: Inject::Placeholder,
            }],
            variables: Vec::new(),
            bodies: Bodies::Watched,
        }
    }

    #[test]
    fn a_token_goes_where_it_is_bound_and_nowhere_else() {
        for (host, port, url, goes) in [
            ("=git.example.com", 443, "https://git.example.com/a/b", true),
            ("=git.example.com", 443, "https://git.example.com:443/a/b", true),
            ("=git.example.com", 443, "https://git.example.com:8443/a/b", false),
            ("=git.example.com", 8443, "https://git.example.com:8443/a/b", true),
            ("=git.example.com", 8443, "https://git.example.com/a/b", false),
            ("=git.example.com", 443, "https://git.example.org/a/b", false),
            ("=git.example.com", 443, "https://x.git.example.com/a/b", false),
            ("=git.example.com", 443, "http://git.example.com/a/b", false),
            ("=git.example.com", 443, "https://me@git.example.com/a/b", false),
            ("=git.example.com", 443, "https://git.example.com:x/a/b", false),
        ] {
            let token = token(url, &[bound_to(host, port)], || Arc::new(One)).unwrap();
            assert_eq!(token.is_some(), goes, "{host}:{port} {url}");
        }
    }
}
