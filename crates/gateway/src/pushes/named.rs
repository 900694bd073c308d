//! Does a request name a push, in any way that a server could read it? Pure.

use belljar_spec::egress::PathReadings;
use hyper::Method;
use hyper::header::CONTENT_TYPE;
use hyper::http::request::Parts;
use percent_encoding::percent_decode;

/// What a request is, as far as pushes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Named {
    /// Something else.
    Nothing,
    /// Asks a server for its refs, to push then.
    Discovery,
    /// The push itself.
    Push,
    /// Some server may read it as a push, and it is none that can be judged.
    Unclear(&'static str),
}

/// By its method, target and headers.
pub(crate) fn named(head: &Parts) -> Named {
    if [Method::GET, Method::HEAD, Method::OPTIONS].contains(&head.method) {
        let discovers = head.method == Method::GET && head.uri.query().is_some_and(asks_for_service);
        return if discovers { Named::Discovery } else { Named::Nothing };
    }
    let Ok(readings) = PathReadings::of(head.uri.path()) else {
        // Any number of servers read it in any number of ways.
        return Named::Unclear("its path is not clear");
    };
    let mut ends = readings.iter().map(last_segment);
    let kind = head.headers.get_all(CONTENT_TYPE).iter();
    let says_so = kind.into_iter().any(|value| contains(value.as_bytes(), RECEIVE_PACK));
    if ends.any(|end| starts_with(end, RECEIVE_PACK)) || says_so {
        return match head.method {
            _ if !head.uri.path().ends_with(SERVICE_PATH) => Named::Unclear("its path is not git's"),
            Method::POST if head.uri.query().is_none() => Named::Push,
            Method::POST => Named::Unclear("it has a query"),
            _ => Named::Unclear("it is no POST"),
        };
    }
    if is_dumb(head, &readings) {
        return Named::Unclear("pushing file by file cannot be judged");
    }
    match head.uri.query() {
        Some(query) if asks_for_service(query) => Named::Unclear("it asks for a service, but not for refs"),
        Some(_) | None => Named::Nothing,
    }
}

/// Routers pass over a slash at the end.
fn last_segment(path: &[u8]) -> &[u8] {
    path.split(|byte| *byte == b'/').rev().find(|segment| !segment.is_empty()).unwrap_or_default()
}

/// Encoded as often as a server may decode it.
fn asks_for_service(query: &str) -> bool {
    let mut text = query.as_bytes().to_vec();
    for _ in 0..DECODINGS {
        if contains(&text, RECEIVE_PACK) {
            return true;
        }
        text = percent_decode(&text).collect();
    }
    false
}

/// git's old way to push, file by file (WebDAV, `git http-push`). Large files have paths of their own and are fine.
fn is_dumb(head: &Parts, readings: &PathReadings) -> bool {
    WRITING.contains(&head.method.as_str()) && readings.iter().any(is_of_repository)
}

fn is_of_repository(path: &[u8]) -> bool {
    let segments: Vec<&[u8]> = path.split(|byte| *byte == b'/').filter(|part| !part.is_empty()).collect();
    let is = |part: &[u8], name: &str| part.eq_ignore_ascii_case(name.as_bytes());
    segments.windows(2).any(|pair| {
        let [first, second] = pair else { return false };
        let is_fan_out = second.len() == 2 && second.iter().all(u8::is_ascii_hexdigit);
        let refs = is(first, "refs") && (is(second, "heads") || is(second, "tags"));
        let objects = is(first, "objects") && (is_fan_out || is(second, "pack") || is(second, "info"));
        let in_it = first.to_ascii_lowercase().ends_with(b".git");
        let files = ["HEAD", "config", "packed-refs", "hooks", "refs", "description"];
        refs || objects || (in_it && files.iter().any(|name| is(second, name)))
    })
}

fn starts_with(text: &[u8], word: &str) -> bool {
    text.get(..word.len()).is_some_and(|start| start.eq_ignore_ascii_case(word.as_bytes()))
}

