//! Worlds in which the gateway looks into TLS: rules about requests, and servers that it can verify.

use crate::World;
use belljar_spec::egress::{EgressPolicy, RequestFilter, Rule, RuleSource};

impl World {
    /// A policy that allows nothing yet, and whose servers may have certificates of this world's authority.
    pub fn trusting(&self) -> EgressPolicy {
        EgressPolicy { authorities: self.authority.pem().into_bytes(), ..self.policy([]) }
    }

    /// The same with one rule, for these requests alone.
    pub fn inspecting(&self, rule: &str, methods: &[&str], paths: &[&str]) -> EgressPolicy {
        self.trusting().allow(about_requests(rule, methods, paths))
    }
}

/// A rule for these requests alone; empty lists mean any.
pub fn about_requests(rule: &str, methods: &[&str], paths: &[&str]) -> Rule {
    let filter = RequestFilter {
        methods: methods.iter().map(|method| method.parse().expect("a method")).collect(),
        paths: paths.iter().map(|path| path.parse().expect("a path")).collect(),
    };
    let rule = Rule::allow(rule, RuleSource::Program).unwrap_or_else(|error| panic!("{rule}: {error}"));
    rule.requests(filter)
}
