//! The proxy of a company network, through which the gateway dials where the machine cannot dial itself. Policy is decided before, by name;
//! the proxy is where an allowed connection goes, and no program inside knows of it.

use super::{HostName, HostPattern};
use crate::secret::SecretRef;
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// `[egress.proxy]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UpstreamProxy {
    pub at: ProxyAddress,
    /// `USER:PASSWORD`.
    pub secret: Option<SecretRef>,
    pub resolve: ProxyResolve,
    /// What is dialled without it.
    pub except: Vec<HostPattern>,
}

/// What is spoken with it, and where it listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProxyAddress {
    pub kind: ProxyKind,
    pub host: ProxyHost,
    pub port: u16,
}

/// What is spoken with a proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProxyKind {
    /// The method CONNECT of HTTP (RFC 9110 §9.3.6).
    Http,
    /// SOCKS version 5 (RFC 1928).
    Socks5,
}

/// Where a proxy is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProxyHost {
    Name(HostName),
    Address(IpAddr),
}

/// Which side looks up the addresses of a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ProxyResolve {
    /// This machine, which judges every address; the proxy is told the address.
    #[default]
    Here,
    /// The proxy, which is told the name: which addresses it reaches is its own to judge.
    Proxy,
}

/// Text that is no proxy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProxyAddressError {
    #[error(
        "`{0}` is not a proxy: write `http://proxy.example.com:3128` or `socks5://proxy.example.com:1080`"
    )]
    Malformed(String),
    /// Credentials in a file are readable by whatever reads the file.
    #[error(
        "a proxy's user and password do not stand in its URL: keep them as `USER:PASSWORD` in the vault, and name them with `secret`"
    )]
    Credentials,
    #[error(
        "TLS to the proxy itself is not supported: write `http://`, and the port at which it speaks without TLS"
    )]
    Tls,
}

/// A word that names neither side.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}`: write `here`, or `proxy` where this machine cannot look up names")]
pub struct UnknownProxyResolve(String);

impl FromStr for ProxyAddress {
    type Err = ProxyAddressError;

    fn from_str(text: &str) -> Result<ProxyAddress, ProxyAddressError> {
        // An error must not repeat a password.
        if text.contains('@') {
            return Err(ProxyAddressError::Credentials);
        }
        let malformed = || ProxyAddressError::Malformed(text.escape_debug().to_string());
        let (kind, rest) = match text.split_once("://") {
            Some(("http", rest)) => (ProxyKind::Http, rest),
            Some(("socks5" | "socks5h", rest)) => (ProxyKind::Socks5, rest),
            Some(("https", _)) => return Err(ProxyAddressError::Tls),
            Some(_) | None => return Err(malformed()),
        };
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        let (host, port) = match rest.strip_prefix('[') {
            Some(bracketed) => {
                let (address, port) = bracketed.split_once(']').ok_or_else(malformed)?;
                let address: IpAddr = address.parse().map_err(|_| malformed())?;
                (ProxyHost::Address(address), port.strip_prefix(':'))
            }
            None => {
                let (host, port) =
                    rest.split_once(':').map_or((rest, None), |(host, port)| (host, Some(port)));
                let host = match host.parse::<IpAddr>() {
                    Ok(address) => ProxyHost::Address(address),
                    Err(_) => ProxyHost::Name(host.parse().map_err(|_| malformed())?),
                };
                (host, port)
            }
        };
        let port = match port {
            Some(port) => port.parse().ok().filter(|port| *port > 0).ok_or_else(malformed)?,
            None => kind.usual_port(),
        };
        Ok(ProxyAddress { kind, host, port })
    }
}

impl FromStr for ProxyResolve {
    type Err = UnknownProxyResolve;

    fn from_str(text: &str) -> Result<ProxyResolve, UnknownProxyResolve> {
        match text {
            "here" => Ok(ProxyResolve::Here),
            "proxy" => Ok(ProxyResolve::Proxy),
            _ => Err(UnknownProxyResolve(text.escape_debug().to_string())),
        }
    }
}

impl ProxyKind {
    fn usual_port(self) -> u16 {
        match self {
            ProxyKind::Http => 3128,
            ProxyKind::Socks5 => 1080,
        }
    }
}

impl UpstreamProxy {
    /// Whether a connection to this name goes through it.
    pub fn leads_to(&self, name: &HostName) -> bool {
        !self.except.iter().any(|host| host.matches(name))
    }
}

impl fmt::Display for ProxyAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = match self.kind {
            ProxyKind::Http => "http",
            ProxyKind::Socks5 => "socks5",
        };
        match &self.host {
            ProxyHost::Name(name) => write!(f, "{scheme}://{name}:{}", self.port),
            ProxyHost::Address(IpAddr::V4(address)) => write!(f, "{scheme}://{address}:{}", self.port),
            ProxyHost::Address(IpAddr::V6(address)) => write!(f, "{scheme}://[{address}]:{}", self.port),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proxy_is_a_url_without_credentials() {
        for (text, expected) in [
            ("http://proxy.example.com:3128", Ok("http://proxy.example.com:3128")),
            ("http://proxy.example.com/", Ok("http://proxy.example.com:3128")),
            ("socks5://10.0.0.7", Ok("socks5://10.0.0.7:1080")),
            ("socks5h://[fd00::7]:1081", Ok("socks5://[fd00::7]:1081")),
            ("http://me:secret@proxy.example.com:3128", Err("do not stand in its URL")),
            ("https://proxy.example.com", Err("TLS to the proxy itself")),
            ("proxy.example.com:3128", Err("is not a proxy")),
            ("http://proxy.example.com:0", Err("is not a proxy")),
            ("http://proxy.example.com/path", Err("is not a proxy")),
            ("ftp://proxy.example.com", Err("is not a proxy")),
            ("http://", Err("is not a proxy")),
        ] {
            let parsed = text.parse::<ProxyAddress>();
            match (parsed, expected) {
                (Ok(proxy), Ok(expected)) => assert_eq!(proxy.to_string(), expected),
                (Err(error), Err(expected)) => {
                    let error = error.to_string();
                    assert!(error.contains(expected) && !error.contains("secret@"), "{text}: {error}");
                }
                (parsed, _) => panic!("{text}: {parsed:?}"),
            }
        }
    }
}
