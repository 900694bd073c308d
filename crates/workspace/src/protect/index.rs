//! Reads git's index for the one thing that matters here: which paths are gitlinks. By gitformat-index(5), and where that leaves a
//! choice, as `create_from_disk` of git's read-cache.c does: an agent may have written it.

use super::known_index;
use crate::settings::open_file;
use std::collections::BTreeSet;
use std::fs;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::thread;

/// The gitlinks of a git directory's index and of the files that it may be split into.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Index {
    /// The paths of the entries that are, or may be, repositories.
    pub(super) repositories: BTreeSet<Vec<u8>>,
    /// Files that are too large to be read.
    pub(super) too_large: Vec<PathBuf>,
    /// Files that begin like an index, and then differ.
    pub(super) unreadable: Vec<PathBuf>,
}

/// Why an index was not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unread {
    /// It is damaged, or was crafted so that only git reads it.
    Malformed,
    /// It names more paths than we keep in memory.
    TooLarge,
}

/// The entries of an index that are repositories.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Gitlinks {
    /// Their paths.
    pub names: BTreeSet<Vec<u8>>,
    /// Whether one has no name: it replaces an entry in the other half of a split index, and takes its name.
    pub unnamed: bool,
}

/// Reads all of them; a start and an end ask several times, and a file that did not change in between is read once.
pub(super) fn index(git_dir: &Path) -> Index {
    known_index::or_else(files(git_dir), read)
}

/// Does `work` while a second thread reads a large index, so that [`index`] knows it afterwards.
pub(super) fn while_read<T>(git_dir: &Path, work: impl FnOnce() -> T) -> T {
    if !is_large(git_dir) {
        return work();
    }
    thread::scope(|scope| {
        // If no thread can be started, it is read when it is needed.
        let _ = thread::Builder::new().spawn_scoped(scope, || drop(index(git_dir)));
        work()
    })
}

/// Whether it takes so long to read that a second thread is worth it.
pub(super) fn is_large(git_dir: &Path) -> bool {
    fs::symlink_metadata(git_dir.join("index")).is_ok_and(|found| found.len() >= MIN_BESIDE_BYTES)
}

/// The index, and the files that it may be split into.
fn files(git_dir: &Path) -> Vec<PathBuf> {
    let is_index = |name: &[u8]| name == b"index" || name.starts_with(b"sharedindex.");
    let entries = fs::read_dir(git_dir).into_iter().flatten().flatten();
    let files = entries.filter(|entry| is_index(entry.file_name().as_bytes())).map(|entry| entry.path());
    let mut files: Vec<PathBuf> = files.collect();
    files.sort();
    files
}

fn read(files: &[PathBuf]) -> Index {
    let mut found = Index::default();
    let mut shared = Vec::new();
    let mut unnamed = false;
    let mut rest = MAX_BYTES;
    for file in files {
        let bytes = match contents(file, &mut rest) {
            Contents::Index(bytes) => bytes,
            Contents::TooLarge => {
                found.too_large.push(file.clone());
                continue;
            }
            Contents::Other => continue,
        };
        match gitlinks(&bytes) {
            Ok(links) => {
                found.repositories.extend(links.names);
                unnamed |= links.unnamed;
            }
            Err(Unread::TooLarge) => found.too_large.push(file.clone()),
            Err(Unread::Malformed) => found.unreadable.push(file.clone()),
        }
        if file.file_name().is_some_and(|name| name != "index") {
            shared.push(bytes);
        }
    }
    if unnamed {
        // Any of them may be the entry: the caller checks which is a repository.
        for bytes in shared {
            found.repositories.extend(all(&bytes, Pick::Everything).map(|all| all.names).unwrap_or_default());
        }
    }
    found
}

/// The entries of an index that are repositories, whichever hash the repository has: the file does not say.
pub fn gitlinks(bytes: &[u8]) -> Result<Gitlinks, Unread> {
    all(bytes, Pick::Repositories)
}

fn all(bytes: &[u8], pick: Pick) -> Result<Gitlinks, Unread> {
    let mut together: Option<Gitlinks> = None;
    for hash in HASHES {
        match (Reader { bytes, hash, pick, found: Gitlinks::default(), size: 0 }).read() {
            Ok(found) => {
                let links = together.get_or_insert_default();
                links.names.extend(found.names);
                links.unnamed |= found.unnamed;
            }
            Err(Unread::TooLarge) => return Err(Unread::TooLarge),
            Err(Unread::Malformed) => {}
        }
    }
    together.ok_or(Unread::Malformed)
}

