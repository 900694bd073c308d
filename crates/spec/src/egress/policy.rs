//! What a sandbox may reach.

use super::{Group, Printable, Rule};
use crate::ByteSize;
use ipnet::IpNet;
use serde::Serialize;
use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;

/// Everything that is asked before a byte leaves. The default is strict, with nothing allowed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EgressPolicy {
    /// How wide egress is open at all.
    pub mode: Mode,
    /// What may be reached.
    pub allow: Vec<Rule>,
    /// What may not be reached, whatever allows it.
    pub deny: Vec<Rule>,
    /// Reserved ranges that may be dialled. Only the operator can name them.
    pub private: Vec<IpNet>,
    /// Which resolvers are asked for addresses; empty means the system's.
    pub resolvers: Vec<SocketAddr>,
    /// Authorities, as PEM, that a server's certificate may come from beside the system's. Asked only where the gateway
    /// itself speaks TLS to the server.
    pub authorities: Vec<u8>,
    /// Whether TLS to every name is looked into, and not only where a rule is about requests or a credential belongs.
    pub inspect: bool,
    /// How much.
    pub limits: EgressLimits,
}

/// How wide egress is open, narrowest first.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// No egress.
    None,
    /// What a rule allows.
    #[default]
    Strict,
    /// Any public name.
    Open,
}

/// How much may leave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EgressLimits {
    /// Connections at once.
    pub connections: u32,
    /// Bytes in both directions together; none means as many as there are.
    pub bytes: Option<ByteSize>,
}

impl EgressPolicy {
    /// No egress.
    pub fn none() -> EgressPolicy {
        EgressPolicy { mode: Mode::None, ..EgressPolicy::default() }
    }

    /// What rules allow; none yet.
    pub fn strict() -> EgressPolicy {
        EgressPolicy { mode: Mode::Strict, ..EgressPolicy::default() }
    }

    /// Any public name.
    pub fn open() -> EgressPolicy {
        EgressPolicy { mode: Mode::Open, ..EgressPolicy::default() }
    }

    /// With one more rule that allows.
    #[must_use]
    pub fn allow(mut self, rule: Rule) -> EgressPolicy {
        self.allow.push(rule);
        self
    }

    /// With the rules of a group.
    #[must_use]
    pub fn allow_group(mut self, group: &Group) -> EgressPolicy {
        self.allow.extend(group.rules().cloned());
        self
    }

    /// With one more rule that forbids; made by [`Rule::deny`].
    #[must_use]
    pub fn deny(mut self, rule: Rule) -> EgressPolicy {
        self.deny.push(rule);
        self
    }
}

impl Mode {
    /// Narrowest first.
    pub const ALL: [Mode; 3] = [Mode::None, Mode::Strict, Mode::Open];

    /// As people write it.
    pub fn as_str(self) -> &'static str {
        match self {
            Mode::None => "none",
            Mode::Strict => "strict",
            Mode::Open => "open",
        }
    }
}

/// A word that is no mode.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not an egress mode: write none, strict or open")]
pub struct UnknownMode(pub Printable);

impl EgressLimits {
    /// As many as one address of a sandbox can tell apart by their ports.
    pub const MAX_CONNECTIONS: u32 = 65_535;
}

impl Default for EgressLimits {
    fn default() -> EgressLimits {
        EgressLimits { connections: DEFAULT_CONNECTIONS, bytes: None }
    }
}

impl FromStr for Mode {
    type Err = UnknownMode;

    fn from_str(text: &str) -> Result<Mode, UnknownMode> {
        Mode::ALL.into_iter().find(|mode| mode.as_str() == text).ok_or_else(|| UnknownMode(text.into()))
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

crate::text::read_as_text!(Mode);

/// More than a parallel package manager opens, few enough to hold in memory.
const DEFAULT_CONNECTIONS: u32 = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_allows_nothing() {
        let policy = EgressPolicy::default();
        assert_eq!((policy.mode, policy.allow.len(), policy.private.len()), (Mode::Strict, 0, 0));
    }

    #[test]
    fn modes_are_ordered_by_width() {
        assert!(Mode::None < Mode::Strict && Mode::Strict < Mode::Open);
        for mode in Mode::ALL {
            assert_eq!(mode.as_str().parse(), Ok(mode));
        }
        assert!("wide".parse::<Mode>().is_err());
    }
}
