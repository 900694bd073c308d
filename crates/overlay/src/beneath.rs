//! A directory and the files beneath it: no link is followed, no other filesystem entered, however the names are spelled, and even
//! if they are changed meanwhile. Paths may be longer than the kernel accepts in one call.

use super::path::RelPath;
use super::stat::{Identity, Stat};
use belljar_sys::rustix::fs::{self, AtFlags, CWD, Dir, Mode, OFlags, ResolveFlags, StatxFlags};
use belljar_sys::rustix::io::Errno;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

/// A directory and the files beneath it.
#[derive(Debug)]
pub struct Beneath {
    root: OwnedFd,
}

impl Beneath {
    /// Opens a directory that is ours or was named by the user: links on the way to it are followed.
    pub fn open(path: &Path) -> io::Result<Beneath> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Beneath { root: fs::open(path, flags, Mode::empty())? })
    }

    /// Opens a directory, if no link is on the way to it: its path was recorded when it had none, so a link that is there now leads
    /// to another directory than the recorded one.
    pub(super) fn open_without_links(path: &Path) -> io::Result<Beneath> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = retried(|| fs::openat2(CWD, path, flags, Mode::empty(), NO_LINKS))?;
        Ok(Beneath { root })
    }

    pub(super) fn root(&self) -> BorrowedFd<'_> {
        self.root.as_fd()
    }

    /// A directory (empty for this one), as an anchor for work in it: it need not be readable.
    pub(super) fn anchor(&self, path: &[u8]) -> io::Result<OwnedFd> {
        self.walk(path, OFlags::PATH | OFlags::DIRECTORY)
    }

    /// A directory (empty for this one), opened for reading.
    pub fn directory(&self, path: &[u8]) -> io::Result<OwnedFd> {
        self.walk(path, OFlags::RDONLY | OFlags::DIRECTORY)
    }

    /// A file, opened for reading. Never blocks on a pipe.
    pub fn file(&self, path: &RelPath) -> io::Result<File> {
        Ok(self.walk(path.as_bytes(), OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK)?.into())
    }

    /// The metadata of a path, if it exists.
    pub fn stat(&self, path: &RelPath) -> io::Result<Option<Stat>> {
        match self.anchor(path.parent()) {
            Ok(parent) => stat_at(&parent, path.name()),
            Err(error) if is_absent(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The target of a link.
    pub fn link(&self, path: &RelPath) -> io::Result<Vec<u8>> {
        let parent = self.anchor(path.parent())?;
        Ok(fs::readlinkat(&parent, path.name(), Vec::new())?.into_bytes())
    }

    fn walk(&self, path: &[u8], last: OFlags) -> io::Result<OwnedFd> {
        let mut at: Option<OwnedFd> = None;
        let mut rest = if path.is_empty() { &b"."[..] } else { path };
        loop {
            let from = at.as_ref().map_or(self.root(), AsFd::as_fd);
            let (now, after) = split(rest);
            let flags = if after.is_empty() { last } else { OFlags::PATH | OFlags::DIRECTORY };
            let next = retried(|| fs::openat2(from, now, flags | OFlags::CLOEXEC, Mode::empty(), CONFINED))?;
            if after.is_empty() {
                return Ok(next);
            }
            at = Some(next);
            rest = after;
        }
    }
}

/// A directory by its name in another, opened for reading.
pub(super) fn directory_at(directory: impl AsFd, name: &[u8]) -> io::Result<OwnedFd> {
    open_at(directory, name, OFlags::RDONLY | OFlags::DIRECTORY)
}

/// A file by its name in a directory, opened for reading. Never blocks on a pipe.
pub(super) fn file_at(directory: impl AsFd, name: &[u8]) -> io::Result<File> {
    Ok(open_at(directory, name, OFlags::RDONLY | OFlags::NONBLOCK)?.into())
}

/// The target of a link by its name in a directory.
pub(super) fn link_at(directory: impl AsFd, name: &[u8]) -> io::Result<Vec<u8>> {
    Ok(fs::readlinkat(directory, name, Vec::new())?.into_bytes())
}

fn open_at(directory: impl AsFd, name: &[u8], flags: OFlags) -> io::Result<OwnedFd> {
    let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    retried(|| fs::openat2(directory.as_fd(), name, flags, Mode::empty(), CONFINED))
}

/// The metadata of a name in a directory, if it exists. Does not follow a link.
pub fn stat_at(directory: impl AsFd, name: &[u8]) -> io::Result<Option<Stat>> {
    let fields = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
    match fs::statx(directory, name, AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT, fields) {
        Ok(found) => Ok(Some(Stat::from(&found))),
        Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// The metadata of an open file.
pub fn stat_of(open: impl AsFd) -> io::Result<Stat> {
    let fields = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
    Ok(Stat::from(&fs::statx(open, "", AtFlags::EMPTY_PATH, fields)?))
}

/// The identity of an open directory.
pub fn identity_of(open: impl AsFd) -> io::Result<Identity> {
    let fields = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
    Ok(Identity::from(&fs::statx(open, "", AtFlags::EMPTY_PATH, fields)?))
}

/// The names in a directory, in order.
pub fn names(directory: impl AsFd) -> io::Result<Vec<Vec<u8>>> {
    Ok(some_names(directory, usize::MAX)?.unwrap_or_default())
}

/// The same; `None` if there are more than the limit.
pub fn some_names(directory: impl AsFd, most: usize) -> io::Result<Option<Vec<Vec<u8>>>> {
    let (names, is_whole) = first_names(directory, most)?;
    Ok(is_whole.then_some(names))
}

/// The first names in a directory up to a limit, in order, and whether they are all.
pub(super) fn first_names(directory: impl AsFd, most: usize) -> io::Result<(Vec<Vec<u8>>, bool)> {
    let mut names = Vec::new();
    for entry in Dir::read_from(directory)? {
        let name = entry?.file_name().to_bytes().to_vec();
        if matches!(name.as_slice(), b"." | b"..") {
            continue;
        }
        if names.len() == most {
            return Ok((names, false));
        }
        names.push(name);
    }
    names.sort_unstable();
    Ok((names, true))
}

/// Whether a directory is empty.
pub(super) fn is_empty(directory: impl AsFd) -> io::Result<bool> {
    for entry in Dir::read_from(directory)? {
        if !matches!(entry?.file_name().to_bytes(), b"." | b"..") {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Whether the error means absence, as opposed to an entry that cannot be reached.
pub fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

/// As much of a path as the kernel accepts in one call, and the rest.
fn split(path: &[u8]) -> (&[u8], &[u8]) {
    if path.len() <= AT_ONCE {
        return (path, &[]);
    }
    // A name has at most 255 bytes, so there is a slash.
    let end = path[..=AT_ONCE].iter().rposition(|byte| *byte == b'/').unwrap_or(AT_ONCE);
    (&path[..end], path.get(end + 1..).unwrap_or(&[]))
}

/// openat2(2): EAGAIN means that a concurrent rename interfered.
fn retried<T>(mut call: impl FnMut() -> Result<T, Errno>) -> io::Result<T> {
    for _ in 0..RETRIES {
        match call() {
            Err(Errno::AGAIN | Errno::INTR) => {}
            result => return Ok(result?),
        }
    }
    Ok(call()?)
}

const NO_LINKS: ResolveFlags = ResolveFlags::NO_SYMLINKS.union(ResolveFlags::NO_MAGICLINKS);
const CONFINED: ResolveFlags = NO_LINKS.union(ResolveFlags::BENEATH).union(ResolveFlags::NO_XDEV);
/// PATH_MAX is 4096 including the NUL.
const AT_ONCE: usize = 4000;
const RETRIES: usize = 100;
