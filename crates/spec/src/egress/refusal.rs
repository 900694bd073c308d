//! A refusal: not an error, but a value that says what did not leave, why, and what would let it.

use super::{
    HostName, HostNameError, HostPattern, PortRange, Printable, Protocol, Reason, RequestMethod, RuleLabel,
    THIS_MACHINE, is_this_machine, spelled_address,
};
use ipnet::IpNet;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::net::IpAddr;

/// What was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// Whom it was for.
    pub destination: Destination,
    /// At which port, if it came to that.
    pub port: Option<u16>,
    /// Speaking what, if it came to that.
    pub protocol: Option<Protocol>,
    /// Why.
    pub reason: Reason,
    /// What exactly: the server name that was seen, the address that was found.
    pub detail: Option<Printable>,
    /// The range that an operator could name to let it through. Nothing for addresses that no caller should be helped to reach.
    pub lift: Option<IpNet>,
    /// The request, if it was one, and not the connection.
    pub request: Option<Box<RefusedRequest>>,
}

/// A request that was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusedRequest {
    /// `GET` and the like.
    pub method: Printable,
    /// Without its query, which may be confidential.
    pub path: Printable,
    /// A rule for the host that does not allow it, if rules there are about requests.
    pub rule: Option<RuleLabel>,
}

/// Whom something was for.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Destination {
    /// A name.
    Name(HostName),
    /// Text that is no name.
    Text(Printable),
    /// A number.
    Address(IpAddr),
}

/// Something that was refused, so many times.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    pub refusal: Refusal,
    pub times: u64,
}

impl Refusal {
    /// With what is always known.
    pub fn new(destination: impl Into<Destination>, port: Option<u16>, reason: Reason) -> Refusal {
        Refusal {
            destination: destination.into(),
            port,
            protocol: None,
            reason,
            detail: None,
            lift: None,
            request: None,
        }
    }

    /// What it spoke.
    #[must_use]
    pub fn protocol(mut self, protocol: Protocol) -> Refusal {
        self.protocol = Some(protocol);
        self
    }

    /// What exactly.
    #[must_use]
    pub fn detail(mut self, detail: &str) -> Refusal {
        self.detail = Some(detail.into());
        self
    }

    /// What an operator could name.
    #[must_use]
    pub fn lift(mut self, range: IpNet) -> Refusal {
        self.lift = Some(range);
        self
    }

    /// Which request.
    #[must_use]
    pub fn request(mut self, method: &str, target: &str, rule: Option<RuleLabel>) -> Refusal {
        let path = target.split(['?', '#']).next().unwrap_or_default();
        let cut = path.char_indices().nth(RefusedRequest::PATH).map_or(path, |(end, _)| &path[..end]);
        self.request = Some(Box::new(RefusedRequest { method: method.into(), path: cut.into(), rule }));
        self
    }

    /// What a program inside is told: who and why, without what only the host's side should know (where a name leads, what a
    /// resolver said, which secret it is).
    pub fn for_the_inside(&self) -> Refusal {
        let is_shown = match self.reason {
            Reason::PrivateAddress
            | Reason::NameDenied
            | Reason::NotResolved
            | Reason::SecretUnavailable
            | Reason::NotRecorded => false,
            Reason::EgressOff
            | Reason::NameNotAllowed
            | Reason::NotApproved
            | Reason::NameMalformed
            | Reason::PortNotAllowed
            | Reason::DirectAddress
            | Reason::ProtocolNotAllowed
            | Reason::ServerNameMissing
            | Reason::ServerNameDiffers
            | Reason::EncryptedHello
            | Reason::HostMissing
            | Reason::HostDiffers
            | Reason::MalformedStart
            | Reason::SilentClient
            | Reason::TooManyAddresses
            | Reason::DialFailed
            | Reason::TooManyConnections
            | Reason::ByteLimit
            | Reason::TooManyNames
            | Reason::IdleTimeout
            | Reason::RecordTypeRefused
            | Reason::TooManyRedirects
            | Reason::TooLarge
            | Reason::TooSlow
            | Reason::RequestNotAllowed
            | Reason::RequestMalformed
            | Reason::PlaceholderElsewhere
            | Reason::UpstreamUntrusted
            | Reason::ClientDistrusts
            | Reason::ClientCertificateRequested
            | Reason::EncodedResponse
            | Reason::BudgetSpent
            | Reason::PriceUnknown
            | Reason::ModelNotAllowed
            | Reason::PushRefused => true,
        };
        Refusal { detail: self.detail.clone().filter(|_| is_shown), lift: None, ..self.clone() }
    }

