//! One version of a policy: it never changes, and each connection is decided by one.

use aws_lc_rs::digest::{SHA256, digest};
use belljar_spec::egress::{EgressPolicy, HostName, Rule};
use data_encoding::HEXLOWER;
use std::fmt;
use std::ops::Deref;

/// A policy, as it was at one moment.
#[derive(Debug)]
pub struct PolicyVersion {
    policy: EgressPolicy,
    digest: PolicyDigest,
    number: u64,
    /// Rules for one connection each: they open nothing here, and their names can be looked up.
    once: Vec<Rule>,
}

/// The name of a policy: two policies that mean the same have one digest, wherever their rules are written.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PolicyDigest(String);

impl PolicyVersion {
    pub(crate) fn new(policy: EgressPolicy, number: u64) -> PolicyVersion {
        PolicyVersion { digest: PolicyDigest::of(&policy), policy, number, once: Vec::new() }
    }

    /// The same, with rules for one connection each.
    pub(crate) fn with_once(self, once: Vec<Rule>) -> PolicyVersion {
        PolicyVersion { once, ..self }
    }

    /// Whether a rule for one connection is about this name.
    pub(crate) fn is_allowed_once(&self, name: &HostName) -> bool {
        self.once.iter().any(|rule| rule.host.matches(name))
    }

    /// What the policy is called.
    pub fn digest(&self) -> &PolicyDigest {
        &self.digest
    }

    /// How often it had changed before.
    pub fn number(&self) -> u64 {
        self.number
    }
}

/// A version is read as the policy that it is.
impl Deref for PolicyVersion {
    type Target = EgressPolicy;

    fn deref(&self) -> &EgressPolicy {
        &self.policy
    }
}

impl PolicyDigest {
    /// Of this policy.
    pub fn of(policy: &EgressPolicy) -> PolicyDigest {
        let hash = digest(&SHA256, policy.canonical().as_bytes());
        PolicyDigest(HEXLOWER.encode(&hash.as_ref()[..DIGEST_BYTES]))
    }

    /// In hexadecimal.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for PolicyDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// 128 bits: no one finds another policy with the same digest, and a person can compare it.
const DIGEST_BYTES: usize = 16;
