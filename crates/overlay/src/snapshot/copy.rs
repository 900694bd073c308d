//! Copying what a sandbox changed, while its processes are paused. Overlayfs' own marks are copied, too: deleted files stay deleted.
//! An agent wrote all of it: no link is followed, no device is made, and depth and size have limits.

use super::error::SnapshotError;
use super::files::{Part, SandboxFiles};
use belljar_sys::rustix::fd::{AsFd, OwnedFd};
use belljar_sys::rustix::fs::{
    AtFlags, CWD, Dir, FileType, Gid, Mode, OFlags, SeekFrom, Stat, Timespec, Timestamps, Uid, XattrFlags,
    chownat, copy_file_range, fchmod, fchown, fgetxattr, flistxattr, fsetxattr, fstat, ftruncate, futimens,
    ioctl_ficlone, linkat, makedev, mkdirat, mknodat, openat, readlinkat, seek, statat, symlinkat, utimensat,
};
use belljar_sys::rustix::io::{Errno, read, write};
use std::collections::HashMap;
use std::ffi::CString;
use std::path::Path;

/// How much may be copied while a sandbox is paused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CopyLimit {
    pub bytes: u64,
}

impl Default for CopyLimit {
    /// Some ten seconds on an ordinary disk.
    fn default() -> CopyLimit {
        CopyLimit { bytes: 4 << 30 }
    }
}

/// Copies the parts of a place into a new layer, and says how many bytes they have.
pub(super) fn parts(
    files: &SandboxFiles,
    parts: &[Part],
    layer: &Path,
    limit: CopyLimit,
) -> Result<u64, SnapshotError> {
    let mut bytes = 0;
    for part in parts {
        let upper = files.upper(*part);
        let failed = |errno: Errno| SnapshotError::store("copy", &upper)(errno.into());
        let from = match openat(CWD, &upper, DIRECTORY, Mode::empty()) {
            Ok(from) => from,
            Err(Errno::NOENT) => continue,
            Err(errno) => return Err(failed(errno)),
        };
        let to = layer.join(part.as_str());
        mkdirat(CWD, &to, Mode::RWXU).map_err(failed)?;
        let to = openat(CWD, &to, DIRECTORY, Mode::empty()).map_err(failed)?;
        let mut copy = Copy { top: to.as_fd(), links: HashMap::new(), bytes, limit };
        copy.directory(&from, &to, &mut Vec::new())?;
        bytes = copy.bytes;
    }
    Ok(bytes)
}

struct Copy<'t> {
    top: belljar_sys::rustix::fd::BorrowedFd<'t>,
    /// Files with several names, by their inode: the path of the copy.
    links: HashMap<(u64, u64), CString>,
    bytes: u64,
    limit: CopyLimit,
}

