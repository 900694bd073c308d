//! Registries are asked what there is. One request, one bounded answer.

use super::authorities::Authorities;
use super::published::{self, NPM_ACCEPT};
use super::versions::{Published, VersionRequest};
use belljar_spec::{ErrorCode, SandboxError};
use reqwest::header::ACCEPT;
use reqwest::{Client, Response, Url};
use rustls::{ClientConfig, RootCertStore};
use semver::Version;
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

/// Asks registries for versions. It connects to none before the first question.
pub(super) struct Asker {
    client: Client,
}

impl Asker {
    /// One that trusts the system's authorities, and these.
    pub(super) fn new(authorities: Option<&Authorities>) -> Result<Asker, SandboxError> {
        let no = |error: String| ErrorCode::RegistryFailed.error(format!("cannot query a registry: {error}"));
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        if let Some(authorities) = authorities {
            authorities.add_to(&mut roots).map_err(|error| no(error.to_string()))?;
        }
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let tls = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| no(error.to_string()))?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let client = Client::builder()
            .tls_backend_preconfigured(tls)
            .user_agent("belljar")
            .timeout(ANSWER_TIMEOUT)
            .build()
            .map_err(|error| no(whole(&error)))?;
        Ok(Asker { client })
    }

    /// Which version of a package of npm's is meant.
    pub(super) async fn npm(
        &self,
        registry: &str,
        package: &str,
        requested: &VersionRequest,
    ) -> Result<Version, SandboxError> {
        let ask = async || {
            let answer = self.get(&published::npm_address(registry, package), NPM_ACCEPT, package).await?;
            published::npm(package, &answer)
        };
        settle(requested, package, ask).await
    }

    /// Which version is meant of a program whose versions are tags of a git repository.
    pub(super) async fn git(
        &self,
        repository: &str,
        requested: &VersionRequest,
    ) -> Result<Version, SandboxError> {
        let ask = async || {
            let answer = self.get(&published::git_address(repository), "*/*", repository).await?;
            published::git(repository, &answer)
        };
        settle(requested, repository, ask).await
    }

    async fn get(&self, address: &str, accept: &str, about: &str) -> Result<Vec<u8>, SandboxError> {
        let failed = |why: String| {
            let message = format!("cannot look up the versions of `{about}`: {why}");
            ErrorCode::RegistryFailed
                .error(message)
                .hint("write exact versions, which need no registry, or name a registry that can be reached")
        };
        let address = Url::parse(address).map_err(|error| failed(error.to_string()))?;
        let host = address.host_str().unwrap_or_default().to_string();
        let answer = async {
            let request = self.client.get(address).header(ACCEPT, accept);
            let response = request.send().await.map_err(|error| whole(&error))?;
            if !response.status().is_success() {
                return Err(format!("`{host}` answers {}", response.status()));
            }
            body(response).await
        };
        answer.await.map_err(failed)
    }
}

/// No registry is asked about an exact version.
async fn settle(
    requested: &VersionRequest,
    program: &str,
    ask: impl AsyncFnOnce() -> Result<Published, SandboxError>,
) -> Result<Version, SandboxError> {
    match requested {
        VersionRequest::Exact(version) => Ok(version.clone()),
        VersionRequest::Tag(_) | VersionRequest::Range { .. } => requested.among(program, &ask().await?),
    }
}

async fn body(mut response: Response) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    while let Some(piece) = response.chunk().await.map_err(|error| whole(&error))? {
        bytes.extend_from_slice(&piece);
        if bytes.len() > MAX_ANSWER_BYTES {
            return Err(format!("the answer is longer than {} MB", MAX_ANSWER_BYTES >> 20));
        }
    }
    Ok(bytes)
}

/// With what is behind it: on its own it says that an error happened.
fn whole(error: &reqwest::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(inner) = source {
        let cause = inner.to_string();
        if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
        source = inner.source();
    }
    text
}

/// The longest answers of npm's registry have 3 MB.
const MAX_ANSWER_BYTES: usize = 64 << 20;
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);
