//! The directory that a layer becomes. Everything happens at a name of an open directory, which the kernel found beneath the
//! layer's own without following a link: no name of a layer, and no link that it made before, leads anywhere else.

use super::account::Account;
use super::directories::{Directories, Meta};
use super::error::{UnpackError, quoted};
use super::path::LayerPath;
use super::whiteout;
use crate::disk;
use crate::limits::Limits;
use belljar_sys::ids;
use belljar_sys::remove_tree::remove_at;
use belljar_sys::rustix::fs::{
    self, AtFlags, FileType, Gid, Mode, OFlags, ResolveFlags, Timespec, Timestamps, Uid,
};
use belljar_sys::rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

pub(super) struct Tree {
    root: OwnedFd,
    /// Whether owners can be set. Otherwise all is ours.
    pub(super) is_root: bool,
    /// Where the last entry was: most follow in the same directory. Forgotten as soon as anything is removed.
    last: Option<(Vec<u8>, OwnedFd)>,
    pub(super) directories: Directories,
    pub(super) account: Account,
    pub(super) whiteouts: whiteout::Form,
}

impl Tree {
    pub(super) fn open(path: &Path, limits: &Limits) -> Result<Tree, UnpackError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let root = fs::open(path, flags, Mode::empty()).map_err(failed("open", b"."))?;
        let mut directories = Directories::default();
        directories.meant(LayerPath::parse(b"/")?, Meta::implicit(b""))?;
        // As sandboxes have it: where they have one user, all of an image is that one's.
        let is_root = ids::are_ours(ids::SANDBOXES);
        let (account, whiteouts) = (Account::new(limits), whiteout::Form::default());
        Ok(Tree { root, is_root, last: None, directories, account, whiteouts })
    }

    /// Before something is made.
    pub(super) fn charge(&mut self, size: u64) -> Result<(), UnpackError> {
        self.account.entry(size, &self.root)
    }

    pub(super) fn charge_content(&mut self, length: u64) -> Result<(), UnpackError> {
        self.account.content(length, &self.root)
    }

    pub(super) fn root(&self) -> BorrowedFd<'_> {
        self.root.as_fd()
    }

    /// The directory that an entry is in, made if it is missing, as layers that leave their directories out want it.
    pub(super) fn parent(&mut self, path: &LayerPath) -> Result<OwnedFd, UnpackError> {
        let (parent, _) = path.split();
        if let Some((last, directory)) = &self.last
            && last == parent
        {
            return directory.try_clone().map_err(|source| file("open", parent, source));
        }
        let found = match self.beneath(parent, OFlags::PATH | OFlags::DIRECTORY) {
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => self.make_way(parent)?,
            found => found.map_err(failed("open", parent))?,
        };
        let kept = found.try_clone().map_err(|source| file("open", parent, source))?;
        self.last = Some((parent.to_vec(), kept));
        Ok(found)
    }

    /// What is at a path of the layer's, if no link is on the way.
    pub(super) fn beneath(&self, path: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
        let path = if path.is_empty() { &b"."[..] } else { path };
        beneath(&self.root, path, flags)
    }

    /// Makes the directories of a path. What stands in the way is no directory, and was put there to divert us; but for a
    /// whiteout, below which there can be something new.
    fn make_way(&mut self, path: &[u8]) -> Result<OwnedFd, UnpackError> {
        let mut at = self.beneath(b"", OFlags::PATH | OFlags::DIRECTORY).map_err(failed("open", path))?;
        let mut end = 0;
        for name in path.split(|byte| *byte == b'/') {
            end += name.len() + usize::from(end > 0);
            let so_far = LayerPath::parse(&path[..end])?;
            let next = match beneath(&at, name, OFlags::PATH | OFlags::DIRECTORY) {
                Err(Errno::NOENT) => {
                    self.account.entry(0, &self.root)?;
                    make_directory(&at, name).map_err(failed("make", path))?;
                    self.directories.meant(so_far, Meta::implicit(&path[..end]))?;
                    beneath(&at, name, OFlags::PATH | OFlags::DIRECTORY)
                }
                Err(Errno::NOTDIR) if whiteout::is_at(&at, name).map_err(failed("look at", path))? => {
                    self.remove(&at, name, &so_far)?;
                    self.account.entry(0, &self.root)?;
                    make_directory(&at, name).map_err(failed("make", path))?;
                    self.directories.meant(so_far, Meta::implicit(&path[..end]))?;
                    self.make_opaque(&path[..end])?;
                    beneath(&at, name, OFlags::PATH | OFlags::DIRECTORY)
                }
                Err(Errno::NOTDIR | Errno::LOOP) => return Err(UnpackError::Through(quoted(path))),
                found => found,
            };
            at = next.map_err(failed("open", path))?;
        }
        Ok(at)
    }

    /// Marks a directory of the layer's as one below which nothing is seen.
    pub(super) fn make_opaque(&mut self, path: &[u8]) -> Result<(), UnpackError> {
        let directory =
            self.beneath(path, OFlags::RDONLY | OFlags::DIRECTORY).map_err(failed("open", path))?;
        self.whiteouts.make_opaque(&directory).map_err(failed("mark", path))
    }

    /// Removes whatever is at a name, with all that is in it.
    pub(super) fn remove(
        &mut self,
        parent: &OwnedFd,
        name: &[u8],
        path: &LayerPath,
    ) -> Result<(), UnpackError> {
        self.last = None;
        self.directories.forget(path);
        remove_at(parent, name).map_err(|source| file("replace", path.as_bytes(), source))
    }

    /// Gives a new file, link or directory its owner, if we can.
    pub(super) fn own(&self, parent: &OwnedFd, name: &[u8], uid: u64, gid: u64) -> Result<(), Errno> {
        if !self.is_root {
            return Ok(());
        }
        let (uid, gid) = (Uid::from_raw(in_range(uid)), Gid::from_raw(in_range(gid)));
        fs::chownat(parent, name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)
    }

    /// Gives every directory the mode and time that it was meant to have, from the innermost outwards: afterwards we may not
    /// be able to get in.
    pub(super) fn finish(self) -> Result<Account, UnpackError> {
        for (path, meta) in self.directories.innermost_first() {
            let path = path.as_bytes();
            let change = || -> Result<(), Errno> {
                let directory = self.beneath(path, OFlags::RDONLY | OFlags::DIRECTORY)?;
                if self.is_root {
                    let (uid, gid) = (in_range(meta.uid), in_range(meta.gid));
                    fs::fchown(&directory, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)))?;
                }
                fs::fchmod(&directory, Mode::from_raw_mode(meta.mode))?;
                fs::futimens(&directory, &times(meta.mtime))
            };
            change().map_err(failed("finish", path))?;
        }
        Ok(self.account)
    }
}

