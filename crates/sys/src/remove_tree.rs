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

/// The same until a moment: then the error is `TimedOut`, and another call continues with what is left.
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
    let names = names(&top)?;
    // What an earlier removal moved up, which was cut short, stays under its name: else a directory of many would be moved again each time.
    let first = names.iter().filter_map(|name| number_of(name)).max().map_or(0, |number| number + 1);
    let mut moved = first;
    for name in &names {
        clear(&top, name, &mut moved, deadline)?;
    }
    let mut cleared = first;
    while cleared < moved {
        clear(&top, &lifted(cleared), &mut moved, deadline)?;
        cleared += 1;
    }
    Ok(fs::unlinkat(parent, name, AtFlags::REMOVEDIR)?)
}

/// Removes what has this name at the top, but for the directories in it, which go to the top.
fn clear(top: &OwnedFd, name: &[u8], moved: &mut u64, deadline: Option<Instant>) -> io::Result<()> {
    match fs::unlinkat(top, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => {}
        Err(Errno::ISDIR | Errno::PERM) => {
            if let Some(directory) = opened(open(top, name))? {
                empty(&directory, top, moved, deadline)?;
                fs::unlinkat(top, name, AtFlags::REMOVEDIR)?;
            }
        }
        Err(error) => return Err(error.into()),
    }
    in_time(deadline)
}

/// Empties a directory: its directories go to the top under names that count up.
fn empty(directory: &OwnedFd, top: &OwnedFd, moved: &mut u64, deadline: Option<Instant>) -> io::Result<()> {
    for name in names(directory)? {
        match fs::unlinkat(directory, name.as_slice(), AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(Errno::ISDIR | Errno::PERM) => lift(directory, &name, top, moved)?,
            Err(error) => return Err(error.into()),
        }
        in_time(deadline)?;
    }
    Ok(())
}

fn lift(directory: &OwnedFd, name: &[u8], top: &OwnedFd, moved: &mut u64) -> io::Result<()> {
    // Only a process that may write a directory can move it: its `..` changes.
    drop(open(directory, name)?);
    loop {
        let place = lifted(*moved);
        *moved += 1;
        match fs::renameat_with(directory, name, top, place.as_slice(), RenameFlags::NOREPLACE) {
            Ok(()) | Err(Errno::NOENT) => return Ok(()),
            Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// After each step, so that every call comes some way.
fn in_time(deadline: Option<Instant>) -> io::Result<()> {
    match deadline.is_some_and(|deadline| Instant::now() >= deadline) {
        true => Err(io::ErrorKind::TimedOut.into()),
        false => Ok(()),
    }
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
    format!("{LIFTED}{number}").into_bytes()
}

/// Of a name that was lifted; a larger number is none of ours.
fn number_of(name: &[u8]) -> Option<u64> {
    let number = str::from_utf8(name).ok()?.strip_prefix(LIFTED)?;
    number.parse::<u32>().ok().map(u64::from)
}

const LIFTED: &str = ".belljar-gone-";