impl Copy<'_> {
    /// Copies what is in a directory, then what the directory itself is like. `way` leads to it from the top.
    fn directory(&mut self, from: &OwnedFd, to: &OwnedFd, way: &mut Vec<u8>) -> Result<(), SnapshotError> {
        if way.iter().filter(|byte| **byte == b'/').count() > MAX_DEPTH {
            return Err(failed(way, Errno::NAMETOOLONG));
        }
        let names = names(from).map_err(|errno| failed(way, errno))?;
        for name in names {
            let length = way.len();
            if length > 0 {
                way.push(b'/');
            }
            way.extend_from_slice(name.to_bytes());
            self.entry(from, to, &name, way)?;
            way.truncate(length);
        }
        like(from, to).map_err(|errno| failed(way, errno))
    }

    fn entry(
        &mut self,
        from: &OwnedFd,
        to: &OwnedFd,
        name: &CString,
        way: &mut Vec<u8>,
    ) -> Result<(), SnapshotError> {
        let found = statat(from, name, AtFlags::SYMLINK_NOFOLLOW).map_err(|errno| failed(way, errno))?;
        if FileType::from_raw_mode(found.st_mode) == FileType::Directory {
            let opened = openat(from, name, DIRECTORY, Mode::empty()).and_then(|from| {
                mkdirat(to, name, Mode::RWXU)?;
                Ok((from, openat(to, name, DIRECTORY, Mode::empty())?))
            });
            let (from, to) = opened.map_err(|errno| failed(way, errno))?;
            return self.directory(&from, &to, way);
        }
        let is_linked = found.st_nlink > 1;
        if is_linked && let Some(copied) = self.links.get(&(found.st_dev, found.st_ino)) {
            return linkat(self.top, copied, to, name, AtFlags::empty()).map_err(|errno| failed(way, errno));
        }
        self.leaf(from, to, name, &found, way)?;
        // A longer path is none that the kernel takes: the file is copied once more.
        if is_linked
            && way.len() < MAX_PATH_BYTES
            && let Ok(path) = CString::new(way.clone())
        {
            self.links.insert((found.st_dev, found.st_ino), path);
        }
        Ok(())
    }

    fn leaf(
        &mut self,
        from: &OwnedFd,
        to: &OwnedFd,
        name: &CString,
        found: &Stat,
        way: &[u8],
    ) -> Result<(), SnapshotError> {
        let failed = |errno: Errno| failed(way, errno);
        let kind = FileType::from_raw_mode(found.st_mode);
        match kind {
            FileType::RegularFile => return self.file(from, to, name, way),
            FileType::Symlink => {
                let destination = readlinkat(from, name, Vec::new()).map_err(failed)?;
                symlinkat(&destination, to, name).map_err(failed)?;
            }
            FileType::Fifo | FileType::Socket => {
                mknodat(to, name, kind, Mode::from_raw_mode(found.st_mode), 0).map_err(failed)?;
            }
            // A deleted file, as overlayfs marks it. Any other device is none that a sandbox can make.
            FileType::CharacterDevice if found.st_rdev == makedev(0, 0) => {
                mknodat(to, name, kind, Mode::empty(), makedev(0, 0)).map_err(failed)?;
            }
            _ => return Ok(()),
        }
        own(to, name, found).map_err(failed)?;
        utimensat(to, name, &times(found), AtFlags::SYMLINK_NOFOLLOW).map_err(failed)
    }

    fn file(
        &mut self,
        from: &OwnedFd,
        to: &OwnedFd,
        name: &CString,
        way: &[u8],
    ) -> Result<(), SnapshotError> {
        let failed = |errno: Errno| failed(way, errno);
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let from = openat(from, name, flags, Mode::empty()).map_err(failed)?;
        let found = fstat(&from).map_err(failed)?;
        if FileType::from_raw_mode(found.st_mode) != FileType::RegularFile {
            return Err(failed(Errno::INVAL));
        }
        // Blocks of 512 bytes: a file with holes takes less than it is long.
        let takes = found.st_blocks.cast_unsigned().saturating_mul(512);
        self.bytes = self.bytes.saturating_add(takes);
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let to = openat(to, name, flags, Mode::RUSR | Mode::WUSR).map_err(failed)?;
        if ioctl_ficlone(&to, &from).is_err() {
            if self.bytes > self.limit.bytes {
                return Err(SnapshotError::TooLarge(self.limit.bytes));
            }
            content(&from, &to, found.st_size.cast_unsigned()).map_err(failed)?;
        }
        like(&from, &to).map_err(failed)
    }
}

/// The bytes of a file, with its holes.
fn content(from: &OwnedFd, to: &OwnedFd, size: u64) -> Result<(), Errno> {
    ftruncate(to, size)?;
    let mut at = 0;
    while at < size {
        let data = match seek(from, SeekFrom::Data(at)) {
            Ok(data) => data,
            // Nothing but a hole is left.
            Err(Errno::NXIO) => return Ok(()),
            Err(errno) => return Err(errno),
        };
        let end = seek(from, SeekFrom::Hole(data))?.min(size);
        range(from, to, data, end)?;
        at = end;
    }
    Ok(())
}

