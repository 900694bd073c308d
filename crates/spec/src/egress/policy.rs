//! What a sandbox may reach.

use super::{
    Group, HostName, HostPattern, HostPort, Printable, Rule, RuleError, RuleSource, UpstreamProxy,
    is_this_machine,
};
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
    /// The only names that anyone beside the operator may allow, also while the sandbox lives; `None` means any.
    pub only: Option<Vec<HostPattern>>,
    /// Reserved ranges that may be dialled. Only the operator can name them, and the user for sandboxes of their own.
    pub private: Vec<IpNet>,
    /// Ports of this machine's loopback address that may be dialled, by the name [`super::THIS_MACHINE`] alone. Each has its rule in
    /// `allow`; without a port here no rule opens that name.
    pub host_ports: Vec<HostPort>,
    /// Which resolvers are asked for addresses; empty means the system's.
    pub resolvers: Vec<SocketAddr>,
    /// Through which proxy is dialled; `None` means that the machine dials itself. Only the operator and the user can name one.
    pub proxy: Option<UpstreamProxy>,
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
    /// What a rule allows; of any other name a person outside is asked.
    Ask,
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

    /// With a port of this machine.
    pub fn open_host_port(&mut self, port: HostPort, source: RuleSource) -> Result<(), RuleError> {
        self.allow.push(port.rule(source)?);
        self.host_ports.push(port);
        Ok(())
    }

    /// Whether the name stands for this machine, and the port of it was opened. `None` for any other name.
    pub fn opens_host_port(&self, name: &HostName, port: u16) -> Option<bool> {
        is_this_machine(name).then(|| self.host_ports.iter().any(|open| open.number() == port))
    }

    /// What it means, in a form that is the same for policies that mean the same: rules without their places, in one order. Its
    /// digest names the policy.
    pub fn canonical(&self) -> String {
        // Taken apart, so that a new field is not left out unseen.
        let EgressPolicy {
            mode,
            allow,
            deny,
            only,
            private,
            host_ports,
            resolvers,
            proxy,
            authorities,
            inspect,
            limits,
        } = self;
        let mut lines = Vec::new();
        for (effect, rules) in [("allow", allow), ("deny", deny)] {
            lines.extend(rules.iter().map(|rule| {
                let openings: Vec<String> = rule.openings.iter().map(ToString::to_string).collect();
                let requests =
                    rule.requests.as_ref().map(|filter| format!(" {filter:?}")).unwrap_or_default();
                format!("{effect} {} {}{requests}", rule.host, openings.join(" "))
            }));
        }
        lines.extend(private.iter().map(|range| format!("private {range}")));
        lines.extend(host_ports.iter().map(|port| format!("host-port {port}")));
        lines.extend(only.iter().flatten().map(|host| format!("only {host}")));
        lines.sort_unstable();
        lines.dedup();
        // The order of these means something.
        lines.extend(resolvers.iter().map(|resolver| format!("resolver {resolver}")));
        lines.extend(proxy.iter().map(|proxy| {
            let except: Vec<String> = proxy.except.iter().map(ToString::to_string).collect();
            format!("proxy {} {:?} {}", proxy.at, proxy.resolve, except.join(" "))
        }));
        let EgressLimits { connections, bytes } = limits;
        let bytes = bytes.map_or("none".to_string(), |bytes| bytes.as_u64().to_string());
        let authorities = String::from_utf8_lossy(authorities);
        let restricted = only.is_some();
        format!(
            "mode {mode}\ninspect {inspect}\nonly {restricted}\nconnections {connections}\nbytes {bytes}\n{}\n{authorities}",
            lines.join("\n")
        )
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
    pub const ALL: [Mode; 4] = [Mode::None, Mode::Strict, Mode::Ask, Mode::Open];

    /// As people write it.
    pub fn as_str(self) -> &'static str {
        match self {
            Mode::None => "none",
            Mode::Strict => "strict",
            Mode::Ask => "ask",
            Mode::Open => "open",
        }
    }
}

/// A word that is no mode.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not an egress mode: write none, strict, ask or open")]
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
    use crate::egress::RuleSource;

    #[test]
    fn the_default_allows_nothing() {
        let policy = EgressPolicy::default();
        assert_eq!((policy.mode, policy.allow.len(), policy.private.len()), (Mode::Strict, 0, 0));
    }

    #[test]
    fn policies_that_mean_the_same_have_one_canonical_form() {
        let rule = |text: &str, source| Rule::allow(text, source).expect(text);
        let file = RuleSource::File { path: "/x".into(), line: 3 };
        let (a, b) = (rule("a.example", RuleSource::Flag), rule("b.example:22", RuleSource::Flag));
        let one = EgressPolicy::strict().allow(a.clone()).allow(b.clone());
        let same = EgressPolicy::strict().allow(b.clone()).allow(rule("a.example", file)).allow(b);
        assert_eq!(one.canonical(), same.canonical());
        let exact = rule("=a.example", RuleSource::Flag);
        let narrowed = a.clone().requests(crate::egress::RequestFilter::ANY);
        for other in [
            EgressPolicy::strict().allow(a.clone()),
            EgressPolicy { mode: Mode::Ask, ..one.clone() },
            EgressPolicy { only: Some(Vec::new()), ..one.clone() },
            EgressPolicy { inspect: true, ..one.clone() },
            one.clone().deny(a),
            one.clone().allow(exact),
            one.clone().allow(narrowed),
        ] {
            assert_ne!(one.canonical(), other.canonical(), "{other:?}");
        }
    }

    #[test]
    fn modes_are_ordered_by_width() {
        assert!(Mode::None < Mode::Strict && Mode::Strict < Mode::Ask && Mode::Ask < Mode::Open);
        for mode in Mode::ALL {
            assert_eq!(mode.as_str().parse(), Ok(mode));
        }
        assert!("wide".parse::<Mode>().is_err());
    }
}
