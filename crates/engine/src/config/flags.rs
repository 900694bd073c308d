//! What was said for one run.

use belljar_spec::egress::{GroupName, Mode, Rule};

/// Of the command line, or of a program: no layer, but held by what the operator set.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EgressFlags {
    /// `--egress`.
    pub mode: Option<Mode>,
    /// `--allow`.
    pub allow: Vec<Rule>,
    /// What may not be reached, whoever allows it.
    pub deny: Vec<Rule>,
    /// `--group`.
    pub groups: Vec<GroupName>,
    /// `--inspect`.
    pub inspect: bool,
}

impl EgressFlags {
    /// Was nothing said?
    pub fn is_empty(&self) -> bool {
        *self == EgressFlags::default()
    }
}
