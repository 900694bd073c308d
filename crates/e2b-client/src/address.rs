//! Where a service and its sandboxes are: two addresses, or a domain with a name for each port of a sandbox.

use belljar_spec::{ErrorCode, SandboxError};
use hyper::Uri;
use std::fmt;
use std::net::IpAddr;

/// The addresses as they are configured: those of the SDKs' variables.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Named {
    /// `E2B_DOMAIN`.
    pub domain: Option<String>,
    /// `E2B_API_URL`, in the place of `https://api.DOMAIN`.
    pub api_url: Option<String>,
    /// `E2B_SANDBOX_URL`, in the place of a name for each sandbox.
    pub sandbox_url: Option<String>,
}

/// The addresses of a service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Addresses {
    pub(crate) api: Base,
    sandboxes: Sandboxes,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Sandboxes {
    /// One address for all; headers say which sandbox is meant.
    Shared(Base),
    /// `https://PORT-ID.DOMAIN`.
    Domain(String),
}

/// The beginning of an address.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Base {
    pub(crate) is_tls: bool,
    /// Without brackets.
    pub(crate) host: String,
    pub(crate) port: u16,
    /// As `Host` has it.
    pub(crate) authority: String,
    /// Without a slash at its end.
    pub(crate) path: String,
}

impl Addresses {
    /// Where the service is; `None` where nothing is configured.
    pub fn of(named: &Named) -> Result<Option<Addresses>, SandboxError> {
        let Named { domain, api_url, sandbox_url } = named;
        let api = match (api_url, domain) {
            (Some(url), _) => Base::parse("api_url", url)?,
            (None, Some(domain)) => Base::parse("domain", &format!("https://api.{domain}"))?,
            (None, None) => return Ok(None),
        };
        let sandboxes = match (sandbox_url, domain) {
            (Some(url), _) => Sandboxes::Shared(Base::parse("sandbox_url", url)?),
            (None, Some(domain)) => Sandboxes::Domain(domain.clone()),
            (None, None) => {
                let message = "`api_url` of the E2B-compatible service is set, and nothing says where its sandboxes are";
                return Err(ErrorCode::ConfigInvalid.error(message).hint(
                    "set `sandbox_url` or `domain` too, below [e2b] or as E2B_SANDBOX_URL or E2B_DOMAIN",
                ));
            }
        };
        Ok(Some(Addresses { api, sandboxes }))
    }

    /// Where the data plane of a sandbox is. The service may have named a domain when it made it.
    pub(crate) fn sandbox(&self, id: &str, domain: Option<&str>, port: u16) -> Result<Base, SandboxError> {
        match &self.sandboxes {
            Sandboxes::Shared(base) => Ok(base.clone()),
            Sandboxes::Domain(own) => {
                let domain = domain.unwrap_or(own);
                Base::parse("domain", &format!("https://{port}-{id}.{domain}"))
            }
        }
    }
}

impl fmt::Display for Addresses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.api)
    }
}

impl Base {
    fn parse(name: &str, url: &str) -> Result<Base, SandboxError> {
        let invalid = |why: &str| {
            ErrorCode::ConfigInvalid
                .error(format!("`{name}` of the E2B-compatible service: `{}` {why}", url.escape_debug()))
                .hint("write it as in `https://api.e2b.example`, below [e2b] of your belljar.toml or as E2B_API_URL")
        };
        let uri: Uri = url.parse().map_err(|_| invalid("is not an address"))?;
        let is_tls = match uri.scheme_str() {
            Some("https") => true,
            Some("http") => false,
            _ => return Err(invalid("does not begin with `https://`")),
        };
        let authority = uri.authority().ok_or_else(|| invalid("names no host"))?;
        if authority.as_str().contains('@') || uri.query().is_some() {
            return Err(invalid("has more than a host, a port and a path"));
        }
        let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_string();
        let is_loopback =
            host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
        if !is_tls && !is_loopback {
            return Err(invalid(
                "would carry the API key in clear text: use `https://`, or an address of this machine",
            ));
        }
        let port = authority.port_u16().unwrap_or(if is_tls { 443 } else { 80 });
        let path = uri.path().trim_end_matches('/').to_string();
        Ok(Base { is_tls, host, port, authority: authority.to_string(), path })
    }
}

impl fmt::Display for Base {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}{}", if self.is_tls { "https" } else { "http" }, self.authority, self.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(domain: Option<&str>, api: Option<&str>, sandbox: Option<&str>) -> Named {
        let text = |text: Option<&str>| text.map(String::from);
        Named { domain: text(domain), api_url: text(api), sandbox_url: text(sandbox) }
    }

    #[test]
    fn a_service_is_two_addresses_or_a_domain() {
        assert_eq!(Addresses::of(&Named::default()), Ok(None));
        let by_domain = Addresses::of(&named(Some("bell.test:8443"), None, None)).unwrap().unwrap();
        assert_eq!(by_domain.to_string(), "https://api.bell.test:8443");
        let sandbox = by_domain.sandbox("abc", None, 49983).unwrap();
        assert_eq!(sandbox.to_string(), "https://49983-abc.bell.test:8443");
        assert_eq!(by_domain.sandbox("abc", Some("other.test"), 80).unwrap().host, "80-abc.other.test");
        let shared = named(None, Some("http://127.0.0.1:3000/"), Some("http://[::1]:3001/x/"));
        let shared = Addresses::of(&shared).unwrap().unwrap();
        assert_eq!((shared.api.port, shared.api.path.as_str()), (3000, ""));
        let base = shared.sandbox("abc", Some("ignored.test"), 1).unwrap();
        assert_eq!((base.host.as_str(), base.port, base.path.as_str()), ("::1", 3001, "/x"));
    }

    #[test]
    fn a_key_is_sent_in_clear_text_to_this_machine_alone() {
        for (url, why) in [
            ("http://e2b.example", "clear text"),
            ("http://127.0.0.1.example", "clear text"),
            ("ftp://localhost", "does not begin"),
            ("https://key@e2b.example", "more than a host"),
            ("https://e2b.example/?a=b", "more than a host"),
            ("e2b.example", "does not begin"),
        ] {
            let error = Addresses::of(&named(Some("d.test"), Some(url), None)).expect_err(url);
            assert!(error.code == ErrorCode::ConfigInvalid && error.message.contains(why), "{url}: {error}");
            assert!(error.hint.is_some());
        }
        let half = named(None, Some("http://localhost:1"), None);
        assert!(Addresses::of(&half).unwrap_err().message.contains("where its sandboxes are"));
    }
}
