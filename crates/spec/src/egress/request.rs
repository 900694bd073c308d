//! Which requests of HTTP a rule or a credential means: by method and by path.

use super::{Printable, RequestTarget, UnclearPath};
use std::fmt;
use std::str::FromStr;

/// Methods and paths; an empty list means any.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RequestFilter {
    pub methods: Vec<RequestMethod>,
    pub paths: Vec<PathGlob>,
}

/// `GET` and the like, in capitals.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RequestMethod(String);

/// `/repos/acme/**`: `*` is anything within a segment, `**` any number of segments. A path, never a query.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PathGlob(String);

impl RequestFilter {
    /// Any request.
    pub const ANY: RequestFilter = RequestFilter { methods: Vec::new(), paths: Vec::new() };

    /// Does it mean every request?
    pub fn is_any(&self) -> bool {
        *self == RequestFilter::ANY
    }

    /// Does it mean this request, however its target is read? A target that is unclear is none that it means.
    pub fn allows(&self, method: &str, target: &str) -> bool {
        self.judge(method, &RequestTarget::of(target)) == Ok(true)
    }

    /// The same, which says why a target is unclear. Where any path will do, the target is not read.
    pub fn judge(&self, method: &str, target: &RequestTarget<'_>) -> Result<bool, UnclearPath> {
        if !self.methods.is_empty() && !self.methods.iter().any(|known| known.0 == method) {
            return Ok(false);
        }
        if self.paths.is_empty() {
            return Ok(true);
        }
        let readings = target.readings()?;
        // By one pattern each, not by the same for all: `/a` and `/b` together allow what reads as either.
        Ok(readings.iter().all(|reading| self.paths.iter().any(|glob| glob.matches(reading))))
    }
}

/// `GET, HEAD /repos/acme/**`.
impl fmt::Display for RequestFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let methods: Vec<&str> = self.methods.iter().map(RequestMethod::as_str).collect();
        let paths: Vec<&str> = self.paths.iter().map(PathGlob::as_str).collect();
        match (methods.as_slice(), paths.as_slice()) {
            ([], []) => f.write_str("any request"),
            (methods, []) => write!(f, "{} of any path", methods.join(", ")),
            ([], paths) => write!(f, "any method of {}", paths.join(", ")),
            (methods, paths) => write!(f, "{} of {}", methods.join(", "), paths.join(", ")),
        }
    }
}

impl RequestMethod {
    /// As text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl PathGlob {
    /// As text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Does it mean this path, as it stands?
    pub fn matches(&self, path: &[u8]) -> bool {
        let Some(path) = path.strip_prefix(b"/") else { return false };
        let pattern: Vec<&[u8]> = self.0.as_bytes()[1..].split(|byte| *byte == b'/').collect();
        let segments: Vec<&[u8]> = path.split(|byte| *byte == b'/').collect();
        let is_many = |part: &&[u8]| *part == b"**";
        wildcard(&pattern, &segments, is_many, |part, segment| {
            wildcard(part, segment, |byte| *byte == b'*', |one, other| one == other)
        })
    }
}

/// Whether a pattern, some parts of which stand for any number of others, means all of a text. Takes no more steps than
/// one length times the other: a star that was passed need not be looked at again.
fn wildcard<P, T>(
    pattern: &[P],
    text: &[T],
    is_many: impl Fn(&P) -> bool,
    same: impl Fn(&P, &T) -> bool,
) -> bool {
    let (mut at, mut read) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while read < text.len() {
        if pattern.get(at).is_some_and(&is_many) {
            star = Some((at, read));
            at += 1;
        } else if pattern.get(at).is_some_and(|part| same(part, &text[read])) {
            (at, read) = (at + 1, read + 1);
        } else if let Some((place, taken)) = star {
            star = Some((place, taken + 1));
            (at, read) = (place + 1, taken + 1);
        } else {
            return false;
        }
    }
    pattern[at..].iter().all(is_many)
}

/// Not a filter.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RequestFilterError {
    #[error("`{0}` is not a method: write one like `GET`")]
    Method(Printable),
    #[error(
        "`{0}` is not a path: begin with `/`, and write no `?`, `#`, `%`, `;`, `//` or `..`, and `**` alone"
    )]
    Path(Printable),
}

impl FromStr for RequestMethod {
    type Err = RequestFilterError;

    fn from_str(text: &str) -> Result<RequestMethod, RequestFilterError> {
        let upper = text.to_ascii_uppercase();
        if upper.is_empty()
            || upper == "CONNECT"
            || !upper.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'-')
        {
            return Err(RequestFilterError::Method(text.into()));
        }
        Ok(RequestMethod(upper))
    }
}

