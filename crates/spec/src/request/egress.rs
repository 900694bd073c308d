//! What a sandbox may reach.

use super::field::request;
use crate::egress::{GroupName, HostPattern, HostPort, Mode, Protocol, Rule, RuleError, RuleSource};
use std::fmt;
use std::str::FromStr;

request! {
    /// What may be reached.
    pub struct EgressRequest {
        /// none, strict, ask or open.
        mode: Option<Mode> as Option<String>, grant;
        /// Names: `example.com`, `=api.example.com:443`.
        allow: Vec<AllowRule> as Vec<String>, grant;
        /// Names that stay out of reach, whatever allows them.
        deny: Vec<DenyRule> as Vec<String>, anyone;
        /// Groups of names: `github`, `registries`.
        groups: Vec<GroupName> as Vec<String>, grant;
        /// Ports of this machine's loopback address, reached as `host.belljar.internal`.
        host_ports: Vec<HostPort> as Vec<u16>, owner;
        /// Whether TLS to every name is looked into.
        inspect: bool, anyone;
    }
}

/// A rule that allows, before it is known who wrote it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AllowRule(Rule);

/// A rule that forbids, before it is known who wrote it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DenyRule(Rule);

impl AllowRule {
    /// The rule, as one of this source.
    pub fn rule(&self, source: RuleSource) -> Rule {
        self.0.clone().written_by(source)
    }

    /// Which names.
    pub fn host(&self) -> &HostPattern {
        &self.0.host
    }

    /// Does it open a port to bytes that the gateway cannot look into?
    pub(super) fn passes_tcp(&self) -> bool {
        self.0.openings.iter().any(|opening| opening.protocols.contains(Protocol::Tcp))
    }
}

impl DenyRule {
    /// The rule, as one of this source.
    pub fn rule(&self, source: RuleSource) -> Rule {
        self.0.clone().written_by(source)
    }
}

impl FromStr for AllowRule {
    type Err = RuleError;

    fn from_str(text: &str) -> Result<AllowRule, RuleError> {
        Rule::allow(text, RuleSource::Program).map(AllowRule)
    }
}

impl FromStr for DenyRule {
    type Err = RuleError;

    fn from_str(text: &str) -> Result<DenyRule, RuleError> {
        Rule::deny(text, RuleSource::Program).map(DenyRule)
    }
}

impl fmt::Display for AllowRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for DenyRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

crate::text::serde_as_text!(AllowRule, DenyRule);