    /// The exact flag or line that would allow it, if there is one.
    pub fn remedy(&self) -> Option<String> {
        let Destination::Name(name) = &self.destination else {
            return None;
        };
        // Of a service (`_http._tcp.x`) there is only a record, and no host that a rule could open.
        if self.port == Some(PortRange::DNS) || name.as_str().starts_with('_') {
            return None;
        }
        match self.reason {
            Reason::EgressOff => Some(format!("--egress strict --allow {}", self.rule(name, self.protocol))),
            Reason::NameNotAllowed
            | Reason::NotApproved
            | Reason::PortNotAllowed
            | Reason::ProtocolNotAllowed
                if self.protocol != Some(Protocol::Tcp) =>
            {
                Some(format!("--allow {}", self.rule(name, self.protocol)))
            }
            // A foreign protocol, or a server that speaks first: only unchecked does it work.
            Reason::NameNotAllowed
            | Reason::NotApproved
            | Reason::PortNotAllowed
            | Reason::ProtocolNotAllowed
            | Reason::SilentClient => self.unchecked(name),
            Reason::PrivateAddress if is_this_machine(name) => {
                Some(self.port.map_or("--allow-host PORT".into(), |port| format!("--allow-host {port}")))
            }
            Reason::PrivateAddress => self.lift.map(|range| match range.addr().is_loopback() {
                true => format!(
                    "--allow-host {}, and {THIS_MACHINE} as the name of this machine inside",
                    self.port.map_or("PORT".into(), |port| port.to_string())
                ),
                false => format!("private = [\"{range}\"] under [egress] in your belljar.toml"),
            }),
            Reason::RequestNotAllowed => self.request.as_deref().and_then(|request| request.remedy(name)),
            // No authority helps where a certificate is expired, or of another name.
            Reason::UpstreamUntrusted => self.detail.as_ref().is_some_and(|detail| detail.as_str() == UNKNOWN_AUTHORITY).then(|| {
                "authorities = [\"FILE.pem\"] under [egress] in belljar.toml, with the authority that signed it".into()
            }),
            Reason::ClientDistrusts => Some(format!(
                "let the client trust /etc/belljar/authority.pem in the sandbox, or {}",
                unseen(name)
            )),
            Reason::ClientCertificateRequested => Some(unseen(name)),
            // A client that asks for one name and wants another gets no remedy, and limits are not rules.
            Reason::NameDenied
            | Reason::NameMalformed
            | Reason::DirectAddress
            | Reason::ServerNameMissing
            | Reason::ServerNameDiffers
            | Reason::EncryptedHello
            | Reason::HostMissing
            | Reason::HostDiffers
            | Reason::MalformedStart
            | Reason::NotResolved
            | Reason::TooManyAddresses
            | Reason::DialFailed
            | Reason::TooManyConnections
            | Reason::ByteLimit
            | Reason::TooManyNames
            | Reason::IdleTimeout
            | Reason::RecordTypeRefused
            | Reason::TooManyRedirects
            | Reason::TooLarge
            | Reason::TooSlow
            | Reason::NotRecorded
            | Reason::RequestMalformed
            | Reason::PlaceholderElsewhere
            | Reason::SecretUnavailable
            | Reason::EncodedResponse
            | Reason::BudgetSpent
            | Reason::PriceUnknown
            | Reason::ModelNotAllowed
            | Reason::PushRefused => None,
        }
    }

