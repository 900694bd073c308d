//! Objects of a repository that an agent writes to, copied as the files they are: into a repository of ours, where git reads
//! them. No alternates, no commit graphs, no indexes of packs come along.
//!
//! Nothing here trusts what it reads. A loose object that does not match its name leads at most to the wrong files being copied;
//! later, all objects are named by their content.

use super::directory::{Directory, Entry};
use super::{Foreign, ForeignError, object};
use belljar_git::ObjectId;
use belljar_spec::git::PushLimits;
use flate2::read::ZlibDecoder;
use std::cell::Cell;
use std::collections::{BTreeMap, HashSet};
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// The amount copied so far, and its limit.
pub(crate) struct Copied {
    bytes: u64,
    files: u64,
    limits: PushLimits,
}

impl Copied {
    pub(crate) fn new(limits: PushLimits) -> Copied {
        Copied { bytes: 0, files: 0, limits }
    }

    /// Copies every object that `ours` does not have as a file into the objects `to`; returns the packs among them.
    pub(crate) fn everything(
        &mut self,
        from: &Foreign,
        ours: Option<&Path>,
        to: &Path,
    ) -> Result<Vec<PathBuf>, ForeignError> {
        let Some(objects) = from.directory.below("objects")? else { return Ok(Vec::new()) };
        let mut packs = Vec::new();
        for folder in objects.names()? {
            let loose = folder.len() == 2 && is_hex(&folder);
            if !loose && folder != "pack" {
                continue;
            }
            let Some(files) = objects.below(&folder)? else { continue };
            let target = to.join(&folder);
            for name in files.names()? {
                let pack = !loose
                    && name
                        .strip_prefix("pack-")
                        .and_then(|name| name.strip_suffix(".pack"))
                        .is_some_and(is_hex);
                let is_needed = pack || loose && matches!(name.len(), 38 | 62) && is_hex(&name);
                let is_there = |objects: &Path| objects.join(&folder).join(&name).exists();
                if !is_needed || ours.is_some_and(is_there) || is_there(to) {
                    continue;
                }
                let Some(file) = files.file(&name)? else { continue };
                self.file(file, &target, &name)?;
                if pack {
                    packs.push(target.join(&name));
                }
            }
        }
        Ok(packs)
    }

    /// Copies the loose objects that these commits need, but for those of commits that are known: on the host everything that a
    /// known commit needs is there. Objects in packs are ignored; a caller that then lacks some uses [`Copied::everything`].
    pub(crate) fn needed(
        &mut self,
        from: &Foreign,
        tips: &[ObjectId],
        known: &HashSet<ObjectId>,
        to: &Path,
    ) -> Result<(), ForeignError> {
        let Some(objects) = from.directory.below("objects")? else { return Ok(()) };
        let mut walk = Walk {
            objects,
            to,
            copied: self,
            seen: HashSet::new(),
            waiting: Vec::new(),
            inflated: Cell::new(0),
        };
        walk.waiting.extend(tips.iter().map(|tip| PendingObject {
            id: tip.clone(),
            kind: Kind::Any,
            beside: None,
        }));
        while let Some(pending) = walk.waiting.pop() {
            if walk.seen.len() + walk.waiting.len() > MAX_WALKED || walk.inflated.get() > MAX_INFLATED {
                return Err(ForeignError::TooMuch { what: "more names of objects", most: MAX_WALKED as u64 });
            }
            if !known.contains(&pending.id) && walk.seen.insert(pending.id.clone()) {
                walk.take(&pending)?;
            }
        }
        Ok(())
    }

