//! Removes a directory with all that is in it, however deep, and whatever its modes say to its owner.

use rustix::fs::{self, AtFlags, Dir, Mode, OFlags, RenameFlags};
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::Instant;

/// Removes what is at a path of ours, if something is; see [`remove_at`].
pub fn remove(path: &Path) -> io::Result<()> {
    remove_by(path, None)
}

/// The same until a moment: then the error is `TimedOut`, and another call goes on with what is left.
pub fn remove_until(path: &Path, deadline: Instant) -> io::Result<()> {
    remove_by(path, Some(deadline))
}

fn remove_by(path: &Path, deadline: Option<Instant>) -> io::Result<()> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    match fs::openat(fs::CWD, parent, flags, Mode::empty()) {
        Ok(parent) => remove_at_by(parent.as_fd(), name.as_encoded_bytes(), deadline),
        Err(Errno::NOENT) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Removes what is at a name of a directory, if something is. Links are removed, not followed.
///
/// A directory inside is moved up beside the others before it is emptied, so that neither depth nor the length of a path
/// needs a descriptor or a stack.
pub fn remove_at(parent: impl AsFd, name: &[u8]) -> io::Result<()> {
    remove_at_by(parent.as_fd(), name, None)
}

fn remove_at_by(parent: BorrowedFd<'_>, name: &[u8], deadline: Option<Instant>) -> io::Result<()> {
    match fs::unlinkat(parent, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => return Ok(()),
        Err(Errno::ISDIR | Errno::PERM) => {}
        Err(error) => return Err(error.into()),
    }
    let top = open(parent, name)?;
    let mut moved: u64 = 0;
    let mut emptied: u64 = 0;
    empty(&top, &top, &mut moved, deadline)?;
    while emptied < moved {
        let next = lifted(emptied);
        if let Some(directory) = opened(open(&top, &next))? {
            empty(&directory, &top, &mut moved, deadline)?;
            fs::unlinkat(&top, next.as_slice(), AtFlags::REMOVEDIR)?;
        }
        emptied += 1;
    }
    Ok(fs::unlinkat(parent, name, AtFlags::REMOVEDIR)?)
}

/// Empties a directory: its directories go to the top under names that count up.
fn empty(directory: &OwnedFd, top: &OwnedFd, moved: &mut u64, deadline: Option<Instant>) -> io::Result<()> {
    for name in names(directory)? {
        if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            return Err(io::ErrorKind::TimedOut.into());
        }
        match fs::unlinkat(directory, name.as_slice(), AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => continue,
            Err(Errno::ISDIR | Errno::PERM) => {}
            Err(error) => return Err(error.into()),
        }
        // A directory is only moved by who may write it: its `..` changes.
        drop(open(directory, &name)?);
        loop {
            let place = lifted(*moved);
            // Where a removal was cut short, its names are still there, and are directories like others.
            match fs::renameat_with(directory, name.as_slice(), top, place.as_slice(), RenameFlags::NOREPLACE)
            {
                Ok(()) => {
                    *moved += 1;
                    break;
                }
                Err(Errno::EXIST) => *moved += 1,
                Err(Errno::NOENT) => break,
                Err(error) => return Err(error.into()),
            }
        }
    }
    Ok(())
}

/// Opens a directory, and makes it ours to empty.
fn open(parent: impl AsFd, name: &[u8]) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = match fs::openat(&parent, name, flags, Mode::empty()) {
        Err(Errno::ACCESS) => {
            // overlayfs leaves `work/work` with no permission at all. chmod(2) would follow a link; a descriptor is one
            // directory.
            let held = fs::openat(&parent, name, flags | OFlags::PATH, Mode::empty())?;
            fs::chmod(format!("/proc/self/fd/{}", held.as_raw_fd()), Mode::RWXU)?;
            fs::openat(&parent, name, flags, Mode::empty())?
        }
        opened => opened?,
    };
    if fs::fstat(&opened)?.st_mode & 0o700 != 0o700 {
        fs::fchmod(&opened, Mode::RWXU)?;
    }
    Ok(opened)
}

fn opened(result: io::Result<OwnedFd>) -> io::Result<Option<OwnedFd>> {
    match result {
        Ok(opened) => Ok(Some(opened)),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// All of them first: a directory that changes while it is read may show a name twice or not at all.
fn names(directory: &OwnedFd) -> io::Result<Vec<Vec<u8>>> {
    let mut names = Vec::new();
    for entry in Dir::read_from(directory)? {
        let name = entry?.file_name().to_bytes().to_vec();
        if !matches!(name.as_slice(), b"." | b"..") {
            names.push(name);
        }
    }
    Ok(names)
}

fn lifted(number: u64) -> Vec<u8> {
    format!(".belljar-gone-{number}").into_bytes()
}
