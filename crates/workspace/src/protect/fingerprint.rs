//! The state of a path, in a form that can be compared later: by content, so that only a real change counts.
//!
//! Two things count as nothing: belljar's mount-point placeholders for missing paths (an empty directory, an empty file, a file
//! with a `.`), and directories with nothing else in them. So the placeholders of a sandbox that runs beside this one are no
//! change, neither when they appear nor when they disappear.

use belljar_sys::rustix::fs::OFlags;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, File, Metadata};
use std::io::Read;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// The state of a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Fingerprint {
    /// Nothing, or a placeholder.
    Nothing,
    File {
        is_executable: bool,
        content: [u8; 32],
    },
    /// A file that is too large to be read, or one too many: its metadata, including the ctime, which no program can set.
    Unread {
        inode: u64,
        size: u64,
        changed: (i64, i64),
    },
    Link(PathBuf),
    Directory(BTreeMap<OsString, Fingerprint>),
    /// A pipe, a socket or a device.
    Special {
        inode: u64,
    },
    /// One entry too many, or one too deep: not read.
    Unseen,
}

/// How much is read.
#[derive(Debug)]
pub(super) struct Budget {
    entries: usize,
    bytes: u64,
}

impl Budget {
    /// For one of a few paths.
    pub(super) fn small() -> Budget {
        Budget::shared_by(1)
    }

    /// For each of this many paths: the same for each regardless of the others, so that a change of one does not affect another's
    /// fingerprint.
    pub(super) fn shared_by(places: usize) -> Budget {
        let places = places.max(1);
        let entries = (MAX_ENTRIES / places).clamp(FEWEST_ENTRIES, MAX_ENTRIES_EACH);
        Budget { entries, bytes: (MAX_BYTES / places as u64).clamp(FEWEST_BYTES, LARGEST) }
    }
}

impl Fingerprint {
    /// The present state. No link is followed.
    pub(super) fn of(place: &Path, budget: &mut Budget) -> Fingerprint {
        at(place, 0, budget)
    }

    /// One fingerprint of several paths.
    pub(super) fn of_all(places: impl IntoIterator<Item = PathBuf>, budget: &mut Budget) -> Fingerprint {
        let all = places.into_iter().map(|place| {
            let found = Fingerprint::of(&place, budget);
            (place.into_os_string(), found)
        });
        Fingerprint::Directory(all.filter(|(_, found)| *found != Fingerprint::Nothing).collect())
    }
}

fn at(place: &Path, depth: usize, budget: &mut Budget) -> Fingerprint {
    if budget.entries == 0 || depth > DEEPEST {
        return Fingerprint::Unseen;
    }
    budget.entries -= 1;
    let Ok(found) = place.symlink_metadata() else { return Fingerprint::Nothing };
    let kind = found.file_type();
    if kind.is_symlink() {
        return Fingerprint::Link(fs::read_link(place).unwrap_or_default());
    }
    if kind.is_dir() {
        return directory(place, depth, budget);
    }
    if kind.is_fifo() || kind.is_socket() || kind.is_block_device() || kind.is_char_device() {
        return Fingerprint::Special { inode: found.ino() };
    }
    file(place, &found, budget).unwrap_or_else(|| unread(&found))
}

fn directory(place: &Path, depth: usize, budget: &mut Budget) -> Fingerprint {
    let is_hooks = place.file_name().is_some_and(|name| name == "hooks");
    let mut inside = BTreeMap::new();
    for entry in fs::read_dir(place).into_iter().flatten().flatten() {
        let name = entry.file_name();
        // Examples that come with git, which git never runs.
        if is_hooks && name.as_encoded_bytes().ends_with(b".sample") {
            continue;
        }
        match at(&entry.path(), depth + 1, budget) {
            Fingerprint::Nothing => {}
            found => drop(inside.insert(name, found)),
        }
    }
    if inside.is_empty() { Fingerprint::Nothing } else { Fingerprint::Directory(inside) }
}

/// By its content, if it is small enough.
fn file(place: &Path, found: &Metadata, budget: &mut Budget) -> Option<Fingerprint> {
    if found.len() > LARGEST || found.len() > budget.bytes {
        return None;
    }
    budget.bytes -= found.len();
    let flags = (OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::NOFOLLOW).bits() as i32;
    let opened = File::options().read(true).custom_flags(flags).open(place).ok()?;
    let mut bytes = Vec::new();
    opened.take(LARGEST + 1).read_to_end(&mut bytes).ok()?;
    if bytes.is_empty() || bytes.trim_ascii_end() == b"." {
        return Some(Fingerprint::Nothing);
    }
    let content = Sha256::digest(&bytes).into();
    Some(Fingerprint::File { is_executable: found.mode() & 0o111 != 0, content })
}

fn unread(found: &Metadata) -> Fingerprint {
    Fingerprint::Unread {
        inode: found.ino(),
        size: found.len(),
        changed: (found.ctime(), found.ctime_nsec()),
    }
}

/// Protected files are small: some settings, some scripts.
const MAX_ENTRIES: usize = 16 * 1024;
const MAX_ENTRIES_EACH: usize = 2048;
const FEWEST_ENTRIES: usize = 64;
const MAX_BYTES: u64 = 8 << 20;
const FEWEST_BYTES: u64 = 128 << 10;
/// The size limit of a file that is read.
const LARGEST: u64 = 1 << 20;
const DEEPEST: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_content_counts_and_placeholders_are_nothing() {
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| place.path().join(name);
        let now = |name: &str| Fingerprint::of(&at(name), &mut Budget::small());
        fs::create_dir_all(at("empty/deeper")).unwrap();
        fs::write(at("commondir"), ".").unwrap();
        fs::write(at("nothing"), "").unwrap();
        for name in ["empty", "commondir", "nothing", "missing"] {
            assert_eq!(now(name), Fingerprint::Nothing, "{name}");
        }
        fs::create_dir(at("hooks")).unwrap();
        fs::write(at("hooks/x.sample"), "x").unwrap();
        assert_eq!(now("hooks"), Fingerprint::Nothing);
        fs::write(at("hooks/pre-commit"), "true").unwrap();
        let before = now("hooks");
        // The same content in another file, with another time.
        fs::remove_file(at("hooks/pre-commit")).unwrap();
        fs::write(at("hooks/pre-commit"), "true").unwrap();
        assert_eq!(now("hooks"), before);
        fs::write(at("hooks/pre-commit"), "evil").unwrap();
        assert_ne!(now("hooks"), before);
        // A change of a file that is too large to be read is noticed too.
        let large = File::create(at("large")).unwrap();
        large.set_len(LARGEST + 1).unwrap();
        let before = now("large");
        assert_eq!(now("large"), before);
        large.set_len(LARGEST + 2).unwrap();
        assert_ne!(now("large"), before);
    }
}