fn range(from: &OwnedFd, to: &OwnedFd, start: u64, end: u64) -> Result<(), Errno> {
    let (mut read_at, mut write_at) = (start, start);
    while read_at < end {
        let length = usize::try_from(end - read_at).unwrap_or(usize::MAX).min(PIECE_BYTES);
        match copy_file_range(from, Some(&mut read_at), to, Some(&mut write_at), length) {
            Ok(0) => return Ok(()),
            Ok(_) => {}
            Err(Errno::XDEV | Errno::INVAL | Errno::OPNOTSUPP | Errno::NOSYS) => {
                return by_hand(from, to, read_at, end);
            }
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

fn by_hand(from: &OwnedFd, to: &OwnedFd, start: u64, end: u64) -> Result<(), Errno> {
    let mut buffer = vec![0; 256 * 1024];
    seek(from, SeekFrom::Start(start))?;
    seek(to, SeekFrom::Start(start))?;
    let mut left = end - start;
    while left > 0 {
        let most = usize::try_from(left).unwrap_or(usize::MAX).min(buffer.len());
        let length = read(from, &mut buffer[..most])?;
        if length == 0 {
            return Ok(());
        }
        let mut rest = &buffer[..length];
        while !rest.is_empty() {
            let written = write(to, rest)?;
            rest = &rest[written..];
        }
        left -= length as u64;
    }
    Ok(())
}

/// Owner, attributes, mode and times, in this order: a change of owner takes set-user-id bits away, and each of them changes the times.
fn like(from: &OwnedFd, to: &OwnedFd) -> Result<(), Errno> {
    let (found, made) = (fstat(from)?, fstat(to)?);
    if (found.st_uid, found.st_gid) != (made.st_uid, made.st_gid) {
        fchown(to, Some(Uid::from_raw(found.st_uid)), Some(Gid::from_raw(found.st_gid)))?;
    }
    attributes(from, to)?;
    fchmod(to, Mode::from_raw_mode(found.st_mode))?;
    futimens(to, &times(&found))
}

fn own(directory: &OwnedFd, name: &CString, like: &Stat) -> Result<(), Errno> {
    let made = statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)?;
    if (made.st_uid, made.st_gid) == (like.st_uid, like.st_gid) {
        return Ok(());
    }
    let (uid, gid) = (Uid::from_raw(like.st_uid), Gid::from_raw(like.st_gid));
    chownat(directory, name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)
}

/// Those of the file's users, overlayfs' marks among them, access lists and capabilities.
fn attributes(from: &OwnedFd, to: &OwnedFd) -> Result<(), Errno> {
    let mut list = vec![0; MAX_ATTRIBUTE_BYTES];
    let length = match flistxattr(from, &mut list[..]) {
        Ok(length) => length,
        Err(Errno::OPNOTSUPP) => return Ok(()),
        Err(errno) => return Err(errno),
    };
    let mut value = Vec::new();
    for name in list[..length].split(|byte| *byte == 0).filter(|name| is_copied(name)) {
        value.resize(MAX_ATTRIBUTE_BYTES, 0);
        let length = fgetxattr(from, name, &mut value[..])?;
        match fsetxattr(to, name, &value[..length], XattrFlags::empty()) {
            // Capabilities of a file are root's to give.
            Ok(()) | Err(Errno::PERM) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

fn is_copied(name: &[u8]) -> bool {
    name.starts_with(b"user.") || name.starts_with(b"system.posix_acl_") || name == b"security.capability"
}

fn names(directory: &OwnedFd) -> Result<Vec<CString>, Errno> {
    let mut names = Vec::new();
    for entry in Dir::read_from(directory)? {
        let name = entry?.file_name().to_owned();
        if !matches!(name.to_bytes(), b"." | b"..") {
            names.push(name);
        }
    }
    Ok(names)
}

fn times(found: &Stat) -> Timestamps {
    let time =
        |seconds: i64, nanoseconds: u64| Timespec { tv_sec: seconds, tv_nsec: nanoseconds.cast_signed() };
    Timestamps {
        last_access: time(found.st_atime, found.st_atime_nsec),
        last_modification: time(found.st_mtime, found.st_mtime_nsec),
    }
}

fn failed(way: &[u8], errno: Errno) -> SnapshotError {
    SnapshotError::Copy { path: crate::quote::name(way).to_string(), source: errno.into() }
}

const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
/// Two descriptors and a frame of the stack for each.
const MAX_DEPTH: usize = 400;
/// PATH_MAX, with the zero byte.
const MAX_PATH_BYTES: usize = 4096;
/// The kernel's own limit for names and for values (xattr(7)).
const MAX_ATTRIBUTE_BYTES: usize = 64 * 1024;
/// At once, so that a kill is not waited for.
const PIECE_BYTES: usize = 64 << 20;
