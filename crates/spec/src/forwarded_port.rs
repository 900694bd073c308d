//! A port of the host that leads to a port inside a sandbox.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::str::FromStr;

/// `[ADDRESS:]PORT[:INSIDE]`: the host's loopback address unless another one is written, and the same port inside unless another one is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ForwardedPort {
    /// Where the host listens.
    pub address: IpAddr,
    /// The host's port; 0 is any free one.
    pub here: u16,
    /// The port inside; never 0.
    pub inside: u16,
}

/// Text that is no forwarded port.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is not a port: write a number from 1 to 65535, as in `3000`, or the port of this machine before the one inside, as in `8080:3000`"
)]
pub struct ForwardedPortError(String);

impl ForwardedPort {
    /// The same port on both sides, at the host's loopback address.
    pub fn same(port: u16) -> ForwardedPort {
        ForwardedPort { address: LOOPBACK, here: port, inside: port }
    }

    /// Where the host listens.
    pub fn listens_at(&self) -> SocketAddr {
        SocketAddr::new(self.address, self.here)
    }

    fn parse(text: &str) -> Option<ForwardedPort> {
        let number =
            |text: &str| text.parse().ok().filter(|_| text.bytes().all(|byte| byte.is_ascii_digit()));
        let (address, ports) = split_address(text)?;
        let (here, inside) = match ports.split_once(':') {
            Some((here, inside)) => (number(here)?, number(inside)?),
            None => (number(ports)?, number(ports)?),
        };
        (inside > 0).then_some(ForwardedPort { address, here, inside })
    }
}

/// The address, if one is written, and the ports behind it.
fn split_address(text: &str) -> Option<(IpAddr, &str)> {
    if let Some(rest) = text.strip_prefix('[') {
        let (address, ports) = rest.split_once("]:")?;
        return Some((IpAddr::V6(address.parse().ok()?), ports));
    }
    match text.split_once(':') {
        Some((address, ports)) if address.contains('.') => Some((IpAddr::V4(address.parse().ok()?), ports)),
        Some(_) | None => Some((LOOPBACK, text)),
    }
}

impl FromStr for ForwardedPort {
    type Err = ForwardedPortError;

    fn from_str(text: &str) -> Result<ForwardedPort, ForwardedPortError> {
        ForwardedPort::parse(text).ok_or_else(|| ForwardedPortError(text.escape_debug().to_string()))
    }
}

impl fmt::Display for ForwardedPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ForwardedPort { address, here, inside } = self;
        if *address != LOOPBACK {
            match address {
                IpAddr::V4(address) => write!(f, "{address}:")?,
                IpAddr::V6(address) => write!(f, "[{address}]:")?,
            }
        }
        if here == inside { write!(f, "{here}") } else { write!(f, "{here}:{inside}") }
    }
}

crate::text::serde_as_text!(ForwardedPort);

/// A forwarded port as it came out: where the host listens, and what it leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ForwardedAt {
    /// The host's address.
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub address: IpAddr,
    /// The host's port.
    pub port: u16,
    /// The port inside.
    pub inside: u16,
}

const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hosts_port_stands_before_the_one_inside_and_loopback_is_meant() {
        for (text, expected) in [
            ("3000", Some("127.0.0.1:3000 3000")),
            ("8080:3000", Some("127.0.0.1:8080 3000")),
            ("0:3000", Some("127.0.0.1:0 3000")),
            ("0.0.0.0:3000", Some("0.0.0.0:3000 3000")),
            ("192.168.1.7:8080:3000", Some("192.168.1.7:8080 3000")),
            ("[::1]:8080:3000", Some("[::1]:8080 3000")),
            ("[::]:3000", Some("[::]:3000 3000")),
            ("0", None),
            ("3000:0", None),
            ("", None),
            (":3000", None),
            ("3000:", None),
            ("+3000", None),
            ("70000", None),
            ("1:2:3", None),
            ("localhost:3000", None),
            ("::1:3000", None),
            ("1.2.3:3000", None),
            ("[::1]3000", None),
        ] {
            let port = text.parse::<ForwardedPort>().ok();
            let parsed = port.map(|port| format!("{} {}", port.listens_at(), port.inside));
            assert_eq!(parsed.as_deref(), expected, "{text}");
            if let Some(port) = port {
                assert_eq!(port.to_string().parse(), Ok(port), "{text}");
            }
        }
    }
}
