//! One line of a policy: a host, its ports, what may be spoken there, and where the line came from.

use super::{
    GroupName, HostName, HostPattern, HostPatternError, PortRange, PortRangeError, Protocol, ProtocolSet,
    RequestFilter, UnknownProtocol, spelled_address,
};
use crate::secret::SecretName;
use serde::{Serialize, Serializer};
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// `HOST[:PORTS][/PROTOCOL]`, understood.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// Which names.
    pub host: HostPattern,
    /// At which ports, speaking what.
    pub openings: Vec<Opening>,
    /// Which requests there; `None` means that the gateway does not look into a connection. Only rules that allow have one, and only
    /// of TLS and HTTP.
    pub requests: Option<RequestFilter>,
    /// Where it came from.
    pub label: RuleLabel,
}

/// Ports and what may be spoken there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Opening {
    pub ports: PortRange,
    pub protocols: ProtocolSet,
}

/// What a permit, a record and an explanation call a rule: as it was written, and where.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RuleLabel {
    source: RuleSource,
    text: Arc<str>,
}

/// Who wrote a rule.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub enum RuleSource {
    /// `--allow` on the command line.
    Flag,
    /// A group that comes with belljar.
    Group(GroupName),
    /// A line of a file.
    File { path: Arc<str>, line: usize },
    /// A program that uses the library.
    #[default]
    Program,
    /// Open mode itself.
    Mode,
    /// A credential that the run uses: its places can be reached.
    Credential(SecretName),
    /// A person or program outside, while the sandbox lives: who.
    Live(Arc<str>),
}

impl Rule {
    /// A rule that allows. Without port and protocol: TLS at 443 and HTTP at 80. With a protocol alone: at its usual
    /// port. With a port alone: what is usual there, elsewhere TLS and HTTP.
    pub fn allow(text: &str, source: RuleSource) -> Result<Rule, RuleError> {
        let written = Written::split(text)?;
        let host: HostPattern = written.host.parse()?;
        if written
            .ports
            .is_some_and(|ports| (ports.first(), ports.last()) == (PortRange::DNS, PortRange::DNS))
        {
            return Err(RuleError::ResolverPort(host));
        }
        let openings = match (written.ports, written.protocol) {
            (None, None) => vec![usual(443, Protocol::Tls)?, usual(80, Protocol::Http)?],
            (None, Some(protocol)) => match protocol.usual_port() {
                Some(port) => vec![usual(port, protocol)?],
                None => return Err(RuleError::TcpWithoutPort(host)),
            },
            (Some(ports), Some(protocol)) => vec![Opening { ports, protocols: protocol.into() }],
            (Some(ports), None) => {
                let known = Protocol::usual_at(ports.first()).filter(|_| ports.first() == ports.last());
                let protocols = known.map_or_else(web, ProtocolSet::from);
                vec![Opening { ports, protocols }]
            }
        };
        Ok(Rule::parsed(text, host, openings, source))
    }

    /// A rule that forbids. What is not written is not spared: without port every port, without protocol everything. It
    /// may name a public suffix, since it opens nothing.
    pub fn deny(text: &str, source: RuleSource) -> Result<Rule, RuleError> {
        let written = Written::split(text)?;
        let host = HostPattern::of_any_width(written.host)?;
        let opening = Opening {
            ports: written.ports.unwrap_or(PortRange::ALL),
            protocols: written.protocol.map_or_else(ProtocolSet::all, ProtocolSet::from),
        };
        Ok(Rule::parsed(text, host, vec![opening], source))
    }

    /// Does it mean this name, and if one is given, this port?
    pub fn matches(&self, name: &HostName, port: Option<u16>) -> bool {
        let opens = |port| self.openings.iter().any(|opening| opening.ports.contains(port));
        self.host.matches(name) && port.is_none_or(opens)
    }

    /// The same rule for these requests alone.
    #[must_use]
    pub fn requests(mut self, filter: RequestFilter) -> Rule {
        self.requests = Some(filter);
        self
    }

    /// The same rule as one of another source.
    #[must_use]
    pub fn written_by(mut self, source: RuleSource) -> Rule {
        self.label.source = source;
        self
    }

    /// What it says may be spoken at a port.
    pub fn protocols_at(&self, port: u16) -> ProtocolSet {
        Opening::protocols_at(&self.openings, port)
    }

