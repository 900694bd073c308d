//! Removing what one made, in a folder that others write to, only while it is as one made it.

use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags, fstat, openat, openat2, unlinkat};
use rustix::io::{Errno, pread};

/// Removes the directory at `path` in `folder`, if it is empty. No link leads anywhere on the way.
pub fn remove_empty_directory(folder: impl AsFd, path: &str) -> Result<(), Errno> {
    let (parent, name) = parent(folder, path)?;
    unlinkat(parent, name, AtFlags::REMOVEDIR)
}

/// Removes the file at `path` in `folder`, if it is one with exactly this content and no other name; or with none at all, since
/// who made it may have been killed before it was written.
pub fn remove_file_with(folder: impl AsFd, path: &str, content: &[u8]) -> Result<(), Errno> {
    let (parent, name) = parent(folder, path)?;
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = openat(&parent, name, flags, Mode::empty())?;
    let found = fstat(&file)?;
    let is_file = FileType::from_raw_mode(found.st_mode) == FileType::RegularFile && found.st_nlink == 1;
    let is_as_made =
        found.st_size == 0 || read_whole(&file, content.len()).is_ok_and(|found| found == content);
    if !is_file || !is_as_made {
        return Err(Errno::NOTEMPTY);
    }
    unlinkat(parent, name, AtFlags::empty())
}

/// What is in a file from its beginning; one that is longer than `most` is an error.
pub fn read_whole(file: impl AsFd, most: usize) -> Result<Vec<u8>, Errno> {
    let mut bytes = Vec::new();
    let mut buffer = [0; 4096];
    while bytes.len() <= most {
        match pread(&file, &mut buffer, bytes.len() as u64) {
            Ok(0) => return Ok(bytes),
            Ok(length) => bytes.extend_from_slice(&buffer[..length]),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Err(Errno::FBIG)
}

fn parent(folder: impl AsFd, path: &str) -> Result<(OwnedFd, &str), Errno> {
    let (parent, name) = path.rsplit_once('/').unwrap_or((".", path));
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok((openat2(folder, parent, flags, Mode::empty(), resolve)?, name))
}
