//! Which service, and whether it takes the key.

use belljar_e2b_client::{Addresses, Named, Service};
use belljar_spec::{CommandLine, ErrorCode, SandboxError, hint};
use belljar_vault::Secret;

/// The service at these addresses; its key is read only where there is one.
pub fn service(
    named: &Named,
    key: impl FnOnce() -> Result<Secret, SandboxError>,
) -> Result<Service, SandboxError> {
    let addresses = Addresses::of(named)?.ok_or_else(not_configured)?;
    Service::new(addresses, &key()?)
}

pub(super) fn not_configured() -> SandboxError {
    ErrorCode::BackendUnavailable.error("no E2B-compatible service is configured").hint(hint!(
        "set `domain` below [e2b] of your belljar.toml, or E2B_DOMAIN, and store its API key: {}",
        CommandLine::SecretsSet.of("E2B_API_KEY")
    ))
}
