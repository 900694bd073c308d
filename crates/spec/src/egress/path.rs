//! What a path may mean. The server that reads it is not ours: it may decode before it looks for `..`, or after,
//! or twice; it may take `\` for a slash, or cut off what follows a `;`. So a path is not normalised. It is read in every
//! way that servers are known to read one, in any order of the steps, and a filter has to allow all of them.
//!
//! RFC 3986 §5.2.4 and §6.2.2; the orders are those of Tomcat, IIS, nginx with `merge_slashes`, and of what runs behind
//! them.

use std::cell::OnceCell;
use std::collections::BTreeSet;

/// The target of a request, as it stands in its line. It is read at most once, however many filters ask what it may mean.
#[derive(Debug)]
pub struct RequestTarget<'t> {
    text: &'t str,
    readings: OnceCell<Result<PathReadings, UnclearPath>>,
}

impl<'t> RequestTarget<'t> {
    /// Reads nothing yet.
    pub fn of(text: &'t str) -> RequestTarget<'t> {
        RequestTarget { text, readings: OnceCell::new() }
    }

    /// What it may mean, or why it is unclear.
    pub fn readings(&self) -> Result<&PathReadings, UnclearPath> {
        self.readings.get_or_init(|| PathReadings::of(self.text)).as_ref().map_err(|unclear| *unclear)
    }
}

/// Every path that a server could make of a target: without its query, beginning with a slash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathReadings(Vec<Vec<u8>>);

impl PathReadings {
    /// Reads the target of a request, as it stands in its line. Says what is unclear about one that cannot be judged.
    pub fn of(target: &str) -> Result<PathReadings, UnclearPath> {
        let path = path_of(target);
        if !path.starts_with('/') {
            return Err(UnclearPath::NoPath);
        }
        if path.len() > MAX {
            return Err(UnclearPath::TooLong);
        }
        if !is_validly_encoded(path.as_bytes()) {
            return Err(UnclearPath::Encoding);
        }
        let mut found = BTreeSet::from([path.as_bytes().to_vec()]);
        let mut waiting = vec![path.as_bytes().to_vec()];
        let mut bytes = path.len();
        while let Some(reading) = waiting.pop() {
            // Two bytes that say "slash" in an encoding that was never right; a line's end, or a string's.
            match std::str::from_utf8(&reading) {
                Err(_) => return Err(UnclearPath::Encoding),
                Ok(text) if text.chars().any(char::is_control) => return Err(UnclearPath::Control),
                Ok(_) => {}
            }
            for step in STEPS {
                let next = step(&reading);
                if next != reading && found.insert(next.clone()) {
                    bytes += next.len();
                    waiting.push(next);
                }
            }
            if found.len() > MAX_READINGS || bytes > ROOM {
                return Err(UnclearPath::TooManyReadings);
            }
        }
        Ok(PathReadings(found.into_iter().collect()))
    }

    /// Each of them.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        self.0.iter().map(Vec::as_slice)
    }
}

/// Why a path has no readings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum UnclearPath {
    #[error("the target is not a path")]
    NoPath,
    #[error("the path is longer than 8 KiB")]
    TooLong,
    #[error("the path is not validly encoded")]
    Encoding,
    #[error("the path holds a control character")]
    Control,
    #[error("the path can be read in too many ways")]
    TooManyReadings,
}

/// The path of a target: what an absolute one has behind its authority, and nothing of a query.
fn path_of(target: &str) -> &str {
    let target = target.split(['?', '#']).next().unwrap_or_default();
    let scheme = ["http://", "https://"]
        .into_iter()
        .find(|scheme| target.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme)));
    match scheme.map(|scheme| &target[scheme.len()..]) {
        Some(rest) => rest.find('/').map_or("/", |slash| &rest[slash..]),
        None => target,
    }
}

fn is_validly_encoded(path: &[u8]) -> bool {
    let mut rest = path;
    while let Some(percent) = rest.iter().position(|byte| *byte == b'%') {
        match rest.get(percent + 1..percent + 3) {
            Some(digits) if digits.iter().all(u8::is_ascii_hexdigit) => rest = &rest[percent + 3..],
            _ => return false,
        }
    }
    true
}

/// What a server may do to a path.
type Step = fn(&[u8]) -> Vec<u8>;

/// Once or again, in any order.
const STEPS: [Step; 7] = [
    decoded,
    decoded_but_slashes,
    with_slashes_turned,
    without_parameters,
    without_query,
    with_slashes_joined,
    resolved,
];

fn decoded(path: &[u8]) -> Vec<u8> {
    decode(path, |_| true)
}

/// Decodes, but for a slash that is encoded: it stays a part of its segment.
fn decoded_but_slashes(path: &[u8]) -> Vec<u8> {
    decode(path, |byte| byte != b'/' && byte != b'\\')
}

/// What is not validly encoded by now stays as it is.
fn decode(path: &[u8], is_decoded: fn(u8) -> bool) -> Vec<u8> {
    let mut decoded = Vec::with_capacity(path.len());
    let mut rest = path;
    while let [first, after @ ..] = rest {
        let value = match (first, after) {
            (b'%', [high, low, ..]) => digit(*high).zip(digit(*low)).map(|(high, low)| high << 4 | low),
            _ => None,
        };
        match value.filter(|byte| is_decoded(*byte)) {
            Some(byte) => {
                decoded.push(byte);
                rest = &after[2..];
            }
            None => {
                decoded.push(*first);
                rest = after;
            }
        }
    }
    decoded
}

fn digit(byte: u8) -> Option<u8> {
    char::from(byte).to_digit(16).map(|value| value as u8)
}

