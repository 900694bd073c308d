//! The note of what was made in a folder. It has the folder's own name, as the kernel knows it, so that all processes that
//! work on that folder find the same one.

use crate::layout::{Missing, OpenedPaths};
use belljar_sys::opened::{FileIdentity, OpenedPath};
use belljar_sys::remove::{Removal, read_whole, remove_empty_directory, remove_file_with};
use belljar_sys::rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use belljar_sys::rustix::fs::{CWD, FlockOperation, Mode, OFlags, flock, fstat, openat, stat};
use belljar_wire::message::{Bytes, Mountpoint, MountpointKind};
use belljar_wire::planted::{self, MAX_NOTE_BYTES, Planted};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A note that is held: as long as we, or our stand-by process, have it open.
pub(super) struct Note {
    file: File,
    /// The folder that it is about.
    pub(super) folder: OwnedFd,
    path: PathBuf,
    pub(super) name: String,
}

impl Note {
    /// The note about a folder, made if there is none, held together with all its other holders.
    pub(super) fn open_for(directory: &Path, judged: &OpenedPath) -> io::Result<Note> {
        Note::open(directory, judged.as_fd().try_clone_to_owned()?, judged.path())
    }

    /// The same of a folder that others wrote of, and that is opened here.
    fn open(directory: &Path, opened: OwnedFd, folder: &Path) -> io::Result<Note> {
        let found = fstat(&opened)?;
        let name = format!("{:x}-{:x}", found.st_dev, found.st_ino);
        let place = directory.join(&name);
        loop {
            let file = File::options().read(true).append(true).create(true).open(&place)?;
            // A process with the exclusive lock is removing it: that takes a moment.
            flock(&file, FlockOperation::LockShared)?;
            if is_still(&file, &place) {
                return Ok(Note { file, folder: opened, path: folder.to_path_buf(), name });
            }
        }
    }

    pub(super) fn is_about(&self, folder: &Path) -> bool {
        self.path == folder
    }

    pub(super) fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Says what is about to be made.
    pub(super) fn add(&self, mountpoints: &[Mountpoint]) -> io::Result<()> {
        let found = fstat(&self.folder)?;
        let planted = Planted {
            folder: Bytes(self.path.as_os_str().as_bytes().to_vec()),
            device: found.st_dev,
            inode: found.st_ino,
            mountpoints: mountpoints.to_vec(),
        };
        // In one piece: others may add to it at the same time.
        let bytes = planted::encode(&planted);
        let written = (&self.file).write(&bytes)?;
        if written == bytes.len() { Ok(()) } else { Err(io::ErrorKind::StorageFull.into()) }
    }

    /// Removes what it lists, and itself, unless another process still needs it. Where a mount point is needed by a process
    /// that does not hold the note, both stay, and others may hold it again.
    pub(super) fn remove_one(&self, directory: &Path) -> Removal {
        // The kernel releases the shared lock before it grants the exclusive one: another process may have been faster.
        let is_ours = flock(&self.file, FlockOperation::NonBlockingLockExclusive).is_ok()
            && is_still(&self.file, &directory.join(&self.name));
        if !is_ours {
            return Removal::Done;
        }
        let (Ok(note), Ok(found)) = (read_whole(&self.file, MAX_NOTE_BYTES), fstat(&self.folder)) else {
            return Removal::Left;
        };
        let mut all = Removal::Done;
        for mountpoint in planted::mountpoints_of(&note, found.st_dev, found.st_ino) {
            all = all.max(match &mountpoint.kind {
                MountpointKind::Directory => remove_empty_directory(&self.folder, &mountpoint.path),
                MountpointKind::File(content) => remove_file_with(&self.folder, &mountpoint.path, &content.0),
            });
        }
        match all {
            Removal::Done => drop(fs::remove_file(directory.join(&self.name))),
            Removal::Held => drop(flock(&self.file, FlockOperation::LockShared)),
            // The next start tries again.
            Removal::Left => {}
        }
        all
    }
}

