//! Callers, and their requests.

use belljar_api::{CreateSandbox, Created};
use belljar_fleet::*;
use belljar_spec::{ErrorCode, SandboxError};
use std::path::Path;
use std::time::Duration;
use tokio::time::sleep;

/// A caller with a grant and keys that it may use; `*` is all of them.
pub(crate) struct TestCaller {
    pub(crate) grant: &'static str,
    pub(crate) keys: &'static [&'static str],
    pub(crate) lease: Option<String>,
    pub(crate) most: Option<u32>,
    /// Keys that are its own, whichever grant made the sandbox.
    pub(crate) owns: &'static [&'static str],
}

pub(crate) fn test_caller(grant: &'static str, keys: &'static [&'static str]) -> TestCaller {
    TestCaller { grant, keys, lease: None, most: None, owns: &[] }
}

impl Permission for TestCaller {
    fn grant(&self) -> &str {
        self.grant
    }

    fn may_join(&self, key: &str, _: Option<&str>) -> Result<(), SandboxError> {
        let may = self.keys.iter().any(|may| *may == "*" || *may == key);
        may.then_some(()).ok_or_else(|| ErrorCode::NotGranted.error("not granted"))
    }

    fn may_own(&self, key: &str) -> bool {
        self.owns.contains(&key)
    }

    fn lease(&self) -> Option<&str> {
        self.lease.as_deref()
    }

    fn most_sandboxes(&self) -> Option<u32> {
        self.most
    }
}

pub(crate) fn owner() -> Owner {
    Owner::default()
}

pub(crate) fn keyed(key: &str) -> CreateSandbox {
    CreateSandbox { key: Some(key.into()), ..CreateSandbox::default() }
}

pub(crate) fn ephemeral(key: &str) -> CreateSandbox {
    CreateSandbox { persistent: Some(false), ..keyed(key) }
}

pub(crate) fn guest(key: &str) -> CreateSandbox {
    CreateSandbox { owner: Some(false), ..keyed(key) }
}

pub(crate) async fn create(fleet: &Fleet, request: CreateSandbox) -> Result<Created, SandboxError> {
    create_as(fleet, request, None, &owner()).await
}

pub(crate) async fn create_as(
    fleet: &Fleet,
    request: CreateSandbox,
    idempotency: Option<&str>,
    caller: &dyn Permission,
) -> Result<Created, SandboxError> {
    let lease_request = LeaseRequest {
        identity: fleet.identify(&request, caller)?,
        requested: request.sandbox.clone(),
        requested_profile: request.profile.clone(),
        sandbox: request.sandbox.clone(),
        profile: request.profile.clone().unwrap_or_else(|| "default".into()),
        idle_s: request.idle_s,
        lease_s: request.lease_s,
        idempotency: idempotency.map(|key| Idempotency::new(key, &request)).transpose()?,
        rules: None,
        environment: request.environment.clone(),
        profiles: None,
    };
    fleet.create(lease_request, caller).await
}

/// The code of a refusal.
pub(crate) fn refused<T>(result: Result<T, SandboxError>) -> Option<ErrorCode> {
    result.err().map(|error| error.code)
}

/// Time passes.
pub(crate) async fn seconds(seconds: u64) {
    sleep(Duration::from_secs(seconds)).await;
}

pub(crate) fn exists(path: &Path) -> bool {
    std::fs::symlink_metadata(path).is_ok()
}
