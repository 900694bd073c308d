//! Headers by which a client has a server read another method, path or host than the request line says. Where rules limit
//! methods or paths, a request that has one can be read in two ways, and is refused: the rules judged only one of them. To remove
//! the header instead would send something that the client did not mean (the POST of a DELETE).
//!
//! Pure; called by `route` and by `fetch`.

use hyper::header::HeaderMap;
use percent_encoding::percent_decode_str;

/// What of a request's head names another method, path or host, if something does.
pub(crate) fn override_in(headers: &HeaderMap, query: Option<&str>) -> Option<String> {
    let what = in_headers(headers).or_else(|| in_query(query?))?;
    Some(format!("{what}: a server may read another method, path or host there"))
}

fn in_headers(headers: &HeaderMap) -> Option<String> {
    headers.keys().map(|name| name.as_str()).find(|name| is_override(name)).map(str::to_string)
}

/// By the words that a name consists of: frameworks and proxies spell these headers in many ways, and to a program behind CGI or
/// WSGI `_` and `-` are the same.
fn is_override(name: &str) -> bool {
    let name = name.to_ascii_lowercase().replace('_', "-");
    let words: Vec<&str> = name.split('-').collect();
    let has = |names: &[&str]| words.iter().any(|word| names.contains(word));
    let ["x", ..] = words[..] else { return name == "forwarded" };
    let names_another = has(&["original", "rewrite", "rewritten", "forwarded", "override", "http"]);
    // `X-HTTP-Method`, `X-Method-Override`, `X-Original-URL`, `X-Forwarded-Host`, `X-Envoy-Original-Path`; `X-Method`, `X-Host`. Another
    // word alone makes none: clients of Anthropic and OpenAI send `X-Stainless-Helper-Method: stream`.
    (names_another || words.len() == 2) && has(&TARGETS)
}

/// Some frameworks take the method of a POST from here.
fn in_query(query: &str) -> Option<String> {
    let is_method = |pair: &str| {
        let name = pair.split('=').next().unwrap_or_default();
        percent_decode_str(name).eq(b"_method".iter().copied())
    };
    query.split(['&', ';']).any(is_method).then(|| "_method in the query".to_string())
}

/// What a server may be told to read instead.
const TARGETS: [&str; 8] = ["method", "url", "uri", "path", "pathinfo", "prefix", "host", "server"];

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::Request;

    fn offending(target: &str, header: &str) -> Option<String> {
        let request = Request::get(target).header(header, "x").body(()).expect("a request");
        let reason = override_in(request.headers(), request.uri().query())?;
        reason.strip_suffix(": a server may read another method, path or host there").map(str::to_string)
    }

    #[test]
    fn what_names_another_method_path_or_host_is_found() {
        for header in [
            "X-HTTP-Method-Override",
            "X-HTTP-Method",
            "X-Method-Override",
            "x_http_method_override",
            "X-Original-Method",
            "X-Forwarded-Method",
            "X-Method",
            "X-Original-URL",
            "X-Original-Uri",
            "X-Rewrite-URL",
            "X-Override-URL",
            "X-Forwarded-Host",
            "X-Forwarded-Uri",
            "X-Forwarded-Path",
            "X-Forwarded-Prefix",
            "X-Forwarded-Server",
            "X-HTTP-Host-Override",
            "X-Envoy-Original-Path",
            "Forwarded",
            "X-Host",
        ] {
            assert_eq!(offending("/a", header), Some(header.to_ascii_lowercase()), "{header}");
        }
        for target in ["/a?_method=DELETE", "/a?x=1&%5fmethod=PUT", "/a?%5F%6D%65thod"] {
            assert!(offending(target, "accept").is_some(), "{target}");
        }
    }

    #[test]
    fn what_ordinary_clients_send_is_not() {
        for header in [
            "host",
            "accept",
            "access-control-request-method",
            "x-requested-with",
            "x-forwarded-for",
            "x-forwarded-proto",
            "x-github-api-version",
            "x-stainless-retry-count",
            "x-stainless-helper-method",
            "x-amz-content-sha256",
            "x-amz-copy-source",
            "x-goog-api-key",
            "x-request-id",
            "x-http-version",
            "path",
        ] {
            assert_eq!(offending("/a?method=x&my_method=y", header), None, "{header}");
        }
    }
}
