//! The heads of requests and answers that pass: what belongs to a connection ends with it, and what belongs to belljar stays here.

use axum::http::header::{
    AUTHORIZATION, CONNECTION, CONTENT_SECURITY_POLICY, COOKIE, HOST, HeaderName, HeaderValue, SET_COOKIE,
    TE, TRAILER, TRANSFER_ENCODING, UPGRADE,
};
use axum::http::uri::PathAndQuery;
use axum::http::{HeaderMap, Uri};

/// Makes the head of a request one for what listens at this port inside. Says what the connection is to become, if anything.
pub(super) fn inward(headers: &mut HeaderMap, port: u16) -> Option<HeaderValue> {
    let upgrade = upgrade_of(headers);
    for_this_connection(headers, upgrade.as_ref());
    headers.remove(AUTHORIZATION);
    ours(headers);
    let cookies: Vec<HeaderValue> = headers.get_all(COOKIE).iter().filter_map(without_ours).collect();
    headers.remove(COOKIE);
    for cookie in cookies {
        headers.append(COOKIE, cookie);
    }
    let host = HeaderValue::from_str(&format!("localhost:{port}")).expect("a name and a number");
    headers.insert(HOST, host);
    upgrade
}

/// Makes the head of an answer one for the caller, of the port that is at this path of the API.
pub(super) fn outward(headers: &mut HeaderMap, upgrade: Option<&HeaderValue>, at: &str) {
    for_this_connection(headers, upgrade);
    ours(headers);
    let set: Vec<HeaderValue> = headers
        .get_all(SET_COOKIE)
        .iter()
        .filter(|set| !is_ours(set))
        .filter_map(|set| only_at(set, at))
        .collect();
    headers.remove(SET_COOKIE);
    for cookie in set {
        headers.append(SET_COOKIE, cookie);
    }
    // A page from inside is shown at the address of the API. It must not be a page of the API: a browser gives it an origin of its own.
    headers.append(CONTENT_SECURITY_POLICY, HeaderValue::from_static(APART));
}

/// Where a port is in the API: the path up to its number.
pub(super) fn place(uri: &Uri) -> String {
    let path = uri.path();
    let length = path.match_indices('/').nth(PARTS).map_or(path.len(), |(at, _)| at);
    format!("{}/", &path[..length])
}

/// A cookie for this path alone. Browsers know cookies by the host and not by the port: without a path of its own, one that a page from
/// inside sets would be sent to every server on this machine, and could stand for one of theirs.
fn only_at(set: &HeaderValue, at: &str) -> Option<HeaderValue> {
    let text = set.to_str().ok()?;
    let mut parts = text.split(';');
    let mut live = vec![parts.next()?.trim().to_string()];
    let is_place = |part: &&str| {
        let name = part.split('=').next().unwrap_or_default().trim();
        name.eq_ignore_ascii_case("domain") || name.eq_ignore_ascii_case("path")
    };
    live.extend(parts.filter(|part| !is_place(part)).map(|part| part.trim().to_string()));
    live.push(format!("Path={at}"));
    HeaderValue::from_str(&live.join("; ")).ok()
}

/// What is asked of the port: everything behind its number.
pub(super) fn target(uri: &Uri) -> PathAndQuery {
    let path = uri.path();
    let rest = path.match_indices('/').nth(PARTS).map_or("/", |(at, _)| &path[at..]);
    let text = match uri.query() {
        Some(query) => format!("{rest}?{query}"),
        None => rest.to_string(),
    };
    text.parse().unwrap_or(PathAndQuery::from_static("/"))
}

fn upgrade_of(headers: &HeaderMap) -> Option<HeaderValue> {
    names(headers).any(|name| name == "upgrade").then(|| headers.get(UPGRADE).cloned()).flatten()
}

/// RFC 9110, 7.6.1: what `Connection` names, and what was always meant by it.
fn for_this_connection(headers: &mut HeaderMap, upgrade: Option<&HeaderValue>) {
    let named: Vec<HeaderName> = names(headers).filter_map(|name| name.parse().ok()).collect();
    for name in named {
        headers.remove(name);
    }
    for name in [CONNECTION, TE, TRAILER, TRANSFER_ENCODING, UPGRADE] {
        headers.remove(name);
    }
    for name in ["keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection"] {
        headers.remove(name);
    }
    if let Some(upgrade) = upgrade {
        headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
        headers.insert(UPGRADE, upgrade.clone());
    }
}

