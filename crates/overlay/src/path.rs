//! A path below a folder, as bytes. Never absolute, never empty, without `.` and `..`.

use super::quote;
use std::fmt;
use std::path::{Component, Path};

use std::os::unix::ffi::OsStrExt;

/// A path below a folder.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RelPath(Vec<u8>);

impl RelPath {
    /// Parses a path from the user, if it lies below the folder.
    pub fn understand(path: &Path) -> Option<RelPath> {
        let mut bytes = Vec::new();
        for component in path.components() {
            match component {
                Component::CurDir => {}
                Component::Normal(name) => push(&mut bytes, name.as_bytes()),
                Component::ParentDir | Component::RootDir | Component::Prefix(_) => return None,
            }
        }
        (!bytes.is_empty()).then_some(RelPath(bytes))
    }

    /// A directory entry, as returned by the kernel, below `parent` (empty for the folder itself).
    pub fn child(parent: &[u8], name: &[u8]) -> RelPath {
        let mut bytes = Vec::with_capacity(parent.len() + 1 + name.len());
        bytes.extend_from_slice(parent);
        push(&mut bytes, name);
        RelPath(bytes)
    }

    /// As bytes for the kernel.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The last part.
    pub fn name(&self) -> &[u8] {
        self.0.rsplit(|byte| *byte == b'/').next().unwrap_or(&self.0)
    }

    /// Its parent; empty for the folder itself.
    pub fn parent(&self) -> &[u8] {
        let end = self.0.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
        &self.0[..end]
    }

    /// Its parts.
    pub fn parts(&self) -> impl Iterator<Item = &[u8]> {
        self.0.split(|byte| *byte == b'/')
    }

    /// All its parents, nearest first; without the folder itself.
    pub fn ancestors(&self) -> impl Iterator<Item = RelPath> {
        let mut rest = self.0.as_slice();
        std::iter::from_fn(move || {
            let end = rest.iter().rposition(|byte| *byte == b'/')?;
            rest = &rest[..end];
            Some(RelPath(rest.to_vec()))
        })
    }

    /// Whether it is the other path, or lies below it.
    pub fn is_within(&self, other: &RelPath) -> bool {
        self.0.strip_prefix(other.0.as_slice()).is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
    }

    /// As one word of printable ASCII, for a journal.
    pub(super) fn encode(&self) -> String {
        let mut text = String::with_capacity(self.0.len());
        for byte in &self.0 {
            match byte {
                b'%' | 0..=b' ' | 0x7f.. => text.push_str(&format!("%{byte:02x}")),
                _ => text.push(char::from(*byte)),
            }
        }
        text
    }

    /// Reverses [`RelPath::encode`].
    pub(super) fn decode(text: &str) -> Option<RelPath> {
        let mut bytes = Vec::with_capacity(text.len());
        let mut rest = text.as_bytes();
        while let Some((first, after)) = rest.split_first() {
            rest = after;
            if *first == b'%' {
                let digits = std::str::from_utf8(rest.get(..2)?).ok()?;
                bytes.push(u8::from_str_radix(digits, 16).ok()?);
                rest = &rest[2..];
            } else {
                bytes.push(*first);
            }
        }
        let path = RelPath(bytes);
        let plain = path.parts().all(|part| !matches!(part, b"" | b"." | b"..") && !part.contains(&0));
        plain.then_some(path)
    }
}

/// As git writes it: quoted if it has characters that are special to a terminal or a script.
impl fmt::Display for RelPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&quote::name(&self.0))
    }
}

impl fmt::Debug for RelPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl serde::Serialize for RelPath {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

fn push(bytes: &mut Vec<u8>, name: &[u8]) {
    if !bytes.is_empty() {
        bytes.push(b'/');
    }
    bytes.extend_from_slice(name);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn only_what_lies_below() {
        for (text, plain) in [("a", "a"), ("./a//b/", "a/b"), ("..a", "..a")] {
            assert_eq!(RelPath::understand(Path::new(text)).unwrap().as_bytes(), plain.as_bytes());
        }
        for text in ["", ".", "/etc", "..", "a/../b"] {
            assert_eq!(RelPath::understand(Path::new(text)), None, "{text}");
        }
    }

    #[test]
    fn a_name_that_begins_the_same_is_not_within() {
        let path = |text: &str| RelPath::understand(Path::new(text)).unwrap();
        assert!(path("a/b").is_within(&path("a")) && path("a").is_within(&path("a")));
        assert!(!path("ab").is_within(&path("a")) && !path("a").is_within(&path("a/b")));
        assert_eq!(path("a/b/c").ancestors().collect::<Vec<_>>(), [path("a/b"), path("a")]);
    }

    proptest! {
        #[test]
        fn a_journal_gives_back_every_name(names in prop::collection::vec(prop::collection::vec(1u8.., 1..9), 1..4)) {
            let plain = |name: &&Vec<u8>| !name.contains(&b'/') && !matches!(name.as_slice(), b"." | b"..");
            let path = names.iter().filter(plain).fold(None, |parent: Option<RelPath>, name| {
                Some(RelPath::child(parent.as_ref().map_or(b"", RelPath::as_bytes), name))
            });
            if let Some(path) = path {
                prop_assert!(path.encode().bytes().all(|byte| byte.is_ascii_graphic()));
                prop_assert_eq!(RelPath::decode(&path.encode()), Some(path));
            }
        }
    }

    #[test]
    fn a_journal_path_cannot_escape() {
        for text in ["", "..", "a/../b", "/a", "a//b", "%2e%2e/a", "a%00", "%2", "%zz"] {
            assert_eq!(RelPath::decode(text), None, "{text}");
        }
    }
}
