//! File operations. They run inside, as the sandbox's user: the kernel holds them, no string is checked here.

use crate::Sandbox;
use crate::faults::{self, broken_stream};
use crate::stream::{FromGuest, ToGuest};
use crate::transfer::done;
use belljar_spec::SandboxError;
use belljar_sys::rustix::io::Errno;
use belljar_wire::message::{self, Metadata, Reply, Request};
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStringExt;

/// What a path is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EntryKind {
    File,
    Directory,
    Symlink,
    Other,
}

/// A directory's entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileEntry {
    pub name: OsString,
    pub kind: EntryKind,
}

/// What is known of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileStat {
    pub kind: EntryKind,
    pub size: u64,
    /// Milliseconds since 1970.
    pub mtime_ms: i64,
}

impl Sandbox {
    /// Makes a folder; with `recursive` also those above it, and one that is there already is fine.
    pub async fn mkdir(&self, path: &str, recursive: bool) -> Result<(), SandboxError> {
        let (_to, mut from) = self.request(&Request::Mkdir { path: path.into(), recursive }).await?;
        done(&mut from).await
    }

    /// A folder's entries, in no order.
    pub async fn readdir(&self, path: &str) -> Result<Vec<FileEntry>, SandboxError> {
        let (_to, mut from) = self.request(&Request::ReadDir { path: path.into() }).await?;
        let mut entries = Vec::new();
        loop {
            match from.receive_message().await? {
                Reply::Entries(some) if some.is_empty() => return Ok(entries),
                Reply::Entries(some) => entries.extend(some.into_iter().map(|entry| FileEntry {
                    name: OsString::from_vec(entry.name.0),
                    kind: kind(entry.kind),
                })),
                Reply::Failed(fault) => return Err(faults::file(&fault)),
                _ => return Err(broken_stream()),
            }
        }
    }

    /// Up to `limit` of a folder's entries, sorted by name, behind one, and whether there are more. However long the folder is, no
    /// more than these are held.
    pub async fn readdir_part(
        &self,
        path: &str,
        after: Option<&OsStr>,
        limit: usize,
    ) -> Result<(Vec<FileEntry>, bool), SandboxError> {
        let (_to, mut from) = self.request(&Request::ReadDir { path: path.into() }).await?;
        let mut lowest = Lowest::new(limit);
        loop {
            match from.receive_message().await? {
                Reply::Entries(some) if some.is_empty() => return Ok(lowest.finish()),
                Reply::Entries(some) => {
                    for entry in some {
                        let name = OsString::from_vec(entry.name.0);
                        if after.is_none_or(|after| *name > *after) {
                            lowest.add(name, kind(entry.kind));
                        }
                    }
                }
                Reply::Failed(fault) => return Err(faults::file(&fault)),
                _ => return Err(broken_stream()),
            }
        }
    }

    /// Whether there is something at `path`. What may not be seen is not there.
    pub async fn exists(&self, path: &str) -> Result<bool, SandboxError> {
        match self.stat(path).await {
            Ok(_) => Ok(true),
            Err(error) if matches!(error.code, "guest_gone" | "disposed" | "guest_stream") => Err(error),
            Err(_) => Ok(false),
        }
    }

    /// Removes a file, or with `recursive` a folder and all in it. A path that is not there is an error.
    pub async fn remove(&self, path: &str, recursive: bool) -> Result<(), SandboxError> {
        let (_to, mut from) = self.request(&Request::Remove { path: path.into(), recursive }).await?;
        done(&mut from).await
    }

    /// Gives a file or folder another name. A file that has it already is replaced, an empty folder by a folder too; a link is
    /// moved itself.
    pub async fn rename(&self, from: &str, to: &str) -> Result<(), SandboxError> {
        let request = Request::Rename { from: from.into(), to: to.into() };
        let (_to, mut from) = self.request(&request).await?;
        match from.receive_message().await? {
            Reply::Done => Ok(()),
            Reply::Failed(fault) if fault.errno == Errno::OPNOTSUPP.raw_os_error() => {
                let message = format!("cannot {}: they are on different filesystems", fault.doing);
                Err(SandboxError::runtime("other_filesystem", message)
                    .hint("copy it, and remove the original"))
            }
            Reply::Failed(fault) => Err(faults::file(&fault)),
            _ => Err(broken_stream()),
        }
    }

    /// What `path` is; a link is not followed.
    pub async fn stat(&self, path: &str) -> Result<FileStat, SandboxError> {
        let (_to, mut from) = self.request(&Request::Stat { path: path.into() }).await?;
        match from.receive_message().await? {
            Reply::Metadata(Metadata { kind: what, size, mtime_ms }) => {
                Ok(FileStat { kind: kind(what), size, mtime_ms })
            }
            Reply::Failed(fault) => Err(faults::file(&fault)),
            _ => Err(broken_stream()),
        }
    }

    pub(crate) async fn request(&self, request: &Request) -> Result<(ToGuest, FromGuest), SandboxError> {
        let (mut to, from) = self.open_stream()?;
        to.send_message(request).await?;
        Ok((to, from))
    }
}

/// The first entries by name of those that come in any order.
struct Lowest {
    limit: usize,
    kept: BTreeMap<OsString, EntryKind>,
    more: bool,
}

impl Lowest {
    fn new(limit: usize) -> Lowest {
        Lowest { limit, kept: BTreeMap::new(), more: false }
    }

    fn add(&mut self, name: OsString, kind: EntryKind) {
        self.kept.insert(name, kind);
        if self.kept.len() > self.limit {
            self.kept.pop_last();
            self.more = true;
        }
    }

    fn finish(self) -> (Vec<FileEntry>, bool) {
        (self.kept.into_iter().map(|(name, kind)| FileEntry { name, kind }).collect(), self.more)
    }
}

fn kind(kind: message::EntryKind) -> EntryKind {
    match kind {
        message::EntryKind::File => EntryKind::File,
        message::EntryKind::Directory => EntryKind::Directory,
        message::EntryKind::Symlink => EntryKind::Symlink,
        message::EntryKind::Other => EntryKind::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_folder_is_held_in_part() {
        let mut lowest = Lowest::new(2);
        for name in ["d", "b", "c", "a", "e"] {
            lowest.add(name.into(), EntryKind::File);
            assert!(lowest.kept.len() <= 2);
        }
        let (entries, more) = lowest.finish();
        assert_eq!(entries.iter().map(|entry| entry.name.to_str().unwrap()).collect::<Vec<_>>(), ["a", "b"]);
        assert!(more);
    }
}