enum Contents {
    Index(Vec<u8>),
    TooLarge,
    Other,
}

/// The content of a file that begins like an index, of no more than `rest` bytes, which are subtracted.
fn contents(index: &Path, rest: &mut u64) -> Contents {
    let Some((mut file, size)) = open_file(index) else { return Contents::Other };
    let mut bytes = vec![0; MAGIC.len()];
    if file.read_exact(&mut bytes).is_err() || bytes != MAGIC {
        return Contents::Other;
    }
    match rest.checked_sub(size) {
        None => Contents::TooLarge,
        Some(left) => {
            *rest = left;
            bytes.reserve_exact(usize::try_from(size).unwrap_or_default());
            match file.take(size).read_to_end(&mut bytes) {
                Ok(_) => Contents::Index(bytes),
                Err(_) => Contents::Other,
            }
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Pick {
    Repositories,
    Everything,
}

/// One index, with object names of one length.
struct Reader<'b> {
    bytes: &'b [u8],
    hash: usize,
    pick: Pick,
    found: Gitlinks,
    /// The length of the names that were found, in bytes.
    size: usize,
}

impl<'b> Reader<'b> {
    fn read(mut self) -> Result<Gitlinks, Unread> {
        let version = match (self.bytes.get(..4), self.number(4)) {
            (Some(magic), Ok(version @ 2..=4)) if magic == MAGIC => version,
            _ => return Err(Unread::Malformed),
        };
        let count = self.number(8)?;
        self.entries(HEADER, count, version)?;
        self.blocks(count, version)?;
        Ok(self.found)
    }

    /// Reads this many entries from there on.
    fn entries(&mut self, mut at: usize, count: u32, version: u32) -> Result<(), Unread> {
        let mut name: Vec<u8> = Vec::new();
        for number in 0..count {
            at = self.entry(at, version, number == 0, &mut name)?;
        }
        Ok(())
    }

    /// Reads the entry that starts there; `name` holds the previous entry's name. Returns where the next one starts.
    fn entry(
        &mut self,
        start: usize,
        version: u32,
        is_first: bool,
        name: &mut Vec<u8>,
    ) -> Result<usize, Unread> {
        let mode = self.number(start + 24)?;
        let mut at = start + 40 + self.hash;
        let flags = self.short(at)?;
        at += 2;
        if flags & EXTENDED != 0 {
            if self.short(at)? & !KNOWN_FLAGS != 0 {
                return Err(Unread::Malformed);
            }
            at += 2;
        }
        let mut copied = 0;
        if version == 4 {
            // This many bytes of the previous name are dropped, then more follow. The first entry has no previous one.
            let dropped = self.varint(&mut at)?;
            if !is_first {
                copied = name.len().checked_sub(dropped).ok_or(Unread::Malformed)?;
            }
        }
        let rest = self.bytes.get(at..).ok_or(Unread::Malformed)?;
        let length = match usize::from(flags & LENGTH) {
            LONG => copied + rest.iter().position(|byte| *byte == 0).ok_or(Unread::Malformed)?,
            length => length,
        };
        // Including the byte after it, which git copies too and takes for the terminator.
        let more = length.checked_sub(copied).ok_or(Unread::Malformed)?;
        let written = rest.get(..=more).ok_or(Unread::Malformed)?;
        // Only in version 4 does the next entry need this one's name.
        if version == 4 || self.is_relevant(mode) {
            name.truncate(copied);
            name.extend_from_slice(written);
            self.keep(mode, name)?;
            name.truncate(length);
        }
        Ok(match version {
            4 => at + more + 1,
            _ => start + (at - start + length + 8) / 8 * 8,
        })
    }

    fn is_relevant(&self, mode: u32) -> bool {
        self.pick == Pick::Everything || mode & KIND == REPOSITORY
    }

    /// Keeps a name, if it is a gitlink's. It has one extra byte, which should be 0.
    fn keep(&mut self, mode: u32, name: &[u8]) -> Result<(), Unread> {
        if !self.is_relevant(mode) {
            return Ok(());
        }
        // For the kernel the path ends there, even if git takes it for longer.
        let until = |name: &[u8]| name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
        let whole = &name[..until(name)];
        let named = &name[..until(&name[..name.len().saturating_sub(1)])];
        for name in [whole, named] {
            if name.is_empty() {
                self.found.unnamed = true;
            } else if !self.found.names.contains(name) {
                self.size += name.len() + EACH;
                if self.size > MAX_NAMES {
                    return Err(Unread::TooLarge);
                }
                self.found.names.insert(name.to_vec());
            }
        }
        Ok(())
    }

    /// A large index says where blocks of its entries start, so that threads can read them, and git then reads them from there: an
    /// agent may have given other offsets than those of the entries.
    fn blocks(&mut self, count: u32, version: u32) -> Result<(), Unread> {
        let Some(table) = self.block_table() else { return Ok(()) };
        let mut left = count;
        for block in table.get(4..).unwrap_or_default().chunks_exact(8) {
            let (Ok(at), Ok(entries)) = (number(block, 0), number(block, 4)) else { break };
            left = left.checked_sub(entries).ok_or(Unread::Malformed)?;
            self.entries(at as usize, entries, version)?;
        }
        Ok(())
    }

    /// The content of the extension that has the offsets, found as git finds it: by another extension, at the very end.
    fn block_table(&self) -> Option<&'b [u8]> {
        let end = self.bytes.len().checked_sub(self.hash)?;
        let last = end.checked_sub(8 + 4 + self.hash)?;
        if self.bytes.get(last..last + 4)? != b"EOIE" {
            return None;
        }
        let mut at = number(self.bytes, last + 8).ok()? as usize;
        while at < last {
            let size = number(self.bytes, at.checked_add(4)?).ok()? as usize;
            let content = at.checked_add(8)?;
            let next = content.checked_add(size)?;
            if self.bytes.get(at..at + 4)? == b"IEOT" {
                return self.bytes.get(content..next);
            }
            at = next;
        }
        None
    }

    /// A number of variable length, as in packs: seven bits per byte, plus one for every further byte. One that is too large counts
    /// as 0 and consumes no byte: `decode_varint` of varint.c.
    fn varint(&self, at: &mut usize) -> Result<usize, Unread> {
        let byte = |at: usize| self.bytes.get(at).copied().ok_or(Unread::Malformed);
        let mut next = *at;
        let mut last = byte(next)?;
        let mut value = u64::from(last & 0x7f);
        next += 1;
        while last & 0x80 != 0 {
            value += 1;
            if value >> (u64::BITS - 7) != 0 {
                return Ok(0);
            }
            last = byte(next)?;
            next += 1;
            value = (value << 7) + u64::from(last & 0x7f);
        }
        *at = next;
        usize::try_from(value).map_err(|_| Unread::Malformed)
    }

    fn number(&self, at: usize) -> Result<u32, Unread> {
        number(self.bytes, at)
    }

    fn short(&self, at: usize) -> Result<u16, Unread> {
        let bytes = self.bytes.get(at..at + 2).and_then(|bytes| bytes.try_into().ok());
        bytes.map(u16::from_be_bytes).ok_or(Unread::Malformed)
    }
}

fn number(bytes: &[u8], at: usize) -> Result<u32, Unread> {
    let end = at.checked_add(4).ok_or(Unread::Malformed)?;
    let bytes = bytes.get(at..end).and_then(|bytes| bytes.try_into().ok());
    bytes.map(u32::from_be_bytes).ok_or(Unread::Malformed)
}

const MAGIC: &[u8] = b"DIRC";
const HEADER: usize = 12;
/// The lengths of object names: SHA-1 and SHA-256.
const HASHES: [usize; 2] = [20, 32];
/// An index of a million files has about a hundred MiB. A sparse file costs its maker nothing, and its reader the full size.
const MAX_BYTES: u64 = 256 << 20;
/// A smaller one is read in less time than a thread takes to start.
const MIN_BESIDE_BYTES: u64 = 1 << 20;
/// Limit of the names that are kept; a name in version 4 costs its writer two bytes.
const MAX_NAMES: usize = 64 << 20;
/// The memory cost of a name besides its bytes.
const EACH: usize = 64;
const EXTENDED: u16 = 0x4000;
/// `CE_INTENT_TO_ADD` and `CE_SKIP_WORKTREE`; git gives up at others.
const KNOWN_FLAGS: u16 = 0x6000;
const LENGTH: u16 = 0x0fff;
/// A name that is longer ends with a 0.
const LONG: usize = 0x0fff;
const KIND: u32 = 0o170_000;
const REPOSITORY: u32 = 0o160_000;
