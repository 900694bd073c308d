//! A lock on a directory that others may remove and make anew: it says that somebody holds what the directory stands for. The kernel
//! lets go of it when its holder dies, however it dies.

use rustix::fd::OwnedFd;
use rustix::fs::{FlockOperation, Mode, OFlags, flock, fstat, open, stat};
use rustix::io::Errno;
use std::path::Path;

/// The lock, if nobody has it; `NOENT` if there is no such directory.
pub fn try_lock(path: &Path) -> Result<Option<OwnedFd>, Errno> {
    loop {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let handle = open(path, flags, Mode::empty())?;
        match flock(&handle, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::INTR) => continue,
            Err(Errno::WOULDBLOCK) => return Ok(None),
            Err(errno) => return Err(errno),
        }
        // Between opening and locking it may have been removed, and made anew by somebody who holds that one.
        let (ours, found) = (fstat(&handle)?, stat(path)?);
        if (ours.st_dev, ours.st_ino) == (found.st_dev, found.st_ino) {
            return Ok(Some(handle));
        }
    }
}