    /// The rule that lets any bytes through, and that it does. Not offered where a protocol is usual that can be checked: to open
    /// that port for everything is more than any client needs.
    fn unchecked(&self, name: &HostName) -> Option<String> {
        self.port.filter(|port| Protocol::usual_at(*port).is_none())?;
        Some(format!("--allow {}", self.rule(name, Some(Protocol::Tcp))))
    }

    /// The shortest rule for what was tried.
    fn rule(&self, name: &HostName, protocol: Option<Protocol>) -> String {
        let host = HostPattern::covering(name);
        match (self.port, protocol) {
            (None | Some(443), None | Some(Protocol::Tls)) | (Some(80), None | Some(Protocol::Http)) => {
                format!("{host}")
            }
            (None, Some(protocol)) => format!("{host}/{protocol}"),
            (Some(port), Some(protocol)) => format!("{host}:{port}/{protocol}"),
            (Some(port), None) => match Protocol::usual_at(port) {
                Some(protocol) => format!("{host}:{port}/{protocol}"),
                None => format!("{host}:{port}"),
            },
        }
    }
}

impl RefusedRequest {
    /// The most characters of a path.
    pub const PATH: usize = 200;

    /// The keys that would allow it. A program inside chose the path, so one that says more than itself is not offered, and
    /// neither are methods without a path, which would allow every path.
    fn remedy(&self, name: &HostName) -> Option<String> {
        let method: RequestMethod = self.method.as_str().parse().ok()?;
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/-_.~".contains(&byte);
        let path = self.path.as_str();
        let is_whole = path.len() < RefusedRequest::PATH;
        let is_plain = is_whole && path.bytes().all(plain) && !path.contains("..");
        is_plain.then(|| {
            format!("methods = [\"{method}\"] and paths = [\"{path}\"] in an [[egress.rule]] for {name}")
        })
    }
}

/// The detail of [`Reason::UpstreamUntrusted`] where another authority would help.
pub const UNKNOWN_AUTHORITY: &str = "it is signed by an authority that is not trusted here";

fn unseen(name: &HostName) -> String {
    format!(
        "let it through unseen: a rule for {name} without `methods`, `paths` and `inspect`, no credential for it, and no inspection of all connections"
    )
}

impl Destination {
    /// What some bytes mean: a name, an address in any spelling, or neither.
    pub fn understand(bytes: &[u8]) -> Destination {
        let text = std::str::from_utf8(bytes).ok();
        match text.map(|text| (text.parse::<HostName>(), spelled_address(text))) {
            Some((Ok(name), _)) => Destination::Name(name),
            Some((Err(HostNameError::Address(address)), _)) | Some((Err(_), Some(address))) => {
                Destination::Address(address)
            }
            Some((Err(_), None)) | None => Destination::Text(Printable::new(bytes)),
        }
    }

    /// The name, if it is one.
    pub fn name(&self) -> Option<&HostName> {
        match self {
            Destination::Name(name) => Some(name),
            Destination::Text(_) | Destination::Address(_) => None,
        }
    }
}

impl From<HostName> for Destination {
    fn from(name: HostName) -> Destination {
        Destination::Name(name)
    }
}

impl From<&HostName> for Destination {
    fn from(name: &HostName) -> Destination {
        Destination::Name(name.clone())
    }
}

impl From<IpAddr> for Destination {
    fn from(address: IpAddr) -> Destination {
        Destination::Address(address)
    }
}

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Destination::Name(name) => write!(f, "{name}"),
            Destination::Text(text) => write!(f, "{text}"),
            Destination::Address(address) => write!(f, "{address}"),
        }
    }
}

