//! A second mode of this program, outside of every sandbox: it removes the mount points that a sandbox needed in its
//! folder, when belljar was killed and could not. The process that executes it has waited until belljar and the sandbox are
//! dead.
//!
//! ```text
//! 3             the directory of notes
//! 4, 5, ...     for each note: the note itself, locked; the folder that it is about
//! ```
//!
//! If another process still holds a note, that process removes everything. If a process that does not know the note, since
//! it has notes of its own elsewhere, holds a mount point, this one waits. What is not as it was made stays: it belongs to
//! the user.

use belljar_sys::Inherited;
use belljar_sys::mount::{UnmountFlags, unmount};
use belljar_sys::remove::{Removal, read_whole, remove_empty_directory, remove_file_with, wait_until_free};
use belljar_sys::rustix::fd::OwnedFd;
use belljar_sys::rustix::fs::{AtFlags, FlockOperation, flock, fstat, statat, unlinkat};
use belljar_sys::rustix::io::Errno;
use belljar_sys::rustix::process::chdir;
use belljar_wire::message::MountpointKind;
use belljar_wire::planted::{self, MAX_NOTE_BYTES};
use std::process::ExitCode;

/// Whether this life was asked for.
pub(crate) fn is_requested() -> bool {
    std::env::args_os().nth(1).is_some_and(|word| word == REAP)
}

/// Removes all that the notes list.
pub(crate) fn run() -> ExitCode {
    let (stage, notes): (Vec<String>, Vec<String>) =
        std::env::args().skip(2).partition(|word| word.starts_with('/'));
    match strike(&stage).and_then(|()| reap(&notes)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

/// Removes what was put together on the host for a container that never came: it lies over what the notes name.
fn strike(stage: &[String]) -> Result<(), Errno> {
    // No folder is kept busy by us.
    chdir("/")?;
    for place in stage {
        while unmount(place, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW).is_ok() {}
    }
    Ok(())
}

fn reap(notes: &[String]) -> Result<(), Errno> {
    let mut given = Inherited::take().first(1 + 2 * notes.len()).into_iter();
    let directory = given.next().ok_or(Errno::BADF)?;
    let mut left = Vec::new();
    for name in notes {
        let (Some(note), Some(folder)) = (given.next(), given.next()) else { return Err(Errno::BADF) };
        left.push((name, note, folder));
    }
    while !left.is_empty() {
        let mut held = Vec::new();
        for (name, note, folder) in left {
            if let Some(mountpoint) = reap_one(name, &note, &folder, &directory) {
                held.push((mountpoint, (name, note, folder)));
            }
        }
        if let Some((mountpoint, (_, _, folder))) = held.first() {
            wait_until_free(folder, mountpoint)?;
        }
        left = held.into_iter().map(|(_, note)| note).collect();
    }
    Ok(())
}

/// Removes everything that a note lists, and the note; returns a mount point that another process holds, if that is why
/// some are left. What is left for another reason is tried again by the next start of a sandbox.
fn reap_one(name: &str, note: &OwnedFd, folder: &OwnedFd, directory: &OwnedFd) -> Option<String> {
    // The kernel releases the shared lock before it grants the exclusive one: another process may have been faster and
    // removed the note, and a sandbox may have written a new one, with the same name, for mount points that it needs.
    let is_ours =
        flock(note, FlockOperation::NonBlockingLockExclusive).is_ok() && is_still(note, directory, name);
    let (removal, held) = is_ours.then(|| remove_one(note, folder).ok())??;
    if removal == Removal::Done {
        let _ = unlinkat(directory, name, AtFlags::empty());
    }
    // Others may add to it meanwhile, and then it is theirs.
    held.filter(|_| flock(note, FlockOperation::LockShared).is_ok())
}

/// Whether a note that was just locked is the one of that name.
fn is_still(note: &OwnedFd, directory: &OwnedFd, name: &str) -> bool {
    let Ok(ours) = fstat(note) else { return false };
    statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)
        .is_ok_and(|found| (found.st_dev, found.st_ino) == (ours.st_dev, ours.st_ino))
}

/// Removes everything that a note lists for this folder, what was made last first; returns the outcome, and a mount point that is held.
fn remove_one(note: &OwnedFd, folder: &OwnedFd) -> Result<(Removal, Option<String>), Errno> {
    let found = fstat(folder)?;
    let (mut all, mut held) = (Removal::Done, None);
    for mountpoint in planted::mountpoints_of(&read_whole(note, MAX_NOTE_BYTES)?, found.st_dev, found.st_ino)
    {
        let removal = match &mountpoint.kind {
            MountpointKind::Directory => remove_empty_directory(folder, &mountpoint.path),
            MountpointKind::File(content) => remove_file_with(folder, &mountpoint.path, &content.0),
        };
        all = all.max(removal);
        held = held.or((removal == Removal::Held).then_some(mountpoint.path));
    }
    Ok((all, held))
}

/// The argument for this mode. Places of a stage follow, which are absolute paths, and the names of notes, which are not.
const REAP: &str = "reap";
