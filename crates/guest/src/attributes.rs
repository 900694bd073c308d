//! Attributes of files that users may write: `user.*` (xattr(7)).

use crate::files::PathRoot;
use belljar_sys::rustix::fd::{AsRawFd, OwnedFd};
use belljar_sys::rustix::fs::{OFlags, XattrFlags, getxattr, listxattr, removexattr, setxattr};
use belljar_sys::rustix::io::Errno;
use belljar_wire::message::Bytes;

/// Those of a file, as far as they are few and small: names without `user.`, and values. A filesystem may have none.
pub(crate) fn of(file: &OwnedFd) -> Vec<(Bytes, Bytes)> {
    let path = by_descriptor(file);
    let names = names(&path).unwrap_or_default();
    let value = |name: Vec<u8>| {
        let mut buffer = vec![0; MAX_VALUE_BYTES];
        let length = getxattr(&path, &*[USER, &*name].concat(), &mut buffer[..]).ok()?;
        buffer.truncate(length);
        Some((Bytes(name), Bytes(buffer)))
    };
    names.into_iter().take(MAX_ATTRIBUTES).filter_map(value).collect()
}

/// Gives a file these, and none beside them whose name begins with the prefix.
pub(crate) fn set(
    place: &PathRoot,
    path: &str,
    prefix: &str,
    attributes: &[(String, Bytes)],
) -> Result<(), Errno> {
    let file = place.resolve(path, OFlags::PATH)?;
    let path = by_descriptor(&file);
    for name in names(&path)? {
        let is_kept = attributes.iter().any(|(kept, _)| kept.as_bytes() == name);
        if name.starts_with(prefix.as_bytes()) && !is_kept {
            removexattr(&path, &*[USER, &*name].concat())?;
        }
    }
    for (name, value) in attributes {
        setxattr(&path, &*[USER, name.as_bytes()].concat(), &value.0, XattrFlags::empty())?;
    }
    Ok(())
}

/// Without `user.`.
fn names(path: &str) -> Result<Vec<Vec<u8>>, Errno> {
    let mut buffer = vec![0; MAX_LIST_BYTES];
    let length = match listxattr(path, &mut buffer[..]) {
        Err(Errno::OPNOTSUPP) => 0,
        other => other?,
    };
    let all = buffer[..length].split(|byte| *byte == 0);
    Ok(all.filter_map(|name| name.strip_prefix(USER)).map(<[u8]>::to_vec).collect())
}

/// A path that the kernel leads to the file itself, which may have any name by now.
fn by_descriptor(file: &OwnedFd) -> String {
    format!("/proc/self/fd/{}", file.as_raw_fd())
}

const USER: &[u8] = b"user.";
const MAX_ATTRIBUTES: usize = 64;
/// Longer ones are left out of what is told of a file.
const MAX_VALUE_BYTES: usize = 4096;
/// XATTR_LIST_MAX of the kernel.
const MAX_LIST_BYTES: usize = 64 * 1024;
