//! The E2B-compatible service that the backend `e2b` makes sandboxes in: its addresses from the configuration or the SDKs' variables,
//! its key from the vault.

use belljar_backend::{Named, Remote, Service, forget_remote, service};
use belljar_config as config;
use belljar_spec::secret::SecretRef;
use belljar_spec::{CommandLine, ErrorCode, SandboxError, hint};
use belljar_vault::{Secret, SecretStore};
use std::env;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A service, for tests that have one of their own.
pub type RemoteService = Arc<Service>;

/// The service at these addresses, with this key. For tests.
#[doc(hidden)]
pub fn service_at(api_url: &str, sandbox_url: &str, key: &str) -> Result<RemoteService, SandboxError> {
    let named =
        Named { api_url: Some(api_url.into()), sandbox_url: Some(sandbox_url.into()), ..Named::default() };
    service(&named, || Ok(Secret::from_text(key))).map(Arc::new)
}

/// What makes sandboxes elsewhere; `own` instead of the configured service.
pub(crate) fn remote(
    state: &Path,
    own: Option<&RemoteService>,
    secrets: impl FnOnce() -> Arc<dyn SecretStore>,
) -> Result<Remote, SandboxError> {
    let settings = config::e2b_service()?;
    let service = match own {
        Some(service) => Arc::clone(service),
        None => Arc::new(configured(&settings, secrets)?),
    };
    let template = settings.template.unwrap_or_else(|| DEFAULT_TEMPLATE.into());
    Ok(Remote { service, template, directory: directory(state) })
}

/// Ends the sandbox elsewhere that is kept under this name, if there is one.
pub(crate) fn forget(
    state: &Path,
    name: &str,
    secrets: impl FnOnce() -> Arc<dyn SecretStore>,
) -> Result<(), SandboxError> {
    forget_remote(&directory(state), name, || configured(&config::e2b_service()?, secrets))
}

/// What a file says counts before what a variable says, part by part.
fn configured(
    settings: &config::E2bSettings,
    secrets: impl FnOnce() -> Arc<dyn SecretStore>,
) -> Result<Service, SandboxError> {
    let or_variable = |setting: &Option<String>, name: &str| {
        setting.clone().or_else(|| env::var(name).ok().filter(|value| !value.is_empty()))
    };
    let named = Named {
        domain: or_variable(&settings.domain, "E2B_DOMAIN"),
        api_url: or_variable(&settings.api_url, "E2B_API_URL"),
        sandbox_url: or_variable(&settings.sandbox_url, "E2B_SANDBOX_URL"),
    };
    service(&named, || {
        let reference = match &settings.key {
            Some(reference) => reference.clone(),
            None if env::var_os(KEY).is_some() => reference("env")?,
            None => reference("secret")?,
        };
        let secrets = secrets();
        secrets.read_text(&reference).map_err(|error| {
            ErrorCode::CredentialMissing
                .error(format!("the API key of the E2B-compatible service cannot be read: {error}"))
                .hint(hint!(
                    "store it ({}), or name another secret as `key` below [e2b]",
                    CommandLine::SecretsSet.of(KEY)
                ))
                .caused_by(error)
        })
    })
}

fn reference(kind: &str) -> Result<SecretRef, SandboxError> {
    format!("{kind}:{KEY}")
        .parse()
        .map_err(|error: belljar_spec::secret::SecretRefError| ErrorCode::Internal.error(error.to_string()))
}

fn directory(state: &Path) -> PathBuf {
    state.join("remote")
}

const KEY: &str = "E2B_API_KEY";
/// What E2B makes a sandbox of that names no template.
const DEFAULT_TEMPLATE: &str = "base";
