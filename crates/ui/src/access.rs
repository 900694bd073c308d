//! Who is let in: the browser that opened the link, once, from pages of ours.
//!
//! A cookie is sent to every port of its host, and a server inside a sandbox may have a port of 127.0.0.1. So the dashboard has a
//! loopback address that no other server has, and its cookie goes nowhere else. Beside that: the exact `Host`, so that no other name can be
//! made to lead here; the exact `Origin` for whatever changes something; and what a browser says of where a request comes from.

use belljar_state::new_id;
use hyper::header::{COOKIE, HOST, HeaderMap, HeaderName, ORIGIN};
use hyper::{Method, StatusCode};
use std::io;
use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};

pub(crate) struct Access {
    authority: String,
    /// What the link has, until it was used.
    key: Mutex<Option<String>>,
    session: String,
}

/// Why a request is not answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Closed(pub(crate) StatusCode, pub(crate) &'static str);

impl Access {
    pub(crate) fn new(address: SocketAddr) -> io::Result<Access> {
        let random = || -> io::Result<String> {
            let parts: io::Result<Vec<String>> =
                (0..4).map(|_| new_id().map(|id| id.to_string()).map_err(io::Error::other)).collect();
            Ok(parts?.concat())
        };
        Ok(Access { authority: address.to_string(), key: Mutex::new(Some(random()?)), session: random()? })
    }

    /// The link that lets one browser in. `None` once it was used.
    pub(crate) fn link(&self) -> Option<String> {
        let key = self.key.lock().unwrap_or_else(PoisonError::into_inner).clone()?;
        Some(format!("http://{}/enter?key={key}", self.authority))
    }

    /// The cookie for the browser that has the key of the link; it is used up then.
    pub(crate) fn enter(&self, key: &str) -> Option<String> {
        let mut ours = self.key.lock().unwrap_or_else(PoisonError::into_inner);
        let is_ours = ours.as_deref().is_some_and(|ours| same(ours, key));
        is_ours.then(|| ours.take())?;
        Some(format!("{NAME}={}; HttpOnly; SameSite=Strict; Path=/", self.session))
    }

    /// Whether the request was meant for us: asked before anything else.
    pub(crate) fn judge_host(&self, headers: &HeaderMap) -> Result<(), Closed> {
        let mut hosts = headers.get_all(HOST).iter();
        match (hosts.next(), hosts.next()) {
            (Some(host), None) if host.as_bytes() == self.authority.as_bytes() => Ok(()),
            _ => Err(Closed(StatusCode::MISDIRECTED_REQUEST, "this is not the name of this dashboard")),
        }
    }

    /// Whether the browser that has the cookie asks, from a page of ours.
    pub(crate) fn judge(&self, method: &Method, headers: &HeaderMap) -> Result<(), Closed> {
        let own = format!("http://{}", self.authority);
        let changes = *method != Method::GET && *method != Method::HEAD;
        match headers.get(ORIGIN) {
            Some(origin) if origin.as_bytes() != own.as_bytes() => {
                return Err(Closed(StatusCode::FORBIDDEN, "a page of another origin asks"));
            }
            None if changes => return Err(Closed(StatusCode::FORBIDDEN, "it is not known which page asks")),
            Some(_) | None => {}
        }
        // Browsers say so, and no page can say otherwise (Fetch Metadata).
        if let Some(site) = headers.get(FETCH_SITE)
            && ![&b"same-origin"[..], b"none"].contains(&site.as_bytes())
        {
            return Err(Closed(StatusCode::FORBIDDEN, "another page led here: open the dashboard itself"));
        }
        let cookies = headers.get_all(COOKIE).iter().filter_map(|header| header.to_str().ok());
        let sessions =
            cookies.flat_map(|header| header.split(';')).filter_map(|pair| pair.trim().split_once('='));
        let mut ours = sessions.filter(|(name, _)| *name == NAME).map(|(_, value)| value);
        match (ours.next(), ours.next()) {
            (Some(session), None) if same(session, &self.session) => Ok(()),
            _ => Err(Closed(
                StatusCode::UNAUTHORIZED,
                "open the link that was printed when the dashboard began; it works once",
            )),
        }
    }
}

/// Takes as long for every wrong one.
fn same(ours: &str, theirs: &str) -> bool {
    let different = ours.bytes().zip(theirs.bytes()).fold(0, |different, (a, b)| different | (a ^ b));
    std::hint::black_box(different) == 0 && ours.len() == theirs.len()
}

const NAME: &str = "belljar";
const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(HeaderName::from_bytes(name.as_bytes()).unwrap(), value.parse().unwrap());
        }
        headers
    }

    fn key(access: &Access) -> String {
        access.link().unwrap().split_once("key=").unwrap().1.to_string()
    }

    #[test]
    fn a_link_lets_one_browser_in() {
        let access = Access::new("127.9.8.7:4000".parse().unwrap()).unwrap();
        let key = key(&access);
        assert_eq!(access.enter("wrong"), None);
        assert_eq!(access.enter(""), None);
        let cookie = access.enter(&key).unwrap();
        assert!(cookie.ends_with("; HttpOnly; SameSite=Strict; Path=/"), "{cookie}");
        assert_eq!(
            (access.enter(&key), access.link()),
            (None, None),
            "a stolen link is worth nothing afterwards"
        );
        let cookie = cookie.split(';').next().unwrap();
        let own = "http://127.9.8.7:4000";
        let judged = |method: Method, pairs: &[(&str, &str)]| {
            access.judge(&method, &headers(pairs)).map_err(|no| no.0)
        };
        assert_eq!(judged(Method::GET, &[("cookie", cookie)]), Ok(()));
        assert_eq!(judged(Method::POST, &[("cookie", cookie), ("origin", own)]), Ok(()));
        assert_eq!(judged(Method::GET, &[("cookie", cookie), ("sec-fetch-site", "none")]), Ok(()));
        for (method, pairs) in [
            (Method::GET, &[][..]),
            (Method::GET, &[("cookie", "belljar=")]),
            (Method::GET, &[("cookie", "belljar=00")]),
            (Method::GET, &[("cookie", &format!("{cookie}; {cookie}"))]),
        ] {
            assert_eq!(judged(method, pairs), Err(StatusCode::UNAUTHORIZED), "{pairs:?}");
        }
        for (method, origin, site) in [
            (Method::POST, None, "same-origin"),
            (Method::POST, Some("http://127.9.8.7:4001"), "same-site"),
            (Method::POST, Some("null"), "cross-site"),
            (Method::POST, Some("http://evil.example"), "cross-site"),
            (Method::GET, Some("http://127.0.0.1:3000"), "same-origin"),
            (Method::GET, None, "same-site"),
            (Method::GET, None, "cross-site"),
        ] {
            let mut pairs = vec![("cookie", cookie), ("sec-fetch-site", site)];
            pairs.extend(origin.map(|origin| ("origin", origin)));
            assert_eq!(judged(method, &pairs), Err(StatusCode::FORBIDDEN), "{pairs:?}");
        }
    }

    #[test]
    fn no_other_name_leads_here() {
        let access = Access::new("127.9.8.7:4000".parse().unwrap()).unwrap();
        assert_eq!(access.judge_host(&headers(&[("host", "127.9.8.7:4000")])), Ok(()));
        for pairs in [
            &[][..],
            &[("host", "127.9.8.7")],
            &[("host", "localhost:4000")],
            &[("host", "evil.example:4000")],
            &[("host", "127.9.8.7:4000"), ("host", "127.9.8.7:4000")],
        ] {
            assert!(access.judge_host(&headers(pairs)).is_err(), "{pairs:?}");
        }
    }
}