/// The notes of other sandboxes that name something which we need too: by its path, or in a folder of ours that had another
/// path when they were written.
pub(super) fn of_others(directory: &Path, shielded: &[&Missing], ours: &OpenedPaths) -> Vec<Note> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let known = entries.filter_map(|entry| {
        let all = planted::decode(&fs::read(entry.path()).ok()?);
        let folder = all.iter().find_map(|planted| folder_that_concerns(planted, shielded, ours))?;
        // It may be gone by now, with its mount points: then what we found is gone as well, and we will say so.
        match ours.get(&folder) {
            Ok(judged) => Note::open_for(directory, judged).ok(),
            Err(_) => Note::open(directory, open_folder(&folder).ok()?, &folder).ok(),
        }
    });
    known.collect()
}

/// Where the folder of a note is, if something in it is one of our shields.
fn folder_that_concerns(planted: &Planted, shielded: &[&Missing], ours: &OpenedPaths) -> Option<PathBuf> {
    let of_note = FileIdentity { device: planted.device, inode: planted.inode };
    let is_it = |missing: &&&Missing| ours.get(&missing.root).is_ok_and(|found| found.identity() == of_note);
    let was = Path::new(OsStr::from_bytes(&planted.folder.0));
    let folder = shielded.iter().find(is_it).map_or(was, |missing| &missing.root);
    let is_shield = |mountpoint: &Mountpoint| {
        let mountpoint = folder.join(&mountpoint.path);
        shielded.iter().any(|missing| {
            mountpoint
                .strip_prefix(&missing.root)
                .is_ok_and(|rest| missing.shields.iter().any(|shield| Path::new(shield) == rest))
        })
    };
    planted.mountpoints.iter().any(is_shield).then(|| folder.to_path_buf())
}

/// The notes that no process holds, each locked exclusively by us now. A folder that is not found may have been moved, or
/// be on a disk that is not there now: its note is kept for the next sandbox that works on it, but not for ever.
pub(super) fn abandoned(directory: &Path) -> Vec<Note> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let alone = entries.filter_map(|entry| {
        let place = entry.path();
        let mut file = File::options().read(true).append(true).open(&place).ok()?;
        flock(&file, FlockOperation::NonBlockingLockExclusive).ok().filter(|()| is_still(&file, &place))?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).ok()?;
        let all = planted::decode(&bytes);
        let says_nothing = all.is_empty();
        let folders = all.into_iter().map(|planted| {
            let path = PathBuf::from(OsStr::from_bytes(&planted.folder.0));
            (path, planted.device, planted.inode)
        });
        let here = folders.into_iter().find_map(|(path, device, inode)| {
            let folder = open_folder(&path).ok()?;
            let found = fstat(&folder).ok()?;
            ((found.st_dev, found.st_ino) == (device, inode)).then_some((folder, path))
        });
        let Some((folder, path)) = here else {
            let age = file.metadata().and_then(|found| found.modified()).ok()?.elapsed();
            if says_nothing || age.is_ok_and(|age| age > KEPT_WITHOUT_FOLDER) {
                let _ = fs::remove_file(&place);
            }
            return None;
        };
        Some(Note { file, folder, path, name: entry.file_name().to_str()?.to_string() })
    });
    alone.collect()
}

fn open_folder(folder: &Path) -> io::Result<OwnedFd> {
    // Its place only: it may not be readable any more.
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(openat(CWD, folder, flags, Mode::empty())?)
}

/// Whether a file that was just locked was not removed before.
fn is_still(file: &File, place: &Path) -> bool {
    let Ok(ours) = file.metadata() else { return false };
    stat(place).is_ok_and(|found| (found.st_dev, found.st_ino) == (ours.dev(), ours.ino()))
}

/// By then the user has started a sandbox in the folder, if it still exists; and the kernel may have given its number to another.
const KEPT_WITHOUT_FOLDER: Duration = Duration::from_secs(30 * 24 * 60 * 60);