/// A directory that we can work in, whatever it will be.
pub(super) fn make_directory(parent: &OwnedFd, name: &[u8]) -> Result<(), Errno> {
    fs::mkdirat(parent, name, Mode::RWXU)
}

/// What is at a name, if something is; a link is itself.
pub(super) fn kind_at(parent: &OwnedFd, name: &[u8]) -> Result<Option<FileType>, Errno> {
    match fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(found) => Ok(Some(FileType::from_raw_mode(found.st_mode))),
        Err(Errno::NOENT) => Ok(None),
        Err(errno) => Err(errno),
    }
}

/// Whatever was asked for: when something was made does not matter before it was.
pub(super) fn times((seconds, nanoseconds): (i64, u32)) -> Timestamps {
    let time = Timespec { tv_sec: seconds, tv_nsec: nanoseconds.into() };
    Timestamps { last_access: time, last_modification: time }
}

pub(super) fn failed(step: &'static str, path: &[u8]) -> impl Fn(Errno) -> UnpackError {
    move |errno| file(step, path, errno.into())
}

pub(super) fn file(step: &'static str, path: &[u8], source: io::Error) -> UnpackError {
    match disk::full(&source) {
        Some(full) => UnpackError::NoSpace(full),
        None => UnpackError::File { step, path: quoted(path), source },
    }
}

fn beneath(directory: &OwnedFd, path: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
    let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    for _ in 0..RETRIES {
        // EAGAIN is a rename elsewhere that came in between: openat2(2).
        match fs::openat2(directory, path, flags, Mode::empty(), CONFINED) {
            Err(Errno::AGAIN | Errno::INTR) => {}
            result => return result,
        }
    }
    Err(Errno::AGAIN)
}

/// The ids of a sandbox are these; others would belong to no user inside, and to some user outside.
fn in_range(id: u64) -> u32 {
    if id <= 0xffff { id as u32 } else { NOBODY }
}

const CONFINED: ResolveFlags = ResolveFlags::BENEATH
    .union(ResolveFlags::NO_SYMLINKS)
    .union(ResolveFlags::NO_MAGICLINKS)
    .union(ResolveFlags::NO_XDEV);
const NOBODY: u32 = 65534;
const RETRIES: usize = 100;
