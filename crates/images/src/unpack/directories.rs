//! What the directories of a layer are to become when everything is in them: until then they are ours to write to, and their
//! times change with every entry.

use super::error::UnpackError;
use super::path::LayerPath;
use std::collections::BTreeMap;

#[derive(Default)]
pub(super) struct Directories {
    meant: BTreeMap<LayerPath, Meta>,
    /// Of all their names.
    bytes: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Meta {
    pub(super) mode: u32,
    pub(super) uid: u64,
    pub(super) gid: u64,
    pub(super) mtime: (i64, u32),
}

impl Meta {
    /// Of a directory that a layer has only because something is in it. In an overlay the topmost counts, so those that are
    /// never `0755` get their usual modes.
    pub(super) fn implicit(path: &[u8]) -> Meta {
        let mode = match path {
            b"tmp" | b"var/tmp" => 0o1777,
            b"root" => 0o700,
            _ => 0o755,
        };
        Meta { mode, uid: 0, gid: 0, mtime: (0, 0) }
    }
}

impl Directories {
    pub(super) fn meant(&mut self, path: LayerPath, meta: Meta) -> Result<(), UnpackError> {
        self.bytes += path.as_bytes().len();
        self.meant.insert(path, meta);
        if self.bytes > NAMES || self.meant.len() > DIRECTORIES {
            return Err(UnpackError::TooWide);
        }
        Ok(())
    }

    /// Something else takes the place of a directory, and all in it is gone.
    pub(super) fn forget(&mut self, path: &LayerPath) {
        self.meant.remove(path);
        let below = [path.as_bytes(), b"/"].concat();
        // `0` comes right behind `/`.
        let end = [path.as_bytes(), b"0"].concat();
        let (from, to) = (LayerPath::of(below), LayerPath::of(end));
        let gone: Vec<LayerPath> = self.meant.range(from..to).map(|(path, _)| path.clone()).collect();
        for path in gone {
            self.meant.remove(&path);
        }
    }

    pub(super) fn innermost_first(&self) -> impl Iterator<Item = (&LayerPath, &Meta)> {
        self.meant.iter().rev()
    }
}

/// All of them are in memory at once.
const NAMES: usize = 256 << 20;
const DIRECTORIES: usize = 500_000;