fn contains(text: &[u8], word: &str) -> bool {
    text.windows(word.len()).any(|part| part.eq_ignore_ascii_case(word.as_bytes()))
}

const RECEIVE_PACK: &str = "git-receive-pack";
const SERVICE_PATH: &str = "/git-receive-pack";
/// What changes something over WebDAV (RFC 4918). An API's PATCH and DELETE are judged by rules about requests.
const WRITING: [&str; 6] = ["PUT", "MKCOL", "MOVE", "COPY", "LOCK", "PROPPATCH"];
/// Servers behind servers decode again.
const DECODINGS: usize = 3;

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::Request;

    fn of(line: &str, kind: &str) -> Named {
        let (method, target) = line.split_once(' ').unwrap();
        let request = Request::builder().method(method).uri(target).header(CONTENT_TYPE, kind);
        named(&request.body(()).unwrap().into_parts().0)
    }

    #[test]
    fn what_git_sends_is_known() {
        let kind = "application/x-git-receive-pack-request";
        assert_eq!(of("POST /acme/widgets.git/git-receive-pack", kind), Named::Push);
        assert_eq!(of("POST /acme/widgets/git-receive-pack", ""), Named::Push);
        assert_eq!(of("GET /acme/widgets.git/info/refs?service=git-receive-pack", ""), Named::Discovery);
        for line in [
            "GET /acme/widgets.git/info/refs?service=git-upload-pack",
            "POST /acme/widgets.git/git-upload-pack",
            "POST /acme/widgets.git/info/lfs/objects/batch",
            "POST /acme/widgets.git/info/lfs/locks",
            "PUT /acme/widgets.git/info/lfs/objects/abcdef/12",
            "PUT /acme/widgets.git/gitlab-lfs/objects/0123/12",
            "PATCH /repos/acme/widgets/git/refs/heads/main",
            "POST /repos/acme/widgets/git/refs",
            "PUT /repos/acme/widgets/contents/a.txt",
            "OPTIONS *",
            "GET /%zz",
            "GET /docs/git-receive-pack",
            "POST /v1/messages",
        ] {
            assert_eq!(of(line, "application/json"), Named::Nothing, "{line}");
        }
    }

    #[test]
    fn no_other_spelling_passes() {
        for line in [
            "POST /a/git-receive-pack/",
            "POST /a/git-receive-pack;x=y",
            "POST /a/git-receive-pack.json",
            "POST /a/git-receive-pack?x",
            "POST /a/Git-Receive-Pack",
            "POST /a/git-receive-pac%6b",
            "POST /a/git-receive-pac%256b",
            "POST /a/%67it-receive-pack",
            "POST /a/git%2dreceive-pack",
            "POST /a/x%2fgit-receive-pack",
            "POST /a/x%5cgit-receive-pack",
            "POST /a/git-receive-pack/x/..",
            "POST /a/git-receive-pack%3fx",
            "POST /a/git-receive-pack%23x",
            "POST /a/git-receive-pack/.",
            "PUT /a/git-receive-pack",
            "POST /a%00",
            "POST /a%zz",
            "POST /a/info/refs?service=git-receive-pack",
            "PUT /a.git/refs/heads/main",
            "PUT /a/objects/ab/cdef",
            "LOCK /a/refs/heads/main",
            "MOVE /a.git/refs/heads/x",
            "PUT /a.git/config",
            "MKCOL /a.git/objects/ab/",
            "PUT /a.git/objects/pack/x.pack",
        ] {
            assert!(matches!(of(line, ""), Named::Unclear(_)), "{line}: {:?}", of(line, ""));
        }
        assert!(matches!(of("POST /somewhere", "application/x-git-receive-pack-request"), Named::Unclear(_)));
        for query in
            ["service=git-receive-pack", "a=b&service=git-receive-pac%6B", "SERVICE=GIT-RECEIVE-PACK"]
        {
            assert_eq!(of(&format!("GET /a/info/refs?{query}"), ""), Named::Discovery, "{query}");
        }
    }
}