impl Serialize for Destination {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// As [`Destination::understand`], and text is escaped already.
impl<'de> Deserialize<'de> for Destination {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Destination, D::Error> {
        let text = String::deserialize(deserializer)?;
        Ok(match Destination::understand(text.as_bytes()) {
            Destination::Text(_) => Destination::Text(Printable::escaped(&text)),
            destination => destination,
        })
    }
}

/// `example.com:443: no rule allows this name`.
impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.destination, self.port) {
            (Destination::Address(IpAddr::V6(address)), Some(port)) => write!(f, "[{address}]:{port}")?,
            (destination, Some(port)) => write!(f, "{destination}:{port}")?,
            (destination, None) => write!(f, "{destination}")?,
        }
        write!(f, ": {}", self.reason)?;
        if let Some(request) = &self.request {
            write!(f, " ({} {})", request.method, request.path)?;
        }
        match &self.detail {
            Some(detail) => write!(f, " ({detail})"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::egress::Rule;

    fn refusal(name: &str, port: Option<u16>, protocol: Option<Protocol>, reason: Reason) -> Refusal {
        let name: HostName = name.parse().expect("a name");
        Refusal { protocol, ..Refusal::new(name, port, reason) }
    }

    #[test]
    fn a_remedy_is_the_flag_that_helps() {
        use Protocol::{Http, Postgres, Ssh, Tcp, Tls};
        for (name, port, protocol, reason, expected) in [
            ("x.com", None, None, Reason::NameNotAllowed, Some("--allow x.com")),
            ("x.com", Some(443), None, Reason::NameNotAllowed, Some("--allow x.com")),
            ("x.com", Some(443), Some(Tls), Reason::NameNotAllowed, Some("--allow x.com")),
            ("x.com", Some(80), Some(Http), Reason::NameNotAllowed, Some("--allow x.com")),
            ("x.com", Some(443), Some(Http), Reason::ProtocolNotAllowed, Some("--allow x.com:443/http")),
            ("co.uk", None, None, Reason::NameNotAllowed, Some("--allow =co.uk")),
            ("x.com", Some(22), None, Reason::PortNotAllowed, Some("--allow x.com:22/ssh")),
            ("x.com", Some(443), Some(Ssh), Reason::ProtocolNotAllowed, Some("--allow x.com:443/ssh")),
            ("db.x", Some(5432), Some(Postgres), Reason::PortNotAllowed, Some("--allow db.x:5432/postgres")),
            ("x.com", Some(8443), None, Reason::PortNotAllowed, Some("--allow x.com:8443")),
            ("x.com", Some(8443), Some(Tcp), Reason::ProtocolNotAllowed, Some("--allow x.com:8443/tcp")),
            ("x.com", Some(25), None, Reason::SilentClient, Some("--allow x.com:25/tcp")),
            ("x.com", Some(443), None, Reason::SilentClient, None),
            ("x.com", Some(443), Some(Tcp), Reason::ProtocolNotAllowed, None),
            ("x.com", Some(443), Some(Tls), Reason::ServerNameMissing, None),
            ("x.com", Some(80), Some(Http), Reason::HostMissing, None),
            ("x.com", Some(443), Some(Tls), Reason::UpstreamUntrusted, None),
            ("x.com", None, None, Reason::EgressOff, Some("--egress strict --allow x.com")),
            ("x.com", Some(443), Some(Tls), Reason::ServerNameDiffers, None),
            ("x.com", Some(443), None, Reason::NameDenied, None),
            ("x.com", Some(443), None, Reason::PrivateAddress, None),
            ("x.com", Some(53), None, Reason::PortNotAllowed, None),
            ("_http._tcp.x.com", None, None, Reason::NameNotAllowed, None),
        ] {
            let refusal = refusal(name, port, protocol, reason);
            assert_eq!(refusal.remedy().as_deref(), expected, "{refusal}");
        }
    }

    #[test]
    fn a_refused_request_is_told_with_the_keys_that_allow_it_and_no_more() {
        let shown = |method: &str, target: &str| {
            let refusal = refusal("x.com", Some(443), Some(Protocol::Tls), Reason::RequestNotAllowed);
            let refusal = refusal.request(method, target, None);
            (refusal.to_string(), refusal.remedy())
        };
        let (words, remedy) = shown("POST", "/a/b?token=1");
        assert_eq!(words, "x.com:443: the host is allowed, but not this request (POST /a/b)");
        let keys = "methods = [\"POST\"] and paths = [\"/a/b\"] in an [[egress.rule]] for x.com";
        assert_eq!(remedy.as_deref(), Some(keys));
        for target in ["/**", "/a\"]\nprivate = [\"", "/../x", "/%2e", "/ä", &"/a".repeat(5000)] {
            assert_eq!(shown("GET", target).1, None, "{target}");
        }
        assert_eq!(shown("G\"T", "/").1, None);
        assert!(shown("GET", &"/a".repeat(5000)).0.len() < 400);
    }

    #[test]
    fn a_remedy_allows_what_was_refused() {
        for port in [1, 22, 80, 443, 5432, 8443, 65535] {
            for protocol in Protocol::ALL.map(Some).into_iter().chain([None]) {
                let refusal = refusal("a.x.com", Some(port), protocol, Reason::PortNotAllowed);
                let Some(remedy) = refusal.remedy() else {
                    assert!(
                        protocol == Some(Protocol::Tcp) && Protocol::usual_at(port).is_some(),
                        "{refusal}"
                    );
                    continue;
                };
                let rule = remedy.strip_prefix("--allow ").expect("a flag");
                let rule: Rule = rule.split(' ').next().expect("a word").parse().expect("a rule");
                let protocols = rule.protocols_at(port);
                assert!(
                    protocol.map_or(!protocols.is_empty(), |protocol| protocols.contains(protocol)),
                    "{remedy}"
                );
            }
        }
    }

    #[test]
    fn an_operator_is_told_the_line_and_a_dialled_number_has_no_remedy() {
        let private = refusal("db.x", Some(5432), None, Reason::PrivateAddress)
            .lift("10.0.0.5/32".parse().expect("a range"))
            .detail("10.0.0.5");
        let line = "private = [\"10.0.0.5/32\"] under [egress] in your belljar.toml";
        assert_eq!(private.remedy().as_deref(), Some(line));
        assert_eq!(
            private.to_string(),
            "db.x:5432: the name leads to an address that is not public (10.0.0.5)"
        );
        let inside = private.for_the_inside();
        assert_eq!(inside.to_string(), "db.x:5432: the name leads to an address that is not public");
        assert_eq!(inside.remedy(), None);
        let own = refusal("db.x", Some(5432), None, Reason::PrivateAddress)
            .lift("127.0.0.1/32".parse().expect("a range"));
        let line = "--allow-host 5432, and host.belljar.internal as the name of this machine inside";
        assert_eq!(own.remedy().as_deref(), Some(line));
        let machine = refusal("host.belljar.internal", Some(5432), None, Reason::PrivateAddress);
        assert_eq!(machine.remedy().as_deref(), Some("--allow-host 5432"));
        let untrusted = refusal("x.com", Some(443), None, Reason::UpstreamUntrusted);
        assert!(untrusted.clone().detail(UNKNOWN_AUTHORITY).remedy().is_some());
        assert_eq!(untrusted.detail("it is not valid for this name").remedy(), None);
        let direct = Refusal::new(IpAddr::from([1, 2, 3, 4]), Some(443), Reason::DirectAddress);
        assert_eq!(direct.remedy(), None);
    }

    #[test]
    fn bytes_are_a_name_an_address_or_text() {
        for (bytes, expected) in [
            (&b"Example.com."[..], "Name(HostName(example.com))"),
            (b"0x7f.1", "Address(127.0.0.1)"),
            (b"[::1]", "Address(::1)"),
            (b"a b\n", "Text(Printable(\"a b\\\\n\"))"),
            (b"\xff", "Text(Printable(\"\\\\xff\"))"),
        ] {
            assert_eq!(format!("{:?}", Destination::understand(bytes)), expected);
        }
    }
}
