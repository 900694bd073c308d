//! The members of an archive, as files of ours under names that we chose: what they are called is only ever looked up.

use crate::compression::decompress;
use crate::digest::Digest;
use crate::disk::{self, LOOK};
use crate::document::Descriptor;
use crate::error::ImageError;
use crate::limits::{DOCUMENT, Limits};
use crate::tar::{Archive, Kind, TarError};
use crate::unpack::{Bounded, Hit};
use belljar_state::create_private;
use belljar_sys::remove_tree;
use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

pub(super) struct Members {
    /// Who they are of, for what is said about them.
    archive: PathBuf,
    place: PathBuf,
    by_name: HashMap<String, Member>,
}

enum Member {
    /// The file with this number.
    File(usize),
    /// `docker save` links a layer that two images have.
    Link(String),
}

impl Members {
    /// Takes everything out of an archive.
    pub(super) fn unpack(archive: &Path, place: &Path, limits: &Limits) -> Result<Members, ImageError> {
        remove_tree::remove(place).map_err(ImageError::store("remove", place))?;
        create_private(place).map_err(ImageError::store("make", place))?;
        let mut members = Members { archive: archive.into(), place: place.into(), by_name: HashMap::new() };
        let opened = File::open(archive).map_err(ImageError::store("open", archive))?;
        let packed = opened.metadata().map_err(ImageError::store("open", archive))?.len();
        let content = decompress(opened).map_err(ImageError::store("read", archive))?;
        // All of it, also what has no name or is of no use here: each has to be read.
        let bounded = Bounded::new(content, limits.image_bytes, packed, limits);
        members.take(bounded, limits)?;
        Ok(members)
    }

    fn take(&mut self, content: impl Read, limits: &Limits) -> Result<(), ImageError> {
        let (mut left, mut seen) = (limits.image_bytes, 0);
        let mut archive = Archive::new(content);
        while let Some(entry) = archive.next().map_err(|error| self.unreadable(&error))? {
            seen += 1;
            if seen > MEMBERS {
                return Err(self.refused(format!("it has more than {MEMBERS} members")));
            }
            let Some(name) = plain(&entry.path) else { continue };
            let member = match entry.kind {
                Kind::File => {
                    left = left.checked_sub(entry.size).ok_or(ImageError::TooLarge(limits.image_bytes))?;
                    let number = self.by_name.len();
                    let path = self.place.join(number.to_string());
                    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
                    let mut file = file.map_err(ImageError::store("make", &path))?;
                    let mut guarded = Guarded { file: &mut file, unseen: LOOK, reserve: limits.reserve };
                    io::copy(&mut archive, &mut guarded).map_err(|error| match disk::full(&error) {
                        Some(full) => ImageError::NoSpace(full),
                        None => self.unreadable(&TarError::Io(error)),
                    })?;
                    Member::File(number)
                }
                Kind::Symlink | Kind::HardLink => match linked(&name, &entry.link, entry.kind) {
                    Some(to) => Member::Link(to),
                    None => continue,
                },
                _ => continue,
            };
            // One of two with a name would be checked and the other one used.
            if self.by_name.insert(name.clone(), member).is_some() {
                return Err(self.refused(format!("it has {name:?} twice")));
            }
        }
        Ok(())
    }

    /// The file of a member, by its name.
    pub(super) fn find(&self, name: &str) -> Option<PathBuf> {
        let number = match self.by_name.get(name)? {
            Member::File(number) => number,
            Member::Link(to) => match self.by_name.get(to)? {
                Member::File(number) => number,
                Member::Link(_) => return None,
            },
        };
        Some(self.place.join(number.to_string()))
    }

    pub(super) fn open(&self, name: &str) -> Result<(File, u64), ImageError> {
        let path = self.find(name).ok_or_else(|| self.refused(format!("it has no {name:?}")))?;
        let file = File::open(&path).map_err(ImageError::store("open", &path))?;
        let size = file.metadata().map_err(ImageError::store("open", path))?.len();
        Ok((file, size))
    }

    /// A small member.
    pub(super) fn read(&self, name: &str, most: u64) -> Result<Vec<u8>, ImageError> {
        let (file, size) = self.open(name)?;
        if size > most {
            return Err(self.refused(format!("its {name:?} is larger than {most} bytes")));
        }
        let mut bytes = Vec::new();
        file.take(most).read_to_end(&mut bytes).map_err(ImageError::store("read", name))?;
        Ok(bytes)
    }

    /// A small blob of a layout, which is what led to it.
    pub(super) fn blob(&self, blob: &Descriptor) -> Result<Vec<u8>, ImageError> {
        let bytes = self.read(&blob_name(&blob.digest), DOCUMENT)?;
        super::must_be_described("blob", blob, &bytes)?;
        Ok(bytes)
    }

    fn unreadable(&self, error: &TarError) -> ImageError {
        let hit = match error {
            TarError::Io(source) => Hit::of(source),
            _ => None,
        };
        match hit {
            Some(Hit::TooLarge(most)) => ImageError::TooLarge(most),
            Some(Hit::TooDense(times)) => {
                self.refused(format!("it is more than {times} times larger than what it was packed into"))
            }
            None => self.refused(chain(error)),
        }
    }

    pub(super) fn refused(&self, why: String) -> ImageError {
        ImageError::Archive { path: self.archive.clone(), why }
    }
}

/// A file that leaves room for others.
struct Guarded<'f> {
    file: &'f mut File,
    unseen: u64,
    reserve: u64,
}

impl Write for Guarded<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.unseen = self.unseen.saturating_add(bytes.len() as u64);
        if self.unseen >= LOOK {
            self.unseen = 0;
            disk::look(&*self.file, bytes.len() as u64, self.reserve)?;
        }
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Drop for Members {
    fn drop(&mut self) {
        // What stays is removed by the next gc.
        let _ = remove_tree::remove(&self.place);
    }
}

pub(super) fn blob_name(digest: &Digest) -> String {
    format!("blobs/sha256/{}", digest.hex())
}

/// A name without `./` in front; one that is not valid UTF-8, or longer than any path, is of no member that is asked for.
fn plain(name: &[u8]) -> Option<String> {
    let name = std::str::from_utf8(name).ok()?;
    let name = name.trim_start_matches("./").trim_start_matches('/');
    (!name.is_empty() && name.len() <= MAX_NAME_BYTES).then(|| name.to_string())
}

/// Where a link leads, as a name of a member. A symbolic one starts in its own directory.
fn linked(name: &str, to: &[u8], kind: Kind) -> Option<String> {
    let to = std::str::from_utf8(to).ok().filter(|to| to.len() <= MAX_NAME_BYTES)?;
    if kind == Kind::HardLink {
        return plain(to.as_bytes());
    }
    let mut parts: Vec<&str> = name.split('/').collect();
    parts.pop();
    for part in to.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

fn chain(error: &dyn std::error::Error) -> String {
    match error.source() {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}

/// Whatever they are: an image has at most some hundred.
const MEMBERS: usize = 10_000;
/// Of a name: all of them are kept in mind.
const MAX_NAME_BYTES: usize = 4096;
