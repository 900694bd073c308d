//! What a connection speaks.

use super::Printable;
use serde::{Deserialize, Serialize, Serializer};
use std::fmt;
use std::str::FromStr;

/// What a rule lets a connection speak, and what the gateway checks of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// TLS whose server name is the name that was asked for.
    Tls,
    /// Plain HTTP whose Host is the name that was asked for.
    Http,
    /// SSH, by its first line.
    Ssh,
    /// PostgreSQL, by its first message.
    Postgres,
    /// Anything, unchecked.
    Tcp,
}

impl Protocol {
    /// All of them, the checked ones first.
    pub const ALL: [Protocol; 5] =
        [Protocol::Tls, Protocol::Http, Protocol::Ssh, Protocol::Postgres, Protocol::Tcp];

    /// As people write it.
    pub fn as_str(self) -> &'static str {
        match self {
            Protocol::Tls => "tls",
            Protocol::Http => "http",
            Protocol::Ssh => "ssh",
            Protocol::Postgres => "postgres",
            Protocol::Tcp => "tcp",
        }
    }

    /// Where servers that speak it usually listen; anything has no usual place.
    pub fn usual_port(self) -> Option<u16> {
        match self {
            Protocol::Tls => Some(443),
            Protocol::Http => Some(80),
            Protocol::Ssh => Some(22),
            Protocol::Postgres => Some(5432),
            Protocol::Tcp => None,
        }
    }

    /// What is usually spoken at a port.
    pub fn usual_at(port: u16) -> Option<Protocol> {
        Protocol::ALL.into_iter().find(|protocol| protocol.usual_port() == Some(port))
    }

    fn bit(self) -> u8 {
        1 << self as u8
    }
}

/// A word that is no protocol.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a protocol: write tls, http, ssh, postgres or tcp (anything, unchecked)")]
pub struct UnknownProtocol(pub Printable);

/// Some of the protocols.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct ProtocolSet(u8);

impl ProtocolSet {
    /// None of them.
    pub const EMPTY: ProtocolSet = ProtocolSet(0);

    /// All of them.
    pub fn all() -> ProtocolSet {
        Protocol::ALL.into_iter().collect()
    }

    /// Is it one of them?
    pub fn contains(self, protocol: Protocol) -> bool {
        self.0 & protocol.bit() != 0
    }

    /// Is there none?
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Those of either.
    #[must_use]
    pub fn union(self, other: ProtocolSet) -> ProtocolSet {
        ProtocolSet(self.0 | other.0)
    }

    /// Those that the other has not.
    #[must_use]
    pub fn without(self, other: ProtocolSet) -> ProtocolSet {
        ProtocolSet(self.0 & !other.0)
    }

    /// One after the other, the checked ones first.
    pub fn iter(self) -> impl Iterator<Item = Protocol> {
        Protocol::ALL.into_iter().filter(move |protocol| self.contains(*protocol))
    }
}

impl FromIterator<Protocol> for ProtocolSet {
    fn from_iter<I: IntoIterator<Item = Protocol>>(protocols: I) -> ProtocolSet {
        ProtocolSet(protocols.into_iter().fold(0, |bits, protocol| bits | protocol.bit()))
    }
}

impl From<Protocol> for ProtocolSet {
    fn from(protocol: Protocol) -> ProtocolSet {
        ProtocolSet(protocol.bit())
    }
}

impl FromStr for Protocol {
    type Err = UnknownProtocol;

    fn from_str(text: &str) -> Result<Protocol, UnknownProtocol> {
        Protocol::ALL
            .into_iter()
            .find(|protocol| protocol.as_str() == text)
            .ok_or_else(|| UnknownProtocol(text.into()))
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl fmt::Display for ProtocolSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, protocol) in self.iter().enumerate() {
            if index > 0 {
                f.write_str(", ")?;
            }
            f.write_str(protocol.as_str())?;
        }
        Ok(())
    }
}

impl Serialize for ProtocolSet {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.iter())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_is_what_was_put_in() {
        let web: ProtocolSet = [Protocol::Http, Protocol::Tls].into_iter().collect();
        assert_eq!(web.to_string(), "tls, http");
        assert!(web.contains(Protocol::Tls) && !web.contains(Protocol::Tcp));
        assert_eq!(ProtocolSet::all().without(web).to_string(), "ssh, postgres, tcp");
        assert_eq!(web.without(web), ProtocolSet::EMPTY);
        assert_eq!(ProtocolSet::all().iter().count(), 5);
    }

    #[test]
    fn words_are_protocols_or_refused() {
        for protocol in Protocol::ALL {
            assert_eq!(protocol.as_str().parse(), Ok(protocol));
        }
        for text in ["", "TLS", "https", "udp", "quic", "tls "] {
            assert!(text.parse::<Protocol>().is_err(), "{text}");
        }
    }
}
