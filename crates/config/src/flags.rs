//! The settings of one run.

use belljar_spec::egress::{GroupName, HostPort, Mode, Rule, RuleSource};
use belljar_spec::request::EgressRequest;

/// From the command line, or a program: not a layer, but within the operator's limits.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EgressFlags {
    /// `--egress`.
    pub mode: Option<Mode>,
    /// `--allow`.
    pub allow: Vec<Rule>,
    /// What may not be reached, even if another layer allows it.
    pub deny: Vec<Rule>,
    /// `--group`.
    pub groups: Vec<GroupName>,
    /// `--allow-host`.
    pub host_ports: Vec<(HostPort, RuleSource)>,
    /// `--inspect`.
    pub inspect: bool,
}

impl EgressFlags {
    /// The settings of a request, with rules of this source.
    pub fn of(request: &EgressRequest, source: &RuleSource) -> EgressFlags {
        EgressFlags {
            mode: request.mode,
            allow: request.allow.iter().map(|rule| rule.rule(source.clone())).collect(),
            deny: request.deny.iter().map(|rule| rule.rule(source.clone())).collect(),
            groups: request.groups.clone(),
            host_ports: request.host_ports.iter().map(|port| (*port, source.clone())).collect(),
            inspect: request.inspect,
        }
    }

    /// Is nothing set?
    pub fn is_empty(&self) -> bool {
        *self == EgressFlags::default()
    }
}
