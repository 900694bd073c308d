//! Git's index, read for the one thing that matters here: which paths are repositories of their own. gitformat-index(5).

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// What is in a git directory's index and the files that it may be split into.
#[derive(Debug, Default)]
pub(super) struct Index {
    /// The paths of the entries that are repositories.
    pub(super) repositories: Vec<Vec<u8>>,
    /// Files that are too large to be read.
    pub(super) too_large: Vec<PathBuf>,
}

/// Reads it. What makes no sense names nothing that git would see either.
pub(super) fn index(git_dir: &Path) -> Index {
    let entries = fs::read_dir(git_dir).into_iter().flatten().flatten();
    let is_index = |name: &[u8]| name == b"index" || name.starts_with(b"sharedindex.");
    let mut found = Index::default();
    let mut rest = MOST_BYTES;
    for entry in entries.filter(|entry| is_index(entry.file_name().as_bytes())) {
        match contents(&entry.path(), &mut rest) {
            // An object's name is 20 bytes long, or 32; the file does not say which.
            Contents::Index(bytes) => {
                found
                    .repositories
                    .extend([20, 32].into_iter().find_map(|hash| read(&bytes, hash)).unwrap_or_default());
            }
            Contents::TooLarge => found.too_large.push(entry.path()),
            Contents::Other => {}
        }
    }
    found.repositories.sort();
    found.repositories.dedup();
    found
}

enum Contents {
    Index(Vec<u8>),
    TooLarge,
    Other,
}

/// The contents of a file that begins as an index does, of no more than `rest`, which they are taken from.
fn contents(index: &Path, rest: &mut u64) -> Contents {
    let Some(found) = index.metadata().ok().filter(|found| found.is_file()) else { return Contents::Other };
    let Ok(mut file) = File::open(index) else { return Contents::Other };
    let mut bytes = vec![0; MAGIC.len()];
    if file.read_exact(&mut bytes).is_err() || bytes != MAGIC {
        return Contents::Other;
    }
    match rest.checked_sub(found.len()) {
        None => Contents::TooLarge,
        Some(left) => {
            *rest = left;
            match file.take(found.len()).read_to_end(&mut bytes) {
                Ok(_) => Contents::Index(bytes),
                Err(_) => Contents::Other,
            }
        }
    }
}

/// The same, if the whole of it makes sense with names of this length.
fn read(bytes: &[u8], hash: usize) -> Option<Vec<Vec<u8>>> {
    let version = match (bytes.get(..4)?, number(bytes, 4)?) {
        (magic, version @ 2..=4) if magic == MAGIC => version,
        _ => return None,
    };
    let mut found = Vec::new();
    let mut name: Vec<u8> = Vec::new();
    let mut at = 12;
    for _ in 0..number(bytes, 8)? {
        let start = at;
        let mode = number(bytes, start + 24)?;
        at = start + 40 + hash;
        let flags = u16::from_be_bytes(bytes.get(at..at + 2)?.try_into().ok()?);
        at += 2;
        if flags & EXTENDED != 0 {
            at += 2;
        }
        if version == 4 {
            // So many bytes of the name before are dropped, then more follow.
            let drop = offset(bytes, &mut at)?;
            name.truncate(name.len().checked_sub(drop)?);
        } else {
            name.clear();
        }
        let end = at + bytes.get(at..)?.iter().position(|byte| *byte == 0)?;
        name.extend_from_slice(&bytes[at..end]);
        let length = usize::from(flags & LENGTH);
        if length < usize::from(LENGTH) && length != name.len() {
            return None;
        }
        at = if version == 4 { end + 1 } else { start + (end - start) / 8 * 8 + 8 };
        if mode & 0o170_000 == REPOSITORY {
            found.push(name.clone());
        }
    }
    Some(found)
}

fn number(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

/// A number of any length, as in packs: seven bits a byte, and one more for every further byte.
fn offset(bytes: &[u8], at: &mut usize) -> Option<usize> {
    let mut value = 0usize;
    loop {
        let byte = *bytes.get(*at)?;
        *at += 1;
        value = value.checked_mul(128)?.checked_add(usize::from(byte & 0x7f))?;
        if byte & 0x80 == 0 {
            return Some(value);
        }
        value = value.checked_add(1)?;
    }
}

const MAGIC: &[u8] = b"DIRC";
/// An index of a million files has about a hundred. A sparse file costs its maker nothing, and its reader all of it.
const MOST_BYTES: u64 = 256 << 20;
const EXTENDED: u16 = 0x4000;
const LENGTH: u16 = 0x0fff;
const REPOSITORY: u32 = 0o160_000;
