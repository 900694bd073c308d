//! What a request is for, by its `Host` and its routing headers: the control API, or a port of a sandbox.
//!
//! A name of the domain decides alone. Where the host is an address or `localhost`, one port serves everything and the routing headers
//! decide. Any other host is refused: a page that has its own name lead here (DNS rebinding) reaches nothing.

use crate::fault::Fault;
use hyper::header::HOST;
use hyper::http::uri::Authority;
use hyper::{HeaderMap, Uri};
use std::net::IpAddr;

/// What a request is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Place {
    Control,
    Sandbox {
        id: String,
        port: u16,
    },
    /// Files of the sandbox whose token made the signature: an address that was signed for one shared host names no sandbox.
    Signed,
}

/// The place of a request. `domain` is the one that is served, without its port.
pub(crate) fn place(domain: Option<&str>, headers: &HeaderMap, uri: &Uri) -> Result<Place, Fault> {
    let mut hosts = headers.get_all(HOST).iter();
    let host = match (hosts.next(), hosts.next()) {
        (Some(host), None) => host.to_str().ok().and_then(|host| host.parse::<Authority>().ok()),
        _ => None,
    };
    let host = host.ok_or_else(|| Fault::bad_request("there is not one valid `Host`"))?;
    if uri.authority().is_some_and(|asked| asked != &host) {
        return Err(Fault::bad_request("`Host` is not the host that is asked for"));
    }
    let name = host.host().trim_end_matches('.').to_ascii_lowercase();
    if let Some(label) = domain.and_then(|domain| name.strip_suffix(domain)?.strip_suffix('.')) {
        return match label {
            "api" => Ok(Place::Control),
            "sandbox" => by_headers(headers, uri),
            label => of_label(label),
        };
    }
    let is_here = name == "localhost" || domain == Some(name.as_str()) || is_address(&name);
    match is_here {
        true => by_headers(headers, uri),
        false => Err(Fault::bad_request(format!("`{name}` is not served here"))),
    }
}

fn is_address(name: &str) -> bool {
    name.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>().is_ok()
}

/// `PORT-ID`.
fn of_label(label: &str) -> Result<Place, Fault> {
    let invalid = || Fault::bad_request("the host is not `PORT-SANDBOX` of the domain");
    let (port, id) = label.split_once('-').ok_or_else(invalid)?;
    Ok(Place::Sandbox { id: checked(id).ok_or_else(invalid)?, port: number(port).ok_or_else(invalid)? })
}

fn by_headers(headers: &HeaderMap, uri: &Uri) -> Result<Place, Fault> {
    let text = |name: &str| headers.get(name).map(|value| value.to_str().unwrap_or_default());
    match (text(ID), text(PORT)) {
        (None, None) if uri.path() == "/files" => Ok(Place::Signed),
        (None, None) => Ok(Place::Control),
        (Some(id), port) => {
            let id =
                checked(id).ok_or_else(|| Fault::bad_request(format!("`{ID}` is not a sandbox's id")))?;
            let port = port.map_or(Some(ENVD_PORT), number);
            let port = port.ok_or_else(|| Fault::bad_request(format!("`{PORT}` is not a port")))?;
            Ok(Place::Sandbox { id, port })
        }
        (None, Some(_)) => Err(Fault::bad_request(format!("`{PORT}` stands without `{ID}`"))),
    }
}

/// An id is small letters and digits.
fn checked(id: &str) -> Option<String> {
    let is_id = !id.is_empty()
        && id.len() <= 64
        && id.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
    is_id.then(|| id.to_string())
}

fn number(text: &str) -> Option<u16> {
    // Without a sign, which `parse` would take.
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|port| digits && *port != 0)
}

/// Where files and commands of a sandbox are served.
pub(crate) const ENVD_PORT: u16 = 49983;
pub(crate) const ID: &str = "e2b-sandbox-id";
pub(crate) const PORT: &str = "e2b-sandbox-port";

#[cfg(test)]
mod tests {
    use super::*;

    fn at(host: &str, uri: &str, more: &[(&'static str, &str)]) -> Result<Place, u16> {
        let mut headers = HeaderMap::new();
        headers.append(HOST, host.parse().unwrap());
        for (name, value) in more {
            headers.append(*name, value.parse().unwrap());
        }
        let found = place(Some("bell.test"), &headers, &uri.parse().unwrap());
        found.map_err(|fault| fault.status.as_u16())
    }

    #[test]
    fn the_host_or_the_headers_say_what_a_request_is_for() {
        let sandbox = |port| Ok(Place::Sandbox { id: "abc1".into(), port });
        let (id, port) = ((ID, "abc1"), (PORT, "8080"));
        for (host, uri, more, expected) in [
            ("localhost:3000", "/sandboxes", &[][..], Ok(Place::Control)),
            ("127.0.0.1", "/", &[], Ok(Place::Control)),
            ("[::1]:80", "/", &[id], sandbox(ENVD_PORT)),
            ("localhost", "/", &[id, port], sandbox(8080)),
            ("localhost", "/files?path=a", &[], Ok(Place::Signed)),
            ("api.bell.test:8443", "/", &[id], Ok(Place::Control)),
            ("8080-abc1.bell.test", "/", &[(ID, "other"), (PORT, "1")], sandbox(8080)),
            ("8080-ABC1.BELL.test.:1", "/", &[], sandbox(8080)),
            ("sandbox.bell.test", "/", &[id, port], sandbox(8080)),
            ("bell.test", "/", &[id], sandbox(ENVD_PORT)),
            ("evil.example", "/", &[id], Err(400)),
            ("xbell.test", "/", &[id], Err(400)),
            ("a.b.bell.test", "/", &[], Err(400)),
            ("0-abc1.bell.test", "/", &[], Err(400)),
            ("+80-abc1.bell.test", "/", &[], Err(400)),
            ("65536-abc1.bell.test", "/", &[], Err(400)),
            ("80-a-b.bell.test", "/", &[], Err(400)),
            ("localhost", "/", &[(ID, "../x")], Err(400)),
            ("localhost", "/", &[(ID, "")], Err(400)),
            ("localhost", "/", &[port], Err(400)),
            ("localhost", "/", &[id, (PORT, "x")], Err(400)),
            ("localhost", "http://evil.example/", &[id], Err(400)),
        ] {
            assert_eq!(at(host, uri, more), expected, "{host} {uri} {more:?}");
        }
        assert!(place(None, &HeaderMap::new(), &"/".parse().unwrap()).is_err());
    }
}
