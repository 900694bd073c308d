//! Extended attributes: overlayfs' own marks, and those that belong to a file.

use belljar_sys::rustix::fs::{self, XattrFlags};
use belljar_sys::rustix::io::Errno;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::AsFd;

/// A file's own attributes: `user.*`, without overlayfs' marks.
pub(super) type Xattrs = BTreeMap<Vec<u8>, Vec<u8>>;

/// A file's own attributes. A filesystem without any has none.
pub(super) fn own(file: impl AsFd) -> io::Result<Xattrs> {
    let mut own = Xattrs::new();
    for name in names(&file)?.split(|byte| *byte == 0) {
        if name.starts_with(b"user.")
            && !name.starts_with(OVERLAY)
            && let Some(value) = value(&file, name)?
        {
            own.insert(name.to_vec(), value);
        }
    }
    Ok(own)
}

/// Sets them on a new file. On a filesystem without attributes they are lost.
pub(super) fn give(file: impl AsFd, attributes: &Xattrs) -> io::Result<()> {
    for (name, value) in attributes {
        match fs::fsetxattr(&file, name.as_slice(), value, XattrFlags::empty()) {
            Ok(()) => {}
            Err(Errno::OPNOTSUPP) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Replaces a file's own attributes by these.
pub(super) fn make(file: impl AsFd, attributes: &Xattrs) -> io::Result<()> {
    for name in own(&file)?.keys().filter(|name| !attributes.contains_key(*name)) {
        fs::fremovexattr(&file, name.as_slice())?;
    }
    give(file, attributes)
}

/// An access list: who may use a file besides the users that its mode covers (acl(5)).
#[derive(Debug, Clone, Copy)]
pub(super) enum AccessList {
    Own,
    /// The list for new entries of a directory.
    Default,
}

/// A file's list, in the kernel's format.
pub(super) fn access_list(file: impl AsFd, list: AccessList) -> io::Result<Option<Vec<u8>>> {
    value(&file, list.name())
}

/// Sets a file's access list, or removes it: a new file inherits one from its directory. With a list, the group bits of the mode
/// become the list's mask.
pub(super) fn make_access_list(file: impl AsFd, list: AccessList, value: Option<&[u8]>) -> io::Result<()> {
    let made = match value {
        Some(value) => fs::fsetxattr(&file, list.name(), value, XattrFlags::empty()),
        None => fs::fremovexattr(&file, list.name()),
    };
    match made {
        Ok(()) | Err(Errno::OPNOTSUPP | Errno::NODATA) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

impl AccessList {
    fn name(self) -> &'static [u8] {
        match self {
            AccessList::Own => b"system.posix_acl_access",
            AccessList::Default => b"system.posix_acl_default",
        }
    }
}

/// One of overlayfs' marks.
pub(super) fn mark(file: impl AsFd, mark: Mark) -> io::Result<Option<Vec<u8>>> {
    value(&file, mark.name())
}

/// Sets one.
pub(super) fn set_mark(file: impl AsFd, mark: Mark, value: &[u8]) -> io::Result<()> {
    Ok(fs::fsetxattr(file, mark.name(), value, XattrFlags::empty())?)
}

/// Removes one.
pub(super) fn unmark(file: impl AsFd, mark: Mark) -> io::Result<()> {
    match fs::fremovexattr(file, mark.name()) {
        Ok(()) | Err(Errno::NODATA | Errno::OPNOTSUPP) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// overlayfs' marks on a mount with `userxattr` (Documentation/filesystems/overlayfs.rst).
#[derive(Debug, Clone, Copy)]
pub(super) enum Mark {
    /// A directory that hides the lower one.
    Opaque,
    /// A whiteout file, in a directory whose `Opaque` is `x`.
    Whiteout,
    /// A copy of a lower file. With `userxattr` it does not name the original.
    Origin,
}

impl Mark {
    fn name(self) -> &'static [u8] {
        match self {
            Mark::Opaque => b"user.overlay.opaque",
            Mark::Whiteout => b"user.overlay.whiteout",
            Mark::Origin => b"user.overlay.origin",
        }
    }
}

fn names(file: impl AsFd) -> io::Result<Vec<u8>> {
    let mut room = vec![0; 1024];
    loop {
        match fs::flistxattr(&file, room.as_mut_slice()) {
            Ok(length) => {
                room.truncate(length);
                return Ok(room);
            }
            // XATTR_LIST_MAX is 65536.
            Err(Errno::RANGE) if room.len() < 1 << 17 => room.resize(room.len() * 4, 0),
            Err(Errno::OPNOTSUPP) => return Ok(Vec::new()),
            Err(error) => return Err(error.into()),
        }
    }
}

fn value(file: impl AsFd, name: &[u8]) -> io::Result<Option<Vec<u8>>> {
    let mut room = vec![0; 256];
    loop {
        match fs::fgetxattr(&file, name, room.as_mut_slice()) {
            Ok(length) => {
                room.truncate(length);
                return Ok(Some(room));
            }
            // XATTR_SIZE_MAX is 65536.
            Err(Errno::RANGE) if room.len() < 1 << 17 => room.resize(room.len() * 4, 0),
            Err(Errno::NODATA | Errno::OPNOTSUPP) => return Ok(None),
            Err(error) => return Err(error.into()),
        }
    }
}

const OVERLAY: &[u8] = b"user.overlay.";
