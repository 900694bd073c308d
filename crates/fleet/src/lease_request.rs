//! A sandbox that a caller wants, and whether the existing one will do.

use crate::identity::{Identity, Role};
use crate::profiles::Profiles;
use crate::record::Record;
use crate::wake;
use belljar_api::{CreateSandbox, GrantRules, SandboxRequest};
use belljar_spec::{ErrorCode, SandboxError};
use data_encoding::HEXLOWER;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A sandbox that a caller wants a lease on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseRequest {
    pub identity: Identity,
    /// What the caller said of it. What is not said is taken as it is, if the sandbox is there.
    pub requested: SandboxRequest,
    /// The profile that the caller named.
    pub requested_profile: Option<String>,
    /// What it gets if it is made: with what the profile and the grant say of it.
    pub sandbox: SandboxRequest,
    /// The profile that it gets if it is made.
    pub profile: String,
    /// How long it lives on without a lease.
    pub idle_s: Option<u64>,
    pub lease_s: Option<u64>,
    pub idempotency: Option<Idempotency>,
    /// The rules of the grant that asks; nothing for the owner of this machine.
    pub rules: Option<GrantRules>,
    /// The environment of the owner who asks.
    pub environment: BTreeMap<String, String>,
    /// The profiles as they are now: a sandbox that stopped is woken by them, not by those that it was made with. Nothing leaves it as
    /// it is.
    pub profiles: Option<Arc<Profiles>>,
}

/// A request's own name: made again under the same one, it gets the same answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Idempotency {
    pub(crate) key: String,
    pub(crate) body: String,
}

impl Idempotency {
    /// Of a request that came with this key.
    pub fn new(key: impl Into<String>, request: &CreateSandbox) -> Result<Idempotency, SandboxError> {
        let key = key.into();
        if key.is_empty() || key.chars().count() > MAX_KEY_BYTES || key.chars().any(char::is_control) {
            return Err(ErrorCode::RequestValue
                .error("the idempotency key is empty, too long or not text")
                .hint(format!("one line of 1 to {MAX_KEY_BYTES} characters")));
        }
        let body = serde_json::to_vec(request).map_err(|error| {
            ErrorCode::StateFailed.error(format!("cannot write the request: {error}")).caused_by(error)
        })?;
        Ok(Idempotency { key, body: format!("{FORM}{}", HEXLOWER.encode(&Sha256::digest(body))) })
    }
}

impl Idempotency {
    /// Whether a request that was remembered as `body` is this one. One that an older belljar remembered, which wrote requests in another
    /// form, is taken for it by its key.
    pub(crate) fn is(&self, body: &str) -> bool {
        self.body == body || !body.starts_with(FORM)
    }
}

impl LeaseRequest {
    /// The sandbox of a record as it is woken now, and what a person should know of that.
    pub(crate) fn woken(&self, record: &Record) -> Result<(SandboxRequest, Option<String>), SandboxError> {
        match &self.profiles {
            Some(profiles) => wake::sandbox_now(profiles, record),
            None => Ok((record.sandbox.clone(), None)),
        }
    }

    /// Refuses a sandbox that is there and not what is asked for.
    pub(crate) fn must_fit(&self, record: &Record) -> Result<(), SandboxError> {
        let differences = self.differences(record);
        if differences.is_empty() {
            return Ok(());
        }
        let message = format!(
            "the sandbox of key `{}` is there, and differs in {}",
            record.key,
            differences.join(", ")
        );
        Err(ErrorCode::SandboxDiffers
            .error(message)
            .hint("leave the settings out to take it as it is, delete it first, or use another key"))
    }

    fn differences(&self, record: &Record) -> Vec<String> {
        let mut found = Vec::new();
        if let Some(requested) =
            self.requested_profile.as_ref().filter(|requested| **requested != record.profile)
        {
            found.push(format!("`profile` (`{}`, not `{requested}`)", record.profile));
        }
        let persistent = self.identity.persistent;
        // A guest takes a sandbox as it is, and never makes it stay.
        if self.identity.role == Role::Owner
            && persistent.is_explicit
            && persistent.persistent != record.persistent
        {
            found.push(format!("`persistent` ({}, not {})", record.persistent, persistent.persistent));
        }
        let fields = self.requested.fits(&self.sandbox, &record.sandbox);
        found.extend(fields.into_iter().map(|field| format!("`{field}`")));
        found
    }
}

