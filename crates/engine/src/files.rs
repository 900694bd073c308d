//! File operations. They run inside, as the sandbox's user: the kernel holds them, no string is checked here.

use crate::Sandbox;
use crate::faults::{self, guest_gone};
use crate::stream::{FromGuest, ToGuest};
use crate::transfer::done;
use belljar_spec::{ErrorCode, SandboxError};
use belljar_sys::rustix::io::Errno;
use belljar_wire::message::{self, Metadata, Reply, Request};
use std::ffi::OsString;
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
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileStat {
    pub kind: EntryKind,
    pub size: u64,
    /// Milliseconds since 1970.
    pub mtime_ms: i64,
    /// Permission bits.
    pub mode: u32,
    /// The user that it belongs to, as the sandbox knows it.
    pub uid: u32,
    pub gid: u32,
    /// What a symbolic link holds.
    pub link: Option<OsString>,
    /// Attributes that users may write (`user.*`, xattr(7)): names without `user.`, and values.
    pub attributes: Vec<(OsString, Vec<u8>)>,
}

/// A folder's entries, as they come.
pub struct Listing {
    _to: ToGuest,
    from: FromGuest,
}

impl Listing {
    /// Some more of them; nothing behind the last ones.
    pub async fn next(&mut self) -> Result<Option<Vec<FileEntry>>, SandboxError> {
        let entry = |entry: message::Entry| FileEntry {
            name: OsString::from_vec(entry.name.0),
            kind: kind(entry.kind),
        };
        match self.from.receive_message().await? {
            Reply::Entries(some) if some.is_empty() => Ok(None),
            Reply::Entries(some) => Ok(Some(some.into_iter().map(entry).collect())),
            Reply::Failed(fault) => Err(faults::file(&fault)),
            _ => Err(guest_gone()),
        }
    }
}

impl Sandbox {
    /// Makes a folder; with `recursive` also those above it, and one that is there already is fine.
    pub async fn mkdir(&self, path: &str, recursive: bool) -> Result<(), SandboxError> {
        let (_to, mut from) = self.request(&Request::Mkdir { path: path.into(), recursive }).await?;
        self.reply_or_dead(done(&mut from)).await
    }

    /// A folder's entries, in no order.
    pub async fn readdir(&self, path: &str) -> Result<Vec<FileEntry>, SandboxError> {
        let mut listing = self.list(path).await?;
        let mut entries = Vec::new();
        while let Some(some) = listing.next().await? {
            entries.extend(some);
        }
        Ok(entries)
    }

    /// The same, some at a time: a folder may have more than fits into memory.
    pub async fn list(&self, path: &str) -> Result<Listing, SandboxError> {
        let (to, from) = self.request(&Request::ReadDir { path: path.into() }).await?;
        Ok(Listing { _to: to, from })
    }

    /// Whether there is something at `path`. What may not be seen is not there.
    pub async fn exists(&self, path: &str) -> Result<bool, SandboxError> {
        let (_to, mut from) = self.request(&Request::Stat { path: path.into() }).await?;
        match self.reply_or_dead(from.receive_message()).await? {
            Reply::Metadata(_) => Ok(true),
            Reply::Failed(_) => Ok(false),
            _ => Err(guest_gone()),
        }
    }

    /// Removes a file, or with `recursive` a folder and all in it. A path that is not there is an error.
    pub async fn remove(&self, path: &str, recursive: bool) -> Result<(), SandboxError> {
        let (_to, mut from) = self.request(&Request::Remove { path: path.into(), recursive }).await?;
        self.reply_or_dead(done(&mut from)).await
    }

    /// Gives a file or folder another name. A file that has it already is replaced, an empty folder by a folder too; a link is
    /// moved itself.
    pub async fn rename(&self, from: &str, to: &str) -> Result<(), SandboxError> {
        let request = Request::Rename { from: from.into(), to: to.into() };
        let (_to, mut from) = self.request(&request).await?;
        match self.reply_or_dead(from.receive_message()).await? {
            Reply::Done => Ok(()),
            Reply::Failed(fault) if fault.errno == Errno::OPNOTSUPP.raw_os_error() => {
                let message = format!("cannot {}: they are on different filesystems", fault.doing);
                Err(ErrorCode::FileOperation.error(message).hint("copy it, and remove the original"))
            }
            Reply::Failed(fault) => Err(faults::file(&fault)),
            _ => Err(guest_gone()),
        }
    }

    /// What `path` is; a link is not followed.
    pub async fn stat(&self, path: &str) -> Result<FileStat, SandboxError> {
        let (_to, mut from) = self.request(&Request::Stat { path: path.into() }).await?;
        match self.reply_or_dead(from.receive_message()).await? {
            Reply::Metadata(Metadata { kind: what, size, mtime_ms, mode, owner, link, attributes }) => {
                let link = link.map(|link| OsString::from_vec(link.0));
                let attributes = attributes
                    .into_iter()
                    .map(|(name, value)| (OsString::from_vec(name.0), value.0))
                    .collect();
                let (uid, gid) = owner;
                Ok(FileStat { kind: kind(what), size, mtime_ms, mode, uid, gid, link, attributes })
            }
            Reply::Failed(fault) => Err(faults::file(&fault)),
            _ => Err(guest_gone()),
        }
    }

    /// Gives a file these attributes, and none beside them whose name begins with the prefix. Names are without `user.`.
    pub async fn set_attributes(
        &self,
        path: &str,
        prefix: &str,
        attributes: Vec<(String, Vec<u8>)>,
    ) -> Result<(), SandboxError> {
        let attributes = attributes.into_iter().map(|(name, value)| (name, message::Bytes(value))).collect();
        let request = Request::SetAttributes { path: path.into(), prefix: prefix.into(), attributes };
        let (_to, mut from) = self.request(&request).await?;
        self.reply_or_dead(done(&mut from)).await
    }

    pub(crate) async fn request(&self, request: &Request) -> Result<(ToGuest, FromGuest), SandboxError> {
        let (mut to, from) = self.open_stream()?;
        to.send_message(request).await?;
        Ok((to, from))
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