fn names(headers: &HeaderMap) -> impl Iterator<Item = String> {
    let values = headers.get_all(CONNECTION).iter().filter_map(|value| value.to_str().ok());
    let names: Vec<String> =
        values.flat_map(|value| value.split(',')).map(|name| name.trim().to_ascii_lowercase()).collect();
    names.into_iter()
}

fn ours(headers: &mut HeaderMap) {
    let names: Vec<HeaderName> =
        headers.keys().filter(|name| name.as_str().starts_with("x-belljar-")).cloned().collect();
    for name in names {
        headers.remove(name);
    }
}

/// `None` where nothing is left.
fn without_ours(cookies: &HeaderValue) -> Option<HeaderValue> {
    let Ok(text) = cookies.to_str() else { return None };
    let theirs: Vec<&str> =
        text.split(';').map(str::trim).filter(|cookie| !cookie.starts_with("belljar")).collect();
    HeaderValue::from_str(&theirs.join("; ")).ok().filter(|left| !left.is_empty())
}

fn is_ours(set: &HeaderValue) -> bool {
    set.as_bytes().trim_ascii_start().starts_with(b"belljar")
}

/// `/v1/sandboxes/NAME/ports/PORT` come before.
const PARTS: usize = 5;
const APART: &str = "sandbox allow-downloads allow-forms allow-modals allow-popups allow-scripts";

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(lines: &[(&str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(name.parse::<HeaderName>().expect("a name"), value.parse().expect("a value"));
        }
        headers
    }

    #[test]
    fn nothing_that_speaks_for_the_caller_goes_inside() {
        let mut request = headers(&[
            ("authorization", "Bearer bjt_1_2"),
            ("cookie", "belljar_session=1; theme=dark"),
            ("cookie", "belljar=2"),
            ("x-belljar-lease", "l"),
            ("x-belljar-keeper", "k"),
            ("connection", "keep-alive, x-secret"),
            ("x-secret", "hop"),
            ("te", "trailers"),
            ("accept", "*/*"),
            ("host", "127.0.0.1:7070"),
        ]);
        assert_eq!(inward(&mut request, 8000), None);
        assert_eq!(
            request,
            headers(&[("accept", "*/*"), ("cookie", "theme=dark"), ("host", "localhost:8000")])
        );
    }

    #[test]
    fn a_change_of_protocol_is_passed_on() {
        let mut request =
            headers(&[("connection", "Upgrade"), ("upgrade", "websocket"), ("sec-websocket-key", "x")]);
        assert_eq!(inward(&mut request, 1), Some(HeaderValue::from_static("websocket")));
        assert_eq!(request["connection"], "upgrade");
        assert_eq!(request["upgrade"], "websocket");
        let mut without = headers(&[("upgrade", "h2c")]);
        assert_eq!(inward(&mut without, 1), None);
        assert!(!without.contains_key("upgrade"));
    }

    #[test]
    fn an_answer_cannot_speak_for_belljar() {
        let mut answer = headers(&[
            ("set-cookie", "belljar_session=evil"),
            ("set-cookie", "theme=dark"),
            ("set-cookie", "session=1; Domain=localhost; HttpOnly; path=/; Path=/v1;DOMAIN = x"),
            ("x-belljar-command", "cmd_1"),
            ("x-belljar-error", "1"),
            ("content-security-policy", "default-src *"),
        ]);
        let at = place(&"/v1/sandboxes/a/ports/80/x?y".parse().expect("a path"));
        assert_eq!(place(&"/v1/sandboxes/a/ports/80".parse().expect("a path")), at);
        outward(&mut answer, None, &at);
        assert_eq!(
            answer.get_all("set-cookie").iter().collect::<Vec<_>>(),
            [
                "theme=dark; Path=/v1/sandboxes/a/ports/80/",
                "session=1; HttpOnly; Path=/v1/sandboxes/a/ports/80/"
            ],
            "no other server of this machine gets them"
        );
        assert!(!answer.contains_key("x-belljar-command") && !answer.contains_key("x-belljar-error"));
        let policies: Vec<_> = answer.get_all("content-security-policy").iter().collect();
        assert_eq!(policies, ["default-src *", APART], "a browser obeys both");
    }

    #[test]
    fn the_rest_of_the_path_is_asked_for() {
        for (request, expected) in [
            ("/v1/sandboxes/a/ports/80/", "/"),
            ("/v1/sandboxes/a/ports/80", "/"),
            ("/v1/sandboxes/a/ports/80/x/y%20z?q=1&r", "/x/y%20z?q=1&r"),
            ("/v1/sandboxes/a/ports/80//evil.example/", "//evil.example/"),
        ] {
            assert_eq!(target(&request.parse().expect("a path")).as_str(), expected);
        }
    }
}
