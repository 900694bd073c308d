//! Whether an answer can be looked at: what is compressed, or written in letters of another kind, hides a value. Pure.

use hyper::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, TRANSFER_ENCODING};

/// Is its body text as it stands, by what its head says?
pub(super) fn is_legible(headers: &HeaderMap) -> bool {
    let all = |name: &str, plain: &[&str]| {
        let mut values = headers.get_all(name).iter();
        values.all(|value| plain.iter().any(|plain| value.as_bytes().eq_ignore_ascii_case(plain.as_bytes())))
    };
    all(CONTENT_ENCODING.as_str(), &["identity"])
        && all(TRANSFER_ENCODING.as_str(), &["chunked", "identity"])
        && MESSAGE_ENCODINGS.iter().all(|name| all(name, &["identity"]))
        && headers.get_all(CONTENT_TYPE).iter().all(|kind| is_like_ascii(kind.as_bytes()))
}

/// A client may ask for any charset, and servers are obliging. In these, ASCII stands as it is.
fn is_like_ascii(kind: &[u8]) -> bool {
    let kind = String::from_utf8_lossy(kind).to_ascii_lowercase();
    let charsets = kind.split(';').skip(1).filter_map(|parameter| {
        let (name, charset) = parameter.split_once('=')?;
        (name.trim() == "charset").then(|| charset.trim().trim_matches('"').to_string())
    });
    charsets.into_iter().all(|charset| {
        ["utf-8", "utf8", "us-ascii", "ascii", "latin1"].contains(&charset.as_str())
            || ["iso-8859-", "windows-125"].iter().any(|family| charset.starts_with(family))
    })
}

/// How each message of a stream is compressed: gRPC and the Connect protocol.
const MESSAGE_ENCODINGS: [&str; 2] = ["grpc-encoding", "connect-content-encoding"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_stands_as_it_is_can_be_looked_at() {
        for (name, value, expected) in [
            ("content-type", "application/json", true),
            ("content-type", "text/html; charset=UTF-8", true),
            ("content-type", "text/html;boundary=x; Charset=\"iso-8859-1\"", true),
            ("content-type", "text/plain; charset=utf-16", false),
            ("content-type", "text/plain;x=y;charset=\"UTF-16LE\"", false),
            ("content-type", "text/plain; charset=IBM037", false),
            ("content-type", "text/plain; charset=utf-7", false),
            ("content-encoding", "identity", true),
            ("content-encoding", "gzip", false),
            ("content-encoding", "identity, gzip", false),
            ("transfer-encoding", "chunked", true),
            ("transfer-encoding", "gzip, chunked", false),
            ("grpc-encoding", "identity", true),
            ("grpc-encoding", "gzip", false),
            ("connect-content-encoding", "gzip", false),
        ] {
            let headers = HeaderMap::from_iter([(name.parse().unwrap(), value.parse().unwrap())]);
            assert_eq!(is_legible(&headers), expected, "{name}: {value}");
        }
        assert!(is_legible(&HeaderMap::new()));
    }
}
