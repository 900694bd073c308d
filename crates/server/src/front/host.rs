//! Which names a request may call the daemon by, and from which pages. A browser sends a page's requests wherever the page's name
//! leads, so a name that is not ours is a foreign page (DNS rebinding), and so is an `Origin` that was not allowed.

use crate::answer::{Refusal, invalid};
use axum::http::header::{HOST, ORIGIN};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderValue, Uri};
use belljar_spec::{CommandLine, ErrorCode, hint};
use std::net::IpAddr;

/// Names and pages that are ours beside the usual ones.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AllowedHosts {
    /// Names that the daemon is reached by.
    pub names: Vec<String>,
    /// Pages that may ask: `https://app.example.com`.
    pub origins: Vec<String>,
}

impl AllowedHosts {
    /// Refuses what calls us by another name. `own` is the address that a connection came to.
    pub(super) fn judge_host(
        &self,
        headers: &HeaderMap,
        uri: &Uri,
        own: Option<IpAddr>,
    ) -> Result<(), Refusal> {
        let mut hosts = headers.get_all(HOST).iter();
        let host = hosts.next().ok_or_else(|| invalid("a request needs a `Host`"))?;
        if hosts.next().is_some() {
            return Err(invalid("a request has one `Host`").into());
        }
        let named: Authority = host
            .to_str()
            .ok()
            .and_then(|host| host.parse().ok())
            .ok_or_else(|| refused(&format!("{host:?}")))?;
        // A request line may name another host than the header does.
        for authority in [Some(&named), uri.authority()].into_iter().flatten() {
            if !self.is_ours(authority.host(), own) {
                return Err(refused(&format!("{:?}", authority.as_str())));
            }
        }
        Ok(())
    }

    /// The page that asks, if it is one that may.
    pub(super) fn judge_origin<'h>(
        &self,
        headers: &'h HeaderMap,
    ) -> Result<Option<&'h HeaderValue>, Refusal> {
        let Some(origin) = headers.get(ORIGIN) else { return Ok(None) };
        if self.origins.iter().any(|allowed| allowed.as_bytes() == origin.as_bytes()) {
            return Ok(Some(origin));
        }
        let message = format!("requests from pages of {origin:?} are not accepted");
        Err(ErrorCode::NotGranted
            .error(message)
            .hint(hint!("{} allows an origin", CommandLine::ServeOrigin))
            .into())
    }

    fn is_ours(&self, host: &str, own: Option<IpAddr>) -> bool {
        let host = host.strip_suffix('.').unwrap_or(host);
        let literal = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        match literal.parse::<IpAddr>() {
            // An address is no page of another site: no name was resolved.
            Ok(address) => address.is_loopback() || Some(address) == own,
            Err(_) => {
                host.eq_ignore_ascii_case("localhost")
                    || self.names.iter().any(|name| host.eq_ignore_ascii_case(name))
            }
        }
    }
}

/// `name` is the one that is not ours, of the header or of the request line.
fn refused(name: &str) -> Refusal {
    ErrorCode::NotGranted
        .error(format!("this daemon is not called {name}"))
        .hint(hint!("use `localhost`; {} adds another name", CommandLine::ServeHostName))
        .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(host: &str, uri: &str, own: Option<&str>) -> bool {
        let allowed_hosts = AllowedHosts { names: vec!["box.example.com".into()], origins: Vec::new() };
        let mut headers = HeaderMap::new();
        headers.insert(HOST, HeaderValue::from_str(host).unwrap());
        allowed_hosts.judge_host(&headers, &uri.parse().unwrap(), own.map(|own| own.parse().unwrap())).is_ok()
    }

    #[test]
    fn only_our_own_names_are_ours() {
        for host in [
            "localhost",
            "LOCALHOST:7070",
            "127.0.0.1:1",
            "127.8.8.8",
            "[::1]:80",
            "box.example.com",
            "localhost.",
        ] {
            assert!(judged(host, "/v1/health", None), "{host}");
        }
        for host in [
            "evil.example.com",
            "127.0.0.1.nip.io",
            "localhost.evil.com",
            "10.0.0.1",
            "0.0.0.0",
            "x@evil.com",
            "[::ffff:7f00:1]x",
            "",
        ] {
            assert!(!judged(host, "/v1/health", None), "{host}");
        }
        assert!(judged("10.0.0.1:7070", "/", Some("10.0.0.1")));
        assert!(!judged("localhost", "http://evil.example.com/v1", None), "the request line counts as well");
        assert!(judged("localhost", "http://localhost/v1", None));
    }

    #[test]
    fn a_refusal_names_the_host_that_is_not_ours() {
        let allowed_hosts = AllowedHosts { names: Vec::new(), origins: Vec::new() };
        let headers = HeaderMap::from_iter([(HOST, HeaderValue::from_static("localhost"))]);
        let uri = "http://evil.example.com/v1".parse().unwrap();
        let refusal = allowed_hosts.judge_host(&headers, &uri, None).unwrap_err();
        let message = refusal.error.message;
        assert!(message.contains("evil.example.com") && !message.contains("localhost"), "{message}");
    }

    #[test]
    fn pages_need_an_allowed_origin() {
        let allowed_hosts =
            AllowedHosts { names: Vec::new(), origins: vec!["https://app.example.com".into()] };
        let judged = |origin: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(ORIGIN, HeaderValue::from_str(origin).unwrap());
            allowed_hosts.judge_origin(&headers).is_ok()
        };
        assert!(judged("https://app.example.com"));
        for origin in [
            "http://app.example.com",
            "https://app.example.com:444",
            "null",
            "http://localhost",
            "https://app.example.com.evil.com",
        ] {
            assert!(!judged(origin), "{origin}");
        }
        assert!(allowed_hosts.judge_origin(&HeaderMap::new()).is_ok(), "no page at all");
    }
}
