//! Holds what could be a mount point of a sandbox that we know nothing of: a shared lock on the thing itself, for which a
//! process that removes a mount point needs an exclusive lock ([`belljar_sys::remove`]). Of files only on small ones: other
//! programs lock files too. On every directory: no process inside can then lock it exclusively.

use super::find;
use crate::layout::Missing;
use belljar_spec::{ErrorCode, SandboxError};
use belljar_sys::opened::OpenedPath;
use belljar_sys::rustix::fd::OwnedFd;
use belljar_sys::rustix::fs::{
    FileType, FlockOperation, Mode, OFlags, ResolveFlags, flock, fstat, openat, openat2,
};
use belljar_sys::rustix::io::Errno;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

/// What of a folder's shields could be mount points, held; an error if one of them is gone. `planted` are those that we
/// made just now, by their paths.
pub(super) fn hold_all(
    missing: &Missing,
    judged: &OpenedPath,
    planted: &mut HashMap<PathBuf, OwnedFd>,
) -> Result<Vec<OwnedFd>, SandboxError> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let Ok(folder) = openat(judged, ".", flags, Mode::empty()) else { return Ok(Vec::new()) };
    let held = missing.shields.iter().map(|shield| {
        let planted = planted.remove(&missing.root.join(shield));
        hold(missing, &folder, shield, planted)
    });
    held.filter_map(Result::transpose).collect()
}

fn hold(
    missing: &Missing,
    folder: &OwnedFd,
    shield: &str,
    planted: Option<OwnedFd>,
) -> Result<Option<OwnedFd>, SandboxError> {
    let thing = match planted {
        Some(planted) => planted,
        None => {
            let found = match find(folder, shield) {
                Ok(found) => found,
                Err(Errno::NOENT) => return Err(gone(&missing.root.join(shield))),
                // No mount point is behind a link, or where we may not look.
                Err(_) => return Ok(None),
            };
            let Some(thing) = possible_mountpoint(folder, shield, &found) else { return Ok(None) };
            thing
        }
    };
    let start = Instant::now();
    loop {
        match flock(&thing, FlockOperation::NonBlockingLockShared) {
            Ok(()) => break,
            Err(Errno::INTR) => {}
            // A process that removes it needs a moment.
            Err(Errno::WOULDBLOCK) if start.elapsed() < LOCK_TIMEOUT => thread::sleep(STEP),
            // It is locked exclusively, so no living sandbox needs it, and it is no sandbox's mount point. Or the
            // filesystem has no locks.
            Err(_) => return Ok(None),
        }
    }
    let is_still_there = find(folder, shield).is_ok_and(|now| is_same(&now, &thing));
    if is_still_there { Ok(Some(thing)) } else { Err(gone(&missing.root.join(shield))) }
}

/// Opened for reading, which a mount point allows every user.
fn possible_mountpoint(folder: &OwnedFd, shield: &str, found: &OwnedFd) -> Option<OwnedFd> {
    let stat = fstat(found).ok()?;
    let kind = FileType::from_raw_mode(stat.st_mode);
    if !(kind == FileType::Directory
        || (kind == FileType::RegularFile && stat.st_size <= MAX_PLACEHOLDER_BYTES))
    {
        return None;
    }
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    openat2(folder, shield, flags, Mode::empty(), resolve).ok()
}

fn is_same(one: &OwnedFd, other: &OwnedFd) -> bool {
    let (Ok(one), Ok(other)) = (fstat(one), fstat(other)) else { return false };
    (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino)
}

fn gone(path: &Path) -> SandboxError {
    let message = format!("`{}` is protected, and was removed just now", path.display());
    ErrorCode::ChangedMeanwhile.error(message).hint("try again")
}

/// Of a file that is a mount point, in bytes.
const MAX_PLACEHOLDER_BYTES: i64 = 16;
/// Far longer than any process needs to remove a mount point.
const LOCK_TIMEOUT: Duration = Duration::from_millis(200);
const STEP: Duration = Duration::from_millis(1);