impl FromStr for PathGlob {
    type Err = RequestFilterError;

    fn from_str(text: &str) -> Result<PathGlob, RequestFilterError> {
        let strange =
            |segment: &str| segment == "." || segment == ".." || (segment != "**" && segment.contains("**"));
        // None of these is left in every reading of a path, so a pattern with one would mean nothing.
        let plain = text.bytes().all(|byte| byte.is_ascii_graphic() && !b"?#%;\\".contains(&byte));
        if !text.starts_with('/') || text.contains("//") || text.split('/').any(strange) || !plain {
            return Err(RequestFilterError::Path(text.into()));
        }
        Ok(PathGlob(text.to_string()))
    }
}

impl fmt::Display for RequestMethod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for PathGlob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn filter(methods: &[&str], paths: &[&str]) -> RequestFilter {
        RequestFilter {
            methods: methods.iter().map(|text| text.parse().expect("a method")).collect(),
            paths: paths.iter().map(|text| text.parse().expect("a path")).collect(),
        }
    }

    #[test]
    fn stars_stand_for_what_they_say() {
        for (glob, means, does_not) in [
            ("/", &["/"][..], &["/a", "//"][..]),
            ("/a", &["/a"], &["/", "/a/", "/ab", "/a/b", "/A"]),
            ("/a/*", &["/a/b", "/a/", "/a/x%2fy"], &["/a", "/a/b/c", "/ab"]),
            ("/a/*.json", &["/a/b.json", "/a/.json"], &["/a/b.jsonx", "/a/b/c.json"]),
            ("/a/**", &["/a", "/a/", "/a/b", "/a/b/c"], &["/ab", "/", "/b/a"]),
            ("/**", &["/", "/a", "/a/b/"], &[]),
            ("/a/**/z", &["/a/z", "/a/b/z", "/a/b/c/z"], &["/a", "/a/b", "/a/z/b"]),
            ("/*/x/**", &["/a/x", "/b/x/y"], &["/x", "/a/b/x"]),
            ("/a*b*c", &["/abc", "/axxbxxc", "/abcbc"], &["/ab", "/a/b/c"]),
        ] {
            let glob: PathGlob = glob.parse().expect(glob);
            for path in means {
                assert!(glob.matches(path.as_bytes()), "{glob} means {path}");
            }
            for path in does_not {
                assert!(!glob.matches(path.as_bytes()), "{glob} does not mean {path}");
            }
        }
    }

    #[test]
    fn a_request_is_allowed_if_every_reading_is() {
        let some = filter(&["GET", "HEAD"], &["/repos/acme/**", "/user"]);
        for (method, target, expected) in [
            ("GET", "/repos/acme/x?a=/../..", Ok(true)),
            ("GET", "/repos/acme", Ok(true)),
            ("HEAD", "/user", Ok(true)),
            ("GET", "https://api.test/user", Ok(true)),
            ("GET", "/repos/acme/a%20b", Ok(true)),
            ("GET", "/repos/acme/a%2Fb", Ok(true)),
            ("GET", "/repos/acme/./x", Ok(true)),
            ("POST", "/user", Ok(false)),
            ("get", "/user", Ok(false)),
            ("GET", "/users", Ok(false)),
            ("GET", "/repos/acme/../evil", Ok(false)),
            ("GET", "/repos/acme/..", Ok(false)),
            ("GET", "/repos/acme/%2e%2e/evil", Ok(false)),
            ("GET", "/repos/acme/%252e%252e/evil", Ok(false)),
            ("GET", "/repos/acme/..%2fevil", Ok(false)),
            ("GET", "/repos/acme/..%5cevil", Ok(false)),
            ("GET", "/repos/acme/..\\evil", Ok(false)),
            ("GET", "/repos/acme/..;/evil", Ok(false)),
            ("GET", "/repos/acme/..%3Fevil", Ok(false)),
            ("GET", "/repos/acme/what%3F", Ok(true)),
            ("GET", "/repos/acme%2f..%2fevil", Ok(false)),
            ("GET", "/evil/../repos/acme/x", Ok(false)),
            ("GET", "//repos/acme/x", Ok(false)),
            ("GET", "/repos//acme/x", Ok(false)),
            ("GET", "https://api.test/../user", Ok(false)),
            ("GET", "/repos/acme/%00", Err(UnclearPath::Control)),
            ("GET", "/repos/acme/%zz", Err(UnclearPath::Encoding)),
            ("OPTIONS", "*", Ok(false)),
            ("GET", "*", Err(UnclearPath::NoPath)),
        ] {
            assert_eq!(some.judge(method, &RequestTarget::of(target)), expected, "{method} {target}");
            assert_eq!(some.allows(method, target), expected == Ok(true), "{method} {target}");
        }
        assert!(RequestFilter::ANY.allows("BREW", "*"));
        assert!(
            filter(&["GET"], &[]).allows("GET", "/%zz"),
            "where any path will do, the target is not read"
        );
    }

    #[test]
    fn a_filter_is_told_in_words() {
        for (methods, paths, expected) in [
            (&[][..], &[][..], "any request"),
            (&["get", "HEAD"], &[], "GET, HEAD of any path"),
            (&[], &["/a/**"], "any method of /a/**"),
            (&["GET"], &["/a", "/b"], "GET of /a, /b"),
        ] {
            assert_eq!(filter(methods, paths).to_string(), expected);
        }
        for path in ["a", "", "/a?b", "/a%2f", "/../a", "/a/./b", "/a b", "/a;b", "//a", "/a**", "/a\\b"] {
            assert!(path.parse::<PathGlob>().is_err(), "{path}");
        }
        for method in ["", "CONNECT", "G T", "GET1"] {
            assert!(method.parse::<RequestMethod>().is_err(), "{method}");
        }
    }

    /// A server that is no part of ours: it does what it does to the text, step by step.
    fn some_server(path: &str, habits: &[u8]) -> String {
        let mut path = path.to_string();
        for habit in habits {
            path = match habit % 6 {
                0 => {
                    let mut text = path.clone();
                    // From the end, so that what was decoded is not decoded again.
                    for at in (0..path.len().saturating_sub(2)).rev() {
                        let code = path.get(at..at + 3).filter(|code| code.starts_with('%'));
                        if let Some(byte) = code.and_then(|code| u8::from_str_radix(&code[1..], 16).ok()) {
                            text.replace_range(at..at + 3, &char::from(byte).to_string());
                        }
                    }
                    text
                }
                1 => path.replace('\\', "/"),
                2 => {
                    let parts = path.split('/').map(|part| part.find(';').map_or(part, |at| &part[..at]));
                    parts.collect::<Vec<_>>().join("/")
                }
                3 => path.split(['?', '#']).next().unwrap_or_default().to_string(),
                4 => {
                    let mut text = path.clone();
                    while text.contains("//") {
                        text = text.replace("//", "/");
                    }
                    text
                }
                _ => {
                    let mut folders: Vec<&str> = Vec::new();
                    let parts: Vec<&str> = path.split('/').skip(1).collect();
                    for (index, part) in parts.iter().enumerate() {
                        match *part {
                            "." | ".." => {
                                if *part == ".." {
                                    folders.pop();
                                }
                                if index + 1 == parts.len() {
                                    folders.push("");
                                }
                            }
                            part => folders.push(part),
                        }
                    }
                    format!("/{}", folders.join("/"))
                }
            };
        }
        path
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4000))]

        #[test]
        fn no_server_reads_an_allowed_path_as_one_outside(
            pieces in prop::collection::vec(prop::sample::select(vec![
                "a", "b", "/", "/", "//", ".", "..", "/../", "%2e", "%2E%2e", "%2f", "%5c", "\\", ";", ";x=y", "%3b",
                "%25", "%3f", "%23", "%252e", "%252f", "%255c", "%20", "evil", "/in/", "in",
            ]), 0..9),
            habits in prop::collection::vec(any::<u8>(), 0..7),
        ) {
            let target = format!("/in/{}", pieces.concat());
            let inside = filter(&[], &["/in/**"]);
            if inside.allows("GET", &target) {
                let read = some_server(&target, &habits);
                prop_assert!(read == "/in" || read.starts_with("/in/"), "{target} is {read} to {habits:?}");
            }
        }

        #[test]
        fn any_target_is_judged(target in "\\PC{0,40}|[/a-c.%0-9ef;\\\\]{0,30}") {
            let _ = filter(&["GET"], &["/a/**", "/*/b"]).judge("GET", &RequestTarget::of(&target));
        }

        #[test]
        fn a_plain_path_is_allowed_by_itself(path in "/[a-z0-9._~-]{0,8}(/[a-z0-9_~-]{1,8}){0,3}") {
            if let Ok(glob) = path.parse::<PathGlob>() {
                prop_assert!(filter(&[], &[glob.as_str()]).allows("GET", &path));
            }
        }
    }
}
