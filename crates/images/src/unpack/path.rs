//! Names in a layer. What is one of these has no `..`, no empty part and nothing that the kernel would not take; that it stays
//! beneath its directory is the kernel's business all the same.

use super::error::{UnpackError, quoted};

/// A path in a layer; empty for the layer's own directory.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct LayerPath(Vec<u8>);

/// What an entry's name asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Named {
    /// An entry of its own.
    Path(LayerPath),
    /// That nothing of this name is seen from the layers below.
    Whiteout(LayerPath),
    /// That nothing at all in this directory is.
    Opaque(LayerPath),
    /// Something that only aufs understood.
    Aufs,
}

impl LayerPath {
    /// Understands a name. One with a slash in front is relative to the layer's directory, as all unpackers treat it.
    pub(super) fn parse(name: &[u8]) -> Result<LayerPath, UnpackError> {
        if name.contains(&0) || name.is_empty() {
            return Err(UnpackError::NoPath(quoted(name)));
        }
        let mut path = Vec::with_capacity(name.len());
        for part in name.split(|byte| *byte == b'/') {
            match part {
                b"" | b"." => continue,
                b".." => return Err(UnpackError::Outside(quoted(name))),
                part if part.len() > NAME => return Err(UnpackError::NoPath(quoted(name))),
                part => {
                    if !path.is_empty() {
                        path.push(b'/');
                    }
                    path.extend_from_slice(part);
                }
            }
        }
        if path.len() > PATH {
            return Err(UnpackError::NoPath(quoted(name)));
        }
        Ok(LayerPath(path))
    }

    /// From bytes that only order others.
    pub(super) fn of(bytes: Vec<u8>) -> LayerPath {
        LayerPath(bytes)
    }

    /// Something in this directory.
    pub(super) fn child(&self) -> LayerPath {
        let separator: &[u8] = if self.is_root() { b"" } else { b"/" };
        LayerPath([&self.0, separator, b"."].concat())
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    pub(super) fn is_root(&self) -> bool {
        self.0.is_empty()
    }

    /// The directory that it is in, and its name there.
    pub(super) fn split(&self) -> (&[u8], &[u8]) {
        match memchr::memrchr(b'/', &self.0) {
            Some(at) => (&self.0[..at], &self.0[at + 1..]),
            None => (b"", &self.0),
        }
    }

    /// What its last name asks for: "Whiteouts" of the OCI image specification.
    pub(super) fn named(self) -> Result<Named, UnpackError> {
        let (parent, name) = self.split();
        let mut way = parent.split(|byte| *byte == b'/');
        if name.starts_with(AUFS) && name != OPAQUE || way.clone().any(|part| part.starts_with(AUFS)) {
            return Ok(Named::Aufs);
        }
        if way.any(|part| part.starts_with(WHITEOUT)) {
            return Err(UnpackError::Through(quoted(&self.0)));
        }
        if name == OPAQUE {
            return Ok(Named::Opaque(LayerPath(parent.to_vec())));
        }
        let Some(hidden) = name.strip_prefix(WHITEOUT) else { return Ok(Named::Path(self)) };
        if matches!(hidden, b"" | b"." | b"..") {
            return Err(UnpackError::Outside(quoted(&self.0)));
        }
        let separator: &[u8] = if parent.is_empty() { b"" } else { b"/" };
        Ok(Named::Whiteout(LayerPath([parent, separator, hidden].concat())))
    }
}

const WHITEOUT: &[u8] = b".wh.";
const AUFS: &[u8] = b".wh..wh.";
const OPAQUE: &[u8] = b".wh..wh..opq";
/// NAME_MAX of Linux.
const NAME: usize = 255;
/// PATH_MAX without its zero.
const PATH: usize = 4095;

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> LayerPath {
        LayerPath(text.as_bytes().to_vec())
    }

    #[test]
    fn a_name_is_a_path_below_or_none() {
        for (name, expected) in [
            ("a/b", "a/b"),
            ("./a//b/", "a/b"),
            ("/etc/passwd", "etc/passwd"),
            ("./", ""),
            ("/", ""),
            ("a\nb", "a\nb"),
            ("...", "..."),
        ] {
            assert_eq!(LayerPath::parse(name.as_bytes()).unwrap(), path(expected), "{name}");
        }
        let long = format!("a/{}", "x".repeat(256));
        let deep = "ab/".repeat(1400);
        for name in ["", "..", "a/..", "../a", "/..", "a/../../b", "a\0b", &long, &deep] {
            assert!(LayerPath::parse(name.as_bytes()).is_err(), "{name}");
        }
    }

    #[test]
    fn whiteouts_hide_a_name_and_never_lead_up() {
        for (name, expected) in [
            ("a/.wh.b", Named::Whiteout(path("a/b"))),
            (".wh.b", Named::Whiteout(path("b"))),
            ("a/.wh..wh..opq", Named::Opaque(path("a"))),
            (".wh..wh..opq", Named::Opaque(path(""))),
            (".wh..wh.plnk/1.2", Named::Aufs),
            (".wh..wh.aufs", Named::Aufs),
            ("a.wh.b", Named::Path(path("a.wh.b"))),
            ("", Named::Path(path(""))),
        ] {
            assert_eq!(path(name).named().unwrap(), expected, "{name}");
        }
        for name in [".wh.", ".wh..", ".wh...", "a/.wh...", "a/.wh.b/c"] {
            assert!(path(name).named().is_err(), "{name}");
        }
    }
}