    fn file(&mut self, from: File, folder: &Path, name: &str) -> Result<(), ForeignError> {
        let most = self.limits.bytes.as_u64();
        // A sparse file takes as long to read as its nominal size.
        let about = from.metadata().map_err(|error| ForeignError::io(name, error))?;
        self.count(about.len())?;
        self.bytes -= about.len();
        let mut limited = from.take(most.saturating_sub(self.bytes) + 1);
        let write = || {
            fs::create_dir_all(folder)?;
            io::copy(&mut limited, &mut File::create(folder.join(name))?)
        };
        let length = { write }().map_err(|error| ForeignError::io(name, error))?;
        self.files -= 1;
        self.count(length)
    }

    fn count(&mut self, bytes: u64) -> Result<(), ForeignError> {
        let (most, objects) = (self.limits.bytes.as_u64(), self.limits.objects);
        self.bytes = self.bytes.saturating_add(bytes);
        self.files += 1;
        if self.bytes > most {
            return Err(ForeignError::TooMuch { what: "more bytes of new objects", most });
        }
        if self.files > objects {
            return Err(ForeignError::TooMuch { what: "more new objects", most: objects });
        }
        Ok(())
    }
}

/// A walk from commits to all objects that they need.
struct Walk<'a> {
    objects: Directory,
    to: &'a Path,
    copied: &'a mut Copied,
    seen: HashSet<ObjectId>,
    waiting: Vec<PendingObject>,
    /// Bytes that objects were inflated to.
    inflated: Cell<u64>,
}

struct PendingObject {
    id: ObjectId,
    kind: Kind,
    /// The tree that was in its place before: entries that both have came with that one.
    beside: Option<ObjectId>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Any,
    Tree,
    Blob,
}

impl Walk<'_> {
    fn take(&mut self, pending: &PendingObject) -> Result<(), ForeignError> {
        let (folder, name) = pending.id.as_str().split_at(2);
        let Some(file) = self.open(&pending.id)? else { return Ok(()) };
        self.copied.file(file, &self.to.join(folder), name)?;
        if pending.kind == Kind::Blob {
            return Ok(());
        }
        // Read from the copy, so that the sandbox cannot change it in between.
        let copy =
            File::open(self.to.join(folder).join(name)).map_err(|error| ForeignError::io(name, error))?;
        match self.inflate(copy) {
            Some((kind, content)) if kind == b"commit" => self.commit(&content)?,
            Some((kind, content)) if kind == b"tag" => {
                self.waiting.extend(header(&content, b"object ").map(PendingObject::any));
            }
            Some((kind, content)) if kind == b"tree" => {
                self.tree(&pending.id, &content, pending.beside.as_ref())?
            }
            // A blob, or a file that git would not read.
            _ => {}
        }
        Ok(())
    }

    fn commit(&mut self, content: &[u8]) -> Result<(), ForeignError> {
        let parents: Vec<ObjectId> = headers(content, b"parent ").collect();
        let before = match parents.first() {
            Some(parent) => self.content(parent, b"commit")?.and_then(|content| header(&content, b"tree ")),
            None => None,
        };
        let tree = header(content, b"tree ").map(|id| PendingObject { id, kind: Kind::Tree, beside: before });
        self.waiting.extend(tree.into_iter().chain(parents.into_iter().map(PendingObject::any)));
        Ok(())
    }

    fn tree(&mut self, id: &ObjectId, content: &[u8], beside: Option<&ObjectId>) -> Result<(), ForeignError> {
        let raw = id.format().digits() / 2;
        let before = match beside {
            Some(beside) => self.content(beside, b"tree")?.unwrap_or_default(),
            None => Vec::new(),
        };
        let before: BTreeMap<&[u8], (bool, ObjectId)> =
            entries(&before, raw).map(|(kind, name, id)| (name, (kind == Some(Kind::Tree), id))).collect();
        for (kind, name, id) in entries(content, raw) {
            let old = before.get(name);
            if let Some(kind) = kind.filter(|_| old.is_none_or(|(_, old)| *old != id)) {
                let beside = old.filter(|(is_tree, _)| *is_tree).map(|(_, id)| id.clone());
                self.waiting.push(PendingObject { id, kind, beside });
            }
        }
        Ok(())
    }

    /// The content of a loose object of this kind, if it exists.
    fn content(&self, id: &ObjectId, kind: &[u8]) -> Result<Option<Vec<u8>>, ForeignError> {
        let read = self.open(id)?.and_then(|file| self.inflate(file));
        Ok(read.filter(|(is, _)| is == kind).map(|(_, content)| content))
    }

    fn inflate(&self, file: File) -> Option<(Vec<u8>, Vec<u8>)> {
        let inflated = inflate(file);
        // One that is too long was read up to the limit, too.
        let bytes = inflated.as_ref().map_or(LARGEST_READ, |(_, content)| content.len() as u64);
        self.inflated.set(self.inflated.get().saturating_add(bytes));
        inflated
    }

    fn open(&self, id: &ObjectId) -> Result<Option<File>, ForeignError> {
        let (folder, name) = id.as_str().split_at(2);
        let path = format!("{folder}/{name}");
        match self.objects.entry(&path)? {
            Entry::File(file) => Ok(Some(file)),
            Entry::Directory(_) => Err(ForeignError::spoiled(&path, "it is not a file")),
            // A link, a pipe: not a git object. If it is needed, it counts as missing.
            Entry::Other => Ok(None),
        }
    }
}