    fn parsed(text: &str, host: HostPattern, openings: Vec<Opening>, source: RuleSource) -> Rule {
        // Letters that look like others are shown as what they are.
        let text = match text.is_ascii() {
            true => text.trim().to_string(),
            false => format!("{host}{}", text.find([':', '/']).map_or("", |rest| &text[rest..]).trim_end()),
        };
        Rule { host, openings, requests: None, label: RuleLabel::new(source, &text) }
    }
}

impl Opening {
    /// What may be spoken at a port, all of them together.
    pub fn protocols_at(openings: &[Opening], port: u16) -> ProtocolSet {
        openings
            .iter()
            .filter(|opening| opening.ports.contains(port))
            .fold(ProtocolSet::EMPTY, |protocols, opening| protocols.union(opening.protocols))
    }
}

impl RuleLabel {
    /// Of a rule that stands somewhere.
    pub fn new(source: RuleSource, text: &str) -> RuleLabel {
        RuleLabel { source, text: text.into() }
    }

    /// Who wrote it.
    pub fn source(&self) -> &RuleSource {
        &self.source
    }

    /// As it was written.
    pub fn text(&self) -> &str {
        &self.text
    }
}

/// Text that is no rule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RuleError {
    #[error(transparent)]
    Host(#[from] HostPatternError),
    #[error(transparent)]
    Ports(#[from] PortRangeError),
    #[error(transparent)]
    Protocol(#[from] UnknownProtocol),
    /// Anything, at any port, is no rule.
    #[error("`{0}/tcp` has no port: write the one that is needed, as in `{0}:8443/tcp`")]
    TcpWithoutPort(HostPattern),
    /// A port that never leads to the host.
    #[error(
        "`{0}:53` can be reached by no rule: every connection to port 53 is a question for names, which belljar answers itself"
    )]
    ResolverPort(HostPattern),
}

/// The parts of a line, the host not yet understood.
struct Written<'a> {
    host: &'a str,
    ports: Option<PortRange>,
    protocol: Option<Protocol>,
}

impl Written<'_> {
    fn split(text: &str) -> Result<Written<'_>, RuleError> {
        let text = text.trim();
        // What is no rule at all is told by what it is, not by its first strange part.
        let bare = text.strip_prefix('=').unwrap_or(text);
        let bracketed = bare.strip_prefix('[').and_then(|rest| rest.split_once(']'));
        if let Some(address) = spelled_address(bracketed.map_or(bare, |(inside, _)| inside)) {
            return Err(HostPatternError::Address(address).into());
        }
        if text.contains("://") || text.contains('@') {
            HostPattern::of_any_width(text)?;
        }
        let (front, protocol) = match text.split_once('/') {
            Some((front, "")) => return Err(path(text, front)),
            Some((front, word)) if word.contains('/') => return Err(path(text, front)),
            Some((front, word)) => (front, Some(word.parse()?)),
            None => (text, None),
        };
        let (host, ports) = match front.split_once(':') {
            Some((host, ports)) => (host, Some(ports.parse()?)),
            None => (front, None),
        };
        Ok(Written { host, ports, protocol })
    }
}

fn path(text: &str, host: &str) -> RuleError {
    HostPatternError::Path { text: text.into(), host: host.into() }.into()
}

fn usual(port: u16, protocol: Protocol) -> Result<Opening, RuleError> {
    Ok(Opening { ports: PortRange::only(port)?, protocols: protocol.into() })
}

fn web() -> ProtocolSet {
    [Protocol::Tls, Protocol::Http].into_iter().collect()
}

/// As a library caller writes one; see [`Rule::allow`] to say where it came from.
impl FromStr for Rule {
    type Err = RuleError;

    fn from_str(text: &str) -> Result<Rule, RuleError> {
        Rule::allow(text, RuleSource::Program)
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.label.text)
    }
}

impl fmt::Display for Opening {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.ports, self.protocols)
    }
}

impl fmt::Display for RuleLabel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.source {
            RuleSource::Mode => f.write_str("open mode"),
            source => write!(f, "`{}` ({source})", self.text),
        }
    }
}

impl fmt::Display for RuleSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RuleSource::Flag => f.write_str("--allow"),
            RuleSource::Group(group) => write!(f, "group {group}"),
            RuleSource::File { path, line } => write!(f, "{path}:{line}"),
            RuleSource::Program => f.write_str("program"),
            RuleSource::Mode => f.write_str("open mode"),
            RuleSource::Credential(name) => write!(f, "credential {name}"),
            RuleSource::Live(who) => write!(f, "live, by {who}"),
        }
    }
}

