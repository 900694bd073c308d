//! Puts entries into a layer from outside of a sandbox: what belljar itself read elsewhere becomes a change of the layer's folder.
//!
//! The layer is new, and no sandbox has worked in it: its directories are ours. Entries look as overlayfs would have written them, so
//! that the walk, `diff` and `apply` know no difference.

use super::beneath::{self, Beneath};
use super::error::LayerError;
use super::held::Held;
use super::path::RelPath;
use super::xattrs::{self, Mark};
use belljar_sys::rustix::fs::{self as sys, AtFlags, Gid, Mode, OFlags, Uid};
use belljar_sys::rustix::io::Errno;
use belljar_sys::rustix::process::geteuid;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};

/// The new state of a path.
pub enum NewEntry<'a> {
    File { content: &'a mut dyn Read, executable: bool },
    Link(&'a [u8]),
    Deleted,
}

impl Held {
    /// Puts an entry at a path where the layer has none yet. Of a deleted path that the folder does not have, nothing is put.
    pub fn put(&self, path: &RelPath, entry: NewEntry<'_>) -> Result<(), LayerError> {
        let (upper, host) = self.sides()?;
        put(&upper, &host, path, entry).map_err(|source| LayerError::Read { path: path.to_string(), source })
    }
}

fn put(upper: &Beneath, host: &Beneath, path: &RelPath, entry: NewEntry<'_>) -> io::Result<()> {
    let old = host.stat(path)?;
    if matches!(entry, NewEntry::Deleted) && old.is_none() {
        return Ok(());
    }
    let owner = Owner::of(host)?;
    let parent = parents(upper, host, path, &owner)?;
    match entry {
        NewEntry::File { content, executable } => {
            let mode = if executable { 0o755 } else { 0o644 };
            let mut file = create(&parent, path.name())?;
            io::copy(content, &mut file)?;
            // An old file keeps its permissions but for the one that git knows.
            let old = old.filter(|old| !old.is_directory()).map(|old| old.mode);
            let mode = match old {
                Some(old) if (old & 0o100 != 0) == executable => old,
                Some(_) | None => mode,
            };
            sys::fchmod(&file, Mode::from_raw_mode(mode & 0o777))?;
            owner.take(&file)
        }
        NewEntry::Link(target) => {
            sys::symlinkat(target, &parent, path.name())?;
            owner.take_at(&parent, path.name())
        }
        NewEntry::Deleted => {
            let file = create(&parent, path.name())?;
            // "x" says that marked whiteouts are in it: Documentation/filesystems/overlayfs.rst.
            xattrs::set_mark(&parent, Mark::Opaque, b"x")?;
            xattrs::set_mark(&file, Mark::Whiteout, b"")
        }
    }
}

/// The directory that an entry lies in. Those that are missing in the layer are made with the permissions that they have in the folder.
fn parents(upper: &Beneath, host: &Beneath, path: &RelPath, owner: &Owner) -> io::Result<OwnedFd> {
    let mut above: Vec<RelPath> = path.ancestors().collect();
    above.reverse();
    for directory in above {
        if upper.stat(&directory)?.is_some() {
            continue;
        }
        let parent = upper.directory(directory.parent())?;
        let mode = host.stat(&directory)?.filter(|old| old.is_directory()).map_or(0o755, |old| old.mode);
        sys::mkdirat(&parent, directory.name(), Mode::RWXU)?;
        let made = beneath::directory_at(&parent, directory.name())?;
        sys::fchmod(&made, Mode::from_raw_mode(mode & 0o7777))?;
        owner.take(&made)?;
    }
    upper.directory(path.parent())
}

fn create(directory: &OwnedFd, name: &[u8]) -> io::Result<File> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(sys::openat(directory, name, flags, Mode::RUSR | Mode::WUSR)?.into())
}

/// The owner of the folder: root may work for another user.
struct Owner(Option<(Uid, Gid)>);

impl Owner {
    fn of(host: &Beneath) -> io::Result<Owner> {
        let found = beneath::stat_of(host.root())?;
        let ids = (Uid::from_raw(found.uid), Gid::from_raw(found.gid));
        Ok(Owner(geteuid().is_root().then_some(ids)))
    }

    fn take(&self, file: impl AsFd) -> io::Result<()> {
        match self.0 {
            Some((user, group)) => Ok(sys::fchown(file, Some(user), Some(group))?),
            None => Ok(()),
        }
    }

    fn take_at(&self, directory: &OwnedFd, name: &[u8]) -> io::Result<()> {
        let Some((user, group)) = self.0 else { return Ok(()) };
        match sys::chownat(directory, name, Some(user), Some(group), AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) | Ok(()) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}
