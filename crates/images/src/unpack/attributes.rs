//! Extended attributes of a layer: `user.*` and nothing else. Those of `security.*` would give capabilities, `trusted.*` and
//! `user.overlay.*` speak to overlayfs.

use belljar_sys::rustix::fs::{self, XattrFlags};
use belljar_sys::rustix::io::Errno;
use std::os::fd::AsFd;

/// Gives a new file or directory those that it may have; says how many it may not.
pub(super) fn give(file: impl AsFd, attributes: &[(Vec<u8>, Vec<u8>)]) -> Result<u64, Errno> {
    let mut dropped = 0;
    for (name, value) in attributes {
        if !is_taken(name, value) {
            dropped += 1;
            continue;
        }
        match fs::fsetxattr(&file, name.as_slice(), value, XattrFlags::empty()) {
            Ok(()) => {}
            // The filesystem has none, or no room for more: ext4 has one block for all of a file's.
            Err(Errno::OPNOTSUPP | Errno::NOSPC | Errno::TOOBIG) => dropped += 1,
            Err(errno) => return Err(errno),
        }
    }
    Ok(dropped)
}

fn is_taken(name: &[u8], value: &[u8]) -> bool {
    name.len() > USER.len()
        && name.len() <= MAX_ATTRIBUTE_NAME_BYTES
        && name.starts_with(USER)
        && !name.starts_with(OVERLAY)
        && !name.contains(&0)
        && value.len() <= LARGEST
}

const USER: &[u8] = b"user.";
const OVERLAY: &[u8] = b"user.overlay.";
/// XATTR_NAME_MAX and XATTR_SIZE_MAX of Linux.
const MAX_ATTRIBUTE_NAME_BYTES: usize = 255;
const LARGEST: usize = 65536;
