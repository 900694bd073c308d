//! What was said for one run.

use belljar_spec::egress::{GroupName, Mode, Rule, RuleSource};
use belljar_spec::request::EgressRequest;

/// Of the command line, or of a program: no layer, but held by what the operator set.
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
    /// `--inspect`.
    pub inspect: bool,
}

impl EgressFlags {
    /// What a request says, with rules that this source wrote.
    pub fn of(request: &EgressRequest, source: &RuleSource) -> EgressFlags {
        EgressFlags {
            mode: request.mode,
            allow: request.allow.iter().map(|rule| rule.rule(source.clone())).collect(),
            deny: request.deny.iter().map(|rule| rule.rule(source.clone())).collect(),
            groups: request.groups.clone(),
            inspect: request.inspect,
        }
    }

    /// Was nothing said?
    pub fn is_empty(&self) -> bool {
        *self == EgressFlags::default()
    }
}