fn with_slashes_turned(path: &[u8]) -> Vec<u8> {
    path.iter().map(|byte| if *byte == b'\\' { b'/' } else { *byte }).collect()
}

/// `/a;v=1/b` is `/a/b` to who knows parameters of segments (RFC 3986 §3.3).
fn without_parameters(path: &[u8]) -> Vec<u8> {
    let segments = path.split(|byte| *byte == b'/');
    let cut = segments.map(|segment| segment.split(|byte| *byte == b';').next().unwrap_or_default());
    cut.collect::<Vec<_>>().join(&b'/')
}

/// A query that was encoded is a part of the path, but not to who decodes first and looks for it then.
fn without_query(path: &[u8]) -> Vec<u8> {
    path.split(|byte| *byte == b'?' || *byte == b'#').next().unwrap_or_default().to_vec()
}

fn with_slashes_joined(path: &[u8]) -> Vec<u8> {
    let mut joined = path.to_vec();
    joined.dedup_by(|second, first| (*second, *first) == (b'/', b'/'));
    joined
}

/// RFC 3986 §5.2.4: `..` removes the segment before it, and at the top nothing.
fn resolved(path: &[u8]) -> Vec<u8> {
    let mut kept: Vec<&[u8]> = Vec::new();
    let mut segments = path.split(|byte| *byte == b'/').skip(1).peekable();
    while let Some(segment) = segments.next() {
        let is_last = segments.peek().is_none();
        match segment {
            b"." | b".." => {
                if segment == b".." {
                    kept.pop();
                }
                if is_last {
                    kept.push(b"");
                }
            }
            segment => kept.push(segment),
        }
    }
    let mut path = vec![b'/'];
    path.extend(kept.join(&b'/'));
    path
}

/// Longer ones have a query where they are long.
const MAX: usize = 8 * 1024;
/// A path of any honest client has one reading, or a handful.
const MAX_READINGS: usize = 64;
/// All of them together. The gateway's thread that judges a request does nothing else meanwhile, for any sandbox.
const ROOM: usize = 32 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    fn readings(target: &str) -> Vec<String> {
        let readings = PathReadings::of(target).unwrap_or_else(|error| panic!("{target}: {error}"));
        readings.iter().map(|reading| String::from_utf8_lossy(reading).into_owned()).collect()
    }

    #[test]
    fn a_plain_path_has_one_reading() {
        for (target, path) in [
            ("/", "/"),
            ("/repos/acme/x?page=2", "/repos/acme/x"),
            ("/a.b/c-d_e~f", "/a.b/c-d_e~f"),
            ("https://api.test/x?y", "/x"),
            ("HTTP://api.test", "/"),
            ("/a/", "/a/"),
        ] {
            assert_eq!(readings(target), [path], "{target}");
        }
    }

    #[test]
    fn a_tricky_path_has_all_that_a_server_could_make_of_it() {
        for (target, expected) in [
            ("/a/../b", &["/b"][..]),
            ("/a/%2e%2E/b", &["/b", "/a/../b"]),
            ("/a/%252e%252e/b", &["/b", "/a/%2e%2e/b"]),
            ("/a/..%2fb", &["/b", "/a/../b"]),
            ("/a/..%5cb", &["/b", "/a/..\\b"]),
            ("/a/..\\b", &["/b", "/a/../b"]),
            ("/a/..;x=y/b", &["/b"]),
            ("/a/..%3bx/b", &["/b"]),
            ("/a/..%3fx", &["/", "/a/..?x"]),
            ("/a/..%23x/y", &["/"]),
            ("/a//../b", &["/b", "/a/b"]),
            ("/a/%2e%2e%2fb", &["/b"]),
            ("/x%2fy", &["/x/y", "/x%2fy"]),
            ("//evil/x", &["/evil/x"]),
            ("/a/.", &["/a/"]),
            ("/a/..", &["/"]),
            ("/../../a", &["/a"]),
            // The dots remove what is decoded only later, or what was decoded before.
            ("/x/%2e%2e/../b", &["/b", "/x/b"]),
        ] {
            let found = readings(target);
            for reading in expected {
                assert!(found.iter().any(|known| known == reading), "{target} as {reading}: {found:?}");
            }
        }
    }

    #[test]
    fn an_unclear_path_has_no_readings() {
        for (target, expected) in [
            ("*", UnclearPath::NoPath),
            ("", UnclearPath::NoPath),
            ("a/b", UnclearPath::NoPath),
            ("/a%", UnclearPath::Encoding),
            ("/a%2", UnclearPath::Encoding),
            ("/a%zz", UnclearPath::Encoding),
            ("/a%u002e", UnclearPath::Encoding),
            ("/%c0%ae%c0%ae/b", UnclearPath::Encoding),
            ("/a%00", UnclearPath::Control),
            ("/a%2500", UnclearPath::Control),
            ("/a%0d%0ax", UnclearPath::Control),
            ("/a\u{7f}", UnclearPath::Control),
        ] {
            assert_eq!(PathReadings::of(target), Err(expected), "{target}");
        }
        assert_eq!(PathReadings::of(&format!("/{}", "a".repeat(MAX))), Err(UnclearPath::TooLong));
        let deep = format!("/a%{}2e", "25".repeat(200));
        assert_eq!(PathReadings::of(&deep), Err(UnclearPath::TooManyReadings));
        assert!(PathReadings::of("/100%25/of").is_ok(), "an encoded percent sign is one");
        let long = "/b".repeat(4000);
        assert!(PathReadings::of(&long).is_ok() && PathReadings::of(&format!("{long}/%20")).is_ok());
        let costly = format!("{long}/%3b%2e%2e/./%252e.;x");
        assert_eq!(PathReadings::of(&costly), Err(UnclearPath::TooManyReadings));
    }
}
