//! A request's head, before anything else: is it for the host that the connection is for, and is it clear where it ends?

use crate::credentials::Origin;
use belljar_spec::egress::{Protocol, Reason, Refusal};
use hyper::Method;
use hyper::header::{CONTENT_LENGTH, HOST, HeaderMap, HeaderValue, TRANSFER_ENCODING};
use hyper::http::request::Parts;
use hyper::http::uri::Scheme;

/// One host, and the right one, wherever the request says so; one length; and a path.
pub(super) fn judge(head: &Parts, to: &Origin) -> Result<(), Refusal> {
    if head.method == Method::CONNECT {
        return Err(to.refusal(Reason::ProtocolNotAllowed).detail("CONNECT is for proxies"));
    }
    let mut hosts = head.headers.get_all(HOST).iter();
    let host = match (hosts.next(), hosts.next()) {
        (host, None) => host,
        (_, Some(_)) => return Err(to.refusal(Reason::HostDiffers).detail("two Host headers")),
    };
    if host.is_none() && (head.version < hyper::Version::HTTP_2 || head.uri.authority().is_none()) {
        return Err(to.refusal(Reason::HostMissing));
    }
    host.map_or(Ok(()), |host| same_host(host.as_bytes(), to))?;
    if !has_one_length(&head.headers) {
        let detail = "servers would not agree where the request ends";
        return Err(to.refusal(Reason::MalformedStart).detail(detail));
    }
    if let Some(authority) = head.uri.authority() {
        same_host(authority.as_str().as_bytes(), to)?;
    }
    let scheme = if to.secure { Scheme::HTTPS } else { Scheme::HTTP };
    if head.uri.scheme().is_some_and(|given| *given != scheme) && to.secure {
        return Err(to.refusal(Reason::HostDiffers).detail("another scheme than the connection has"));
    }
    let path = head.uri.path();
    let of_server = path == "*" && head.method == Method::OPTIONS;
    if !path.starts_with('/') && !of_server {
        return Err(to.refusal(Reason::RequestMalformed).detail("the target is not a path"));
    }
    Ok(())
}

/// HTTP/1.0 has no `Host` (RFC 1945); a server that has several sites would choose one. It is told the one that was dialled.
pub(super) fn complete(head: &mut Parts, to: &Origin) {
    let is_missing = head.version == hyper::Version::HTTP_10
        && !head.headers.contains_key(HOST)
        && head.uri.authority().is_none();
    let usual = if to.secure { 443 } else { 80 };
    let host = if to.port == usual { to.name.to_string() } else { format!("{}:{}", to.name, to.port) };
    if let (true, Ok(host)) = (is_missing, HeaderValue::from_str(&host)) {
        head.headers.insert(HOST, host);
    }
}

/// Letter by letter, but for their case: the server reads what was written, and not what we made of it.
fn same_host(authority: &[u8], to: &Origin) -> Result<(), Refusal> {
    let text = String::from_utf8_lossy(authority);
    // Without a port a client means the usual one; many omit it at others too.
    let host = text.strip_suffix(&format!(":{}", to.port)).unwrap_or(&text);
    let host = host.strip_suffix('.').unwrap_or(host);
    if host.eq_ignore_ascii_case(to.name.as_str()) {
        return Ok(());
    }
    Err(to.refusal(Reason::HostDiffers).detail(&text))
}

/// Says once, and in one way, how long it is. The library reads more than that, and writes it on as it came.
pub(crate) fn has_one_length(headers: &HeaderMap) -> bool {
    let lengths = headers.get_all(CONTENT_LENGTH).iter().count();
    let mut encodings = headers.get_all(TRANSFER_ENCODING).iter();
    match (encodings.next(), encodings.next()) {
        (None, _) => lengths <= 1,
        (Some(encoding), None) => lengths == 0 && encoding.as_bytes().eq_ignore_ascii_case(b"chunked"),
        (Some(_), Some(_)) => false,
    }
}

impl Origin {
    pub(super) fn speaks(&self) -> Protocol {
        if self.secure { Protocol::Tls } else { Protocol::Http }
    }

    pub(super) fn refusal(&self, reason: Reason) -> Refusal {
        Refusal::new(&self.name, Some(self.port), reason).protocol(self.speaks())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::Request;

    fn verdict(secure: bool, line: &str, headers: &[(&str, &str)]) -> Result<(), Reason> {
        let to = Origin { name: "api.test".parse().unwrap(), port: 8443, secure };
        let (method, target) = line.split_once(' ').unwrap();
        let mut request = Request::builder().method(method).uri(target);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        judge(&request.body(()).unwrap().into_parts().0, &to).map_err(|refusal| refusal.reason)
    }

    #[test]
    fn a_request_is_for_the_host_of_its_connection() {
        use Reason::{HostDiffers, HostMissing, MalformedStart, ProtocolNotAllowed, RequestMalformed};
        let host = ("host", "api.test:8443");
        for (line, headers, expected) in [
            ("GET /", &[host][..], Ok(())),
            ("GET /", &[("host", "API.test.")], Ok(())),
            ("GET https://api.test/x", &[host], Ok(())),
            ("OPTIONS *", &[host], Ok(())),
            ("GET /", &[], Err(HostMissing)),
            ("GET /", &[host, host], Err(HostDiffers)),
            ("GET /", &[("host", "evil.test")], Err(HostDiffers)),
            ("GET /", &[("host", "api.test, evil.test")], Err(HostDiffers)),
            ("GET /", &[("host", "api.test:443")], Err(HostDiffers)),
            ("GET /", &[("host", "x@api.test")], Err(HostDiffers)),
            ("GET https://evil.test/x", &[host], Err(HostDiffers)),
            ("GET https://user@api.test/x", &[host], Err(HostDiffers)),
            ("GET http://api.test/x", &[host], Err(HostDiffers)),
            ("CONNECT api.test:8443", &[host], Err(ProtocolNotAllowed)),
            ("GET *", &[host], Err(RequestMalformed)),
            ("POST /", &[host, ("content-length", "1"), ("content-length", "2")], Err(MalformedStart)),
            (
                "POST /",
                &[host, ("content-length", "1"), ("transfer-encoding", "chunked")],
                Err(MalformedStart),
            ),
            ("POST /", &[host, ("transfer-encoding", "gzip, chunked")], Err(MalformedStart)),
            ("POST /", &[host, ("transfer-encoding", "chunked")], Ok(())),
        ] {
            assert_eq!(verdict(true, line, headers), expected, "{line} {headers:?}");
        }
        assert_eq!(verdict(false, "GET http://api.test/x", &[host]), Ok(()));
    }

    #[test]
    fn an_old_request_without_a_host_is_for_the_one_that_was_dialled() {
        for (port, secure, expected) in
            [(80, false, "api.test"), (443, true, "api.test"), (8443, true, "api.test:8443")]
        {
            let to = Origin { name: "api.test".parse().unwrap(), port, secure };
            let request = Request::get("/").version(hyper::Version::HTTP_10).body(()).unwrap();
            let mut head = request.into_parts().0;
            complete(&mut head, &to);
            assert_eq!(head.headers[HOST], expected);
            assert!(judge(&head, &to).is_ok());
        }
        let to = Origin { name: "api.test".parse().unwrap(), port: 80, secure: false };
        let mut head = Request::get("/").body(()).unwrap().into_parts().0;
        complete(&mut head, &to);
        assert_eq!(judge(&head, &to).unwrap_err().reason, Reason::HostMissing);
    }
}