impl PendingObject {
    fn any(id: ObjectId) -> PendingObject {
        PendingObject { id, kind: Kind::Any, beside: None }
    }
}

/// The kind and the content of a loose object, `KIND SIZE\0CONTENT` in zlib's form; `None` if it is larger than we read, or
/// malformed.
fn inflate(file: File) -> Option<(Vec<u8>, Vec<u8>)> {
    let mut bytes = Vec::new();
    ZlibDecoder::new(file).take(LARGEST_READ + 1).read_to_end(&mut bytes).ok()?;
    if bytes.len() as u64 > LARGEST_READ {
        return None;
    }
    let space = bytes.iter().take(10).position(|byte| *byte == b' ')?;
    let end = bytes.iter().take(32).position(|byte| *byte == 0)?;
    let content = bytes.split_off(end + 1);
    bytes.truncate(space);
    Some((bytes, content))
}

/// The object names after this keyword in the header of a commit or a tag.
fn headers<'a>(content: &'a [u8], word: &'a [u8]) -> impl Iterator<Item = ObjectId> + 'a {
    let lines = content.split(|byte| *byte == b'\n').take_while(|line| !line.is_empty());
    lines.filter_map(move |line| object(std::str::from_utf8(line.strip_prefix(word)?).ok()?))
}

fn header(content: &[u8], word: &[u8]) -> Option<ObjectId> {
    headers(content, word).next()
}

/// The entries of a tree, `MODE NAME\0HASH`, up to the first malformed one; no kind for a gitlink, which names another repository's
/// commit.
fn entries(content: &[u8], raw: usize) -> impl Iterator<Item = (Option<Kind>, &[u8], ObjectId)> {
    let mut rest = content;
    std::iter::from_fn(move || {
        let space = rest.iter().position(|byte| *byte == b' ')?;
        let end = space + rest[space..].iter().position(|byte| *byte == 0)?;
        let hash = rest.get(end + 1..end + 1 + raw)?;
        let kind = match &rest[..space] {
            b"40000" | b"040000" => Some(Kind::Tree),
            b"160000" => None,
            _ => Some(Kind::Blob),
        };
        let name = &rest[space + 1..end];
        rest = &rest[end + 1 + raw..];
        let hex: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
        Some((kind, name, object(&hex)?))
    })
}

fn is_hex(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// A tree of half a million files. A larger one counts as missing, and then everything is copied.
const LARGEST_READ: u64 = 32 << 20;
/// Object names that a walk remembers: those of new trees.
const MAX_WALKED: usize = 1_000_000;
/// As much as is read in a few seconds.
const MAX_INFLATED: u64 = 2 << 30;