const MAX_KEY_BYTES: usize = 255;
/// The form in which requests are written; another one gives other digests.
const FORM: &str = "2:";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::sample;
    use belljar_spec::request::{EgressRequest, EnvValue, LimitsRequest};

    fn lease_request(requested: SandboxRequest) -> LeaseRequest {
        let request = CreateSandbox { key: Some("k".into()), ..CreateSandbox::default() };
        LeaseRequest {
            identity: Identity::of(&request, None).unwrap(),
            sandbox: requested.clone(),
            requested,
            requested_profile: None,
            profile: "default".into(),
            idle_s: None,
            lease_s: None,
            idempotency: None,
            rules: None,
            environment: BTreeMap::new(),
            profiles: None,
        }
    }

    fn record() -> Record {
        let mut record = sample("k", true);
        record.sandbox.limits.memory = Some("1g".parse().unwrap());
        record.sandbox.egress = EgressRequest {
            mode: Some("strict".parse().unwrap()),
            allow: vec!["a.example".parse().unwrap(), "b.example".parse().unwrap()],
            ..EgressRequest::default()
        };
        record.sandbox.env.insert("A".parse().unwrap(), EnvValue::Text("1".into()));
        record
    }

    #[test]
    fn what_is_not_said_is_taken_as_it_is() {
        let mut same = lease_request(SandboxRequest::default());
        assert_eq!(same.must_fit(&record()), Ok(()));
        same.requested_profile = Some("default".into());
        same.requested.egress.allow = vec!["b.example".parse().unwrap()];
        same.requested.env.insert("A".parse().unwrap(), EnvValue::Text("1".into()));
        same.requested.limits.memory = Some("1g".parse().unwrap());
        assert_eq!(same.must_fit(&record()), Ok(()));
        same.requested.limits.memory = Some("64g".parse().unwrap());
        same.sandbox.limits.memory = Some("1g".parse().unwrap());
        assert_eq!(same.must_fit(&record()), Ok(()), "a grant's ceiling makes it the same");
    }

    #[test]
    fn what_differs_is_named() {
        let limits = LimitsRequest { memory: Some("2g".parse().unwrap()), ..LimitsRequest::default() };
        let mut other = lease_request(SandboxRequest {
            limits,
            admin: true,
            ports: vec![80],
            ..SandboxRequest::default()
        });
        other.requested_profile = Some("open".into());
        other.identity.persistent = crate::Persistence { persistent: false, is_explicit: true };
        other.requested.egress.allow = vec!["b.example".parse().unwrap(), "c.example".parse().unwrap()];
        other.requested.env.insert("A".parse().unwrap(), EnvValue::Text("2".into()));
        let error = other.must_fit(&record()).unwrap_err();
        assert_eq!(error.code, ErrorCode::SandboxDiffers);
        for what in [
            "`profile`",
            "`persistent`",
            "`limits.memory`",
            "`admin`",
            "`ports`",
            "`egress.allow`",
            "`env.A`",
        ] {
            assert!(error.message.contains(what), "{what}: {}", error.message);
        }
        assert!(!error.message.contains("egress.mode"), "{}", error.message);
        other.identity.role = Role::Guest;
        assert!(!other.must_fit(&record()).unwrap_err().message.contains("persistent"));
    }

    #[test]
    fn an_idempotency_key_is_one_line_and_a_body_is_told_from_another() {
        let request = CreateSandbox::default();
        let other = CreateSandbox { lease_s: Some(1), ..CreateSandbox::default() };
        let body = |request: &CreateSandbox| Idempotency::new("a", request).unwrap().body;
        assert_eq!(body(&request), body(&CreateSandbox::default()));
        assert_ne!(body(&request), body(&other));
        let once = Idempotency::new("a", &request).unwrap();
        assert!(once.is(&body(&request)) && !once.is(&body(&other)));
        assert!(once.is(&"0".repeat(64)), "of an older belljar");
        for key in ["", "a\nb", &"x".repeat(256)] {
            assert_eq!(Idempotency::new(key, &request).unwrap_err().code, ErrorCode::RequestValue);
        }
    }
}