impl Serialize for RuleLabel {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_parsed() {
        for (text, expected) in [
            ("example.com", "example.com 443 (tls) 80 (http)"),
            (" example.com ", "example.com 443 (tls) 80 (http)"),
            ("=api.x.com:8443/tls", "=api.x.com 8443 (tls)"),
            ("db.x.com:5432/postgres", "db.x.com 5432 (postgres)"),
            ("x.com:8000-8100/tcp", "x.com 8000-8100 (tcp)"),
            ("x.com/ssh", "x.com 22 (ssh)"),
            ("x.com/postgres", "x.com 5432 (postgres)"),
            ("x.com/http", "x.com 80 (http)"),
            ("x.com:443", "x.com 443 (tls)"),
            ("x.com:80", "x.com 80 (http)"),
            ("x.com:22", "x.com 22 (ssh)"),
            ("x.com:5432", "x.com 5432 (postgres)"),
            ("x.com:8080", "x.com 8080 (tls, http)"),
            ("x.com:22-23", "x.com 22-23 (tls, http)"),
        ] {
            let rule = Rule::allow(text, RuleSource::Flag).expect(text);
            let openings: Vec<String> = rule.openings.iter().map(Opening::to_string).collect();
            assert_eq!(format!("{} {}", rule.host, openings.join(" ")), expected, "{text}");
            assert_eq!(rule.label.text(), text.trim());
        }
    }

    #[test]
    fn a_line_that_forbids_spares_nothing_it_does_not_write() {
        for (text, expected) in [
            ("x.com", "x.com 1-65535 (tls, http, ssh, postgres, tcp)"),
            ("x.com:25", "x.com 25 (tls, http, ssh, postgres, tcp)"),
            ("x.com/ssh", "x.com 1-65535 (ssh)"),
            ("=com", "=com 1-65535 (tls, http, ssh, postgres, tcp)"),
            ("com", "com 1-65535 (tls, http, ssh, postgres, tcp)"),
        ] {
            let rule = Rule::deny(text, RuleSource::Program).expect(text);
            assert_eq!(format!("{} {}", rule.host, rule.openings[0]), expected, "{text}");
        }
    }

    #[test]
    fn what_is_no_rule_is_refused_with_the_fix() {
        for (text, fix) in [
            ("x.com/tcp", "as in `x.com:8443/tcp`"),
            ("x.com/udp", "`udp` is not a protocol"),
            ("x.com/", "write the host alone, `x.com`"),
            ("x.com/a/b", "write the host alone, `x.com`"),
            ("x.com:", "is not a port"),
            ("x.com:0", "is not a port"),
            ("x.com:443:444", "is not a port"),
            ("x.com:90-80", "write `80-90`"),
            (":443", "host name is missing"),
            ("/tls", "host name is missing"),
            ("", "host name is missing"),
            ("*.x.com:443", "write `x.com`"),
            ("https://x.com/", "is a URL"),
            ("git@github.com:org/repo", "`github.com`"),
            ("1.2.3.4:443/tls", "is an address"),
            ("::1", "is an address"),
            ("[::1]:443", "is an address"),
            ("=[fe80::1%eth0]:443/tcp", "is an address"),
            ("0x7f.1:80", "is an address"),
            ("co.uk:443", "public suffix"),
            ("x.com:53", "every connection to port 53 is a question for names"),
            ("x.com:53/tcp", "every connection to port 53 is a question for names"),
        ] {
            let error = Rule::allow(text, RuleSource::Flag).expect_err(text).to_string();
            assert!(error.contains(fix), "{text}: {error}");
        }
    }

    #[test]
    fn a_label_says_what_was_written_and_where() {
        for (text, source, expected) in [
            ("example.com", RuleSource::Flag, "`example.com` (--allow)"),
            ("x", RuleSource::File { path: "belljar.toml".into(), line: 12 }, "`x` (belljar.toml:12)"),
            ("BÜCHER.example:8443/tls", RuleSource::Program, "`xn--bcher-kva.example:8443/tls` (program)"),
        ] {
            assert_eq!(Rule::allow(text, source).expect(text).label.to_string(), expected);
        }
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_refused_or_a_rule(text in "\\PC{0,30}|=?[a-z.]{1,12}(:[0-9-]{0,8})?(/[a-z]{0,8})?") {
            let _ = Rule::deny(&text, RuleSource::Program);
            if let Ok(rule) = text.parse::<Rule>() {
                let again: Rule = rule.to_string().parse().expect("what was written is a rule");
                proptest::prop_assert_eq!((again.host, again.openings), (rule.host, rule.openings));
            }
        }
    }
}
