//! Whether a request asks for a web socket, and whether an answer is one (RFC 6455 §4). Behind an answer with status 101 the gateway
//! reads no requests any more, so a server that says so by mistake would undo every rule about them.
//!
//! Pure; called by `route`.

use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use data_encoding::BASE64;
use hyper::header::{
    CONNECTION, CONTENT_LENGTH, HeaderMap, HeaderName, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY,
    SEC_WEBSOCKET_VERSION, TRANSFER_ENCODING, UPGRADE,
};
use hyper::http::request::Parts;
use hyper::{Method, Version};

/// A request for a web socket, by what its answer has to prove.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct WebSocket {
    accept: String,
}

/// What a request wants its connection to become.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Upgrade {
    /// Nothing, or something that a server may decline without a word (HTTP/2 in the clear, TLS by RFC 2817).
    None,
    WebSocket(WebSocket),
    /// Something that the gateway cannot read, or a web socket that is asked for in a wrong way; with what it is.
    Other(String),
}

impl Upgrade {
    pub(super) fn of(head: &Parts) -> Upgrade {
        if head.version >= Version::HTTP_2 {
            return Upgrade::None;
        }
        let protocols: Vec<String> = words(&head.headers, UPGRADE).collect();
        let declinable = |word: &String| DECLINABLE.contains(&word.as_str()) || word.starts_with("tls/");
        match &protocols[..] {
            [only] if only == "websocket" => match WebSocket::requested(head) {
                Some(web_socket) => Upgrade::WebSocket(web_socket),
                None => Upgrade::Other("a web socket that is not asked for as RFC 6455 says".into()),
            },
            all => match all.iter().find(|word| !declinable(word)) {
                None => Upgrade::None,
                Some(other) => Upgrade::Other(other.clone()),
            },
        }
    }
}

impl WebSocket {
    fn requested(head: &Parts) -> Option<WebSocket> {
        let headers = &head.headers;
        let key = only(headers, SEC_WEBSOCKET_KEY)?;
        let is_key = BASE64.decode(key).is_ok_and(|nonce| nonce.len() == NONCE_BYTES);
        let has_body = headers.contains_key(TRANSFER_ENCODING)
            || headers.get(CONTENT_LENGTH).is_some_and(|length| length.as_bytes() != b"0");
        let is_right = head.method == Method::GET
            && head.version == Version::HTTP_11
            && only(headers, SEC_WEBSOCKET_VERSION) == Some(b"13")
            && words(headers, CONNECTION).any(|word| word == "upgrade")
            && is_key
            && !has_body;
        is_right.then(|| {
            let proof = digest(&SHA1_FOR_LEGACY_USE_ONLY, &[key, GUID].concat());
            WebSocket { accept: BASE64.encode(proof.as_ref()) }
        })
    }

    /// Whether the server understood it: it answers with the key of this request.
    pub(super) fn is_accepted_by(&self, headers: &HeaderMap) -> bool {
        let upgrades: Vec<String> = words(headers, UPGRADE).collect();
        upgrades == ["websocket"]
            && words(headers, CONNECTION).any(|word| word == "upgrade")
            && only(headers, SEC_WEBSOCKET_ACCEPT) == Some(self.accept.as_bytes())
    }
}

/// The words of a list, in lower case.
fn words(headers: &HeaderMap, name: HeaderName) -> impl Iterator<Item = String> {
    let values = headers.get_all(name).iter().map(|value| String::from_utf8_lossy(value.as_bytes()));
    let text = values.collect::<Vec<_>>().join(",");
    let words: Vec<String> = text.split(',').map(|word| word.trim().to_ascii_lowercase()).collect();
    words.into_iter().filter(|word| !word.is_empty())
}

/// A header that is there once.
fn only(headers: &HeaderMap, name: HeaderName) -> Option<&[u8]> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (Some(value), None) => Some(value.as_bytes()),
        _ => None,
    }
}

/// A server that does not know of these continues in HTTP/1.1, and so their clients do.
const DECLINABLE: [&str; 3] = ["h2c", "h2", "http/2.0"];
const NONCE_BYTES: usize = 16;
/// RFC 6455 §1.3.
const GUID: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::Request;

    fn head(method: &str, headers: &[(&str, &str)]) -> Parts {
        let mut request = Request::builder().method(method).uri("/");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(()).expect("a request").into_parts().0
    }

    /// The example of RFC 6455 §1.3.
    const REQUEST: [(&str, &str); 4] = [
        ("upgrade", "WebSocket"),
        ("connection", "keep-alive, Upgrade"),
        ("sec-websocket-version", "13"),
        ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
    ];

    #[test]
    fn an_answer_that_does_not_know_the_key_is_no_web_socket() {
        let Upgrade::WebSocket(request) = Upgrade::of(&head("GET", &REQUEST)) else { panic!("it is one") };
        let right = ("sec-websocket-accept", "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
        let (upgrade, connection) = (("upgrade", "websocket"), ("connection", "Upgrade"));
        for (headers, expected) in [
            (&[upgrade, connection, right][..], true),
            (&[upgrade, connection], false),
            (&[upgrade, right], false),
            (&[connection, right], false),
            (&[("upgrade", "tcp"), connection, right], false),
            (&[("upgrade", "websocket, tcp"), connection, right], false),
            (&[upgrade, connection, right, right], false),
            (&[upgrade, connection, ("sec-websocket-accept", "S3PPLMBITXAQ9KYGZZHZRBK+XOO=")], false),
        ] {
            assert_eq!(request.is_accepted_by(&head("GET", headers).headers), expected, "{headers:?}");
        }
    }

    #[test]
    fn only_a_web_socket_as_the_document_says_is_asked_for() {
        let replaced = |name: &str, value: &'static str| {
            let change = |(known, old)| if known == name { (known, value) } else { (known, old) };
            REQUEST.map(change)
        };
        let other = |head: &Parts| matches!(Upgrade::of(head), Upgrade::Other(_));
        assert!(other(&head("POST", &REQUEST)));
        assert!(other(&head("GET", &REQUEST[..3])), "no key");
        assert!(other(&head("GET", &replaced("sec-websocket-version", "8"))));
        assert!(other(&head("GET", &replaced("sec-websocket-key", "dGhlIHNhbXBsZQ=="))));
        assert!(other(&head("GET", &replaced("connection", "close"))));
        assert!(other(&head("GET", &replaced("upgrade", "tcp"))));
        assert!(other(&head("GET", &replaced("upgrade", "websocket, tcp"))));
        assert!(other(&head("GET", &[&REQUEST[..], &[("content-length", "5")]].concat())));
        assert_eq!(
            Upgrade::of(&head("GET", &[("upgrade", "h2c"), ("connection", "upgrade")])),
            Upgrade::None
        );
        let tls = [("upgrade", "TLS/1.2"), ("connection", "upgrade")];
        assert_eq!(Upgrade::of(&head("GET", &tls)), Upgrade::None);
        assert_eq!(Upgrade::of(&head("GET", &[])), Upgrade::None);
    }
}
