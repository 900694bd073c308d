//! Mount points: what has to be in a folder of the host so that something can be mounted over it, and is not there.
//!
//! ```text
//! note         S/stubs/DEVICE-INODE of the folder; says what is made in it; locked by every process that needs it
//! stand-by     a process that becomes the guest's program in its other mode (`reap`) if we are killed
//! mount point  an empty directory, a small file
//! ```
//!
//! In this order, so that a kill at any moment leaves a process that knows of the mount points: the stand-by process
//! outlives us, and where both are killed, the next start finds a note that no process holds ([`sweep_mountpoints`]).
//! Several sandboxes may need the same mount point: the last one that releases the note removes all that it names. And none
//! is removed while the sandbox lives: to the kernel, a mount on something that was removed is removed too.
//!
//! Two notes may be about one place: a repository's folder and, for its linked worktrees, the git directory inside. Each
//! mount point is named by one note only, and held through that one by all sandboxes that need it. That takes a [`Turn`]:
//! from the look at the others' notes until all mount points are made, no other sandbox makes any. The first sandbox names
//! the mount point and makes it. The second one finds the first one's note, holds it, finds the mount point there, and does
//! not name it again: so it is neither removed when the first ends (the second holds the note), nor when the second ends
//! (its own note does not name it). Removing needs no turn: it is done with the note locked exclusively, and a sandbox that
//! finds that note waits for the lock before it looks for the mount point, which is gone by then, and makes it anew.
//!
//! Another user, or a daemon, has another S, and knows nothing of our notes. So all that lies under our mounts and could be
//! a mount point of another sandbox is held as well ([`hold`]), and a sandbox that finds its mount points held leaves them
//! to its stand-by process, which waits.

mod hold;
mod note;
mod turn;

use crate::layout::{Layout, Missing};
use crate::{Plan, embedded};
use belljar_spec::{ErrorCode, SandboxError, Term, hint};
use belljar_sys::remove::Removal;
use belljar_sys::rustix::fd::{AsFd, BorrowedFd};
use belljar_sys::rustix::fs::{
    CWD, FlockOperation, Gid, Mode, OFlags, ResolveFlags, Stat, Uid, fchmod, fchown, flock, fstat, mkdirat,
    openat, openat2,
};
use belljar_sys::rustix::io::{Errno, write};
use belljar_sys::rustix::process::geteuid;
use belljar_sys::standby::{StandBy, stand_by};
use belljar_wire::message::{Mountpoint, MountpointKind};
use note::Note;
use std::collections::HashMap;
use std::ffi::CString;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
pub(crate) use turn::Turn;

/// The mount points of one sandbox. Dropped, they are gone; the sandbox must be dead by then.
pub(crate) struct Mountpoints {
    directory: PathBuf,
    notes: Vec<Note>,
    /// What we made and do not hold yet, by its path.
    planted: HashMap<PathBuf, OwnedFd>,
    /// What could be a mount point of another sandbox.
    held: Vec<OwnedFd>,
    /// For the case that we do not get that far; none without notes.
    stand_by: Option<StandBy>,
}

impl Mountpoints {
    /// Gets ready for what a layout needs in folders of the host; `None` where that is nothing. `guest` is the sandbox's
    /// first process. What is mounted at `stage` on the host lies over mount points: the stand-by process removes it before
    /// them.
    pub(crate) fn begin(
        plan: &Plan,
        layout: &Layout,
        guest: BorrowedFd<'_>,
        stage: &[PathBuf],
    ) -> Result<Option<Mountpoints>, SandboxError> {
        let shielded: Vec<&Missing> =
            layout.missing.iter().filter(|missing| !missing.shields.is_empty()).collect();
        if shielded.is_empty() {
            return Ok(None);
        }
        let needed: Vec<&Missing> =
            layout.missing.iter().filter(|missing| !missing.mountpoints.is_empty()).collect();
        let directory = match plan.mountpoints() {
            Some(directory) => directory.to_path_buf(),
            None if needed.is_empty() => PathBuf::new(),
            None => return Err(no_place("it has no state directory")),
        };
        // What others made, and we find there, has to stay as long as we need it.
        let mut notes = note::of_others(&directory, &shielded, &layout.opened);
        for missing in needed {
            if notes.iter().all(|note| !note.is_about(&missing.root)) {
                notes.push(
                    Note::open_for(&directory, layout.opened.get(&missing.root)?)
                        .map_err(|error| no_place(&error.to_string()))?,
                );
            }
        }
        let mut mountpoints =
            Mountpoints { directory, notes, planted: HashMap::new(), held: Vec::new(), stand_by: None };
        mountpoints.have_one_stand_by(guest, stage)?;
        Ok(Some(mountpoints))
    }

    /// The stand-by process waits for this process from now on, which became the sandbox's first one after the mount points were made.
    pub(crate) fn wait_for(&mut self, guest: BorrowedFd<'_>) -> Result<(), SandboxError> {
        self.have_one_stand_by(guest, &[])
    }

    fn have_one_stand_by(&mut self, guest: BorrowedFd<'_>, stage: &[PathBuf]) -> Result<(), SandboxError> {
        if !self.notes.is_empty() {
            self.stand_by = Some(stand_by_with(&self.directory, &self.notes, guest, stage)?);
        }
        Ok(())
    }

    /// Makes those that are not there. What is there by now is as good: it is the user's own, or named by a note that we
    /// hold, and not ours to remove.
    pub(crate) fn make(&mut self, layout: &Layout) -> Result<(), SandboxError> {
        for missing in layout.missing.iter().filter(|missing| !missing.mountpoints.is_empty()) {
            let note = self.notes.iter().find(|note| note.is_about(&missing.root));
            let note = note.expect("a note was opened for every folder that needs mount points");
            let mountpoints: Vec<Mountpoint> = missing
                .shields
                .iter()
                .filter(|shield| find(&note.folder, shield).is_err())
                .filter_map(|shield| mountpoint_for(missing, shield))
                .collect();
            if mountpoints.is_empty() {
                continue;
            }
            note.add(&mountpoints).map_err(|error| no_place(&error.to_string()))?;
            let owner = if geteuid().is_root() { fstat(&note.folder).ok() } else { None };
            for mountpoint in &mountpoints {
                let planted = plant(&note.folder, owner.as_ref(), mountpoint)
                    .map_err(|errno| not_made(&missing.root, mountpoint, errno))?;
                if let Some(planted) = planted {
                    self.planted.insert(missing.root.join(&mountpoint.path), planted);
                }
            }
        }
        Ok(())
    }

    /// Makes sure that all of it stays which is mounted over. What was another sandbox's mount point when we looked at the
    /// folder may be gone; the next sandbox to need it would make one that we do not know of, and remove it below our
    /// mount.
    pub(crate) fn hold(&mut self, layout: &Layout) -> Result<(), SandboxError> {
        for missing in &layout.missing {
            let judged = layout.opened.get(&missing.root)?;
            self.held.extend(hold::hold_all(missing, judged, &mut self.planted)?);
        }
        Ok(())
    }
}

impl Drop for Mountpoints {
    fn drop(&mut self) {
        // Before the notes: the last process to hold one must not find these locks. Closing would not do it: a process that
        // is just being started has copies of them for a moment.
        for held in self.held.drain(..) {
            let _ = flock(held, FlockOperation::Unlock);
        }
        let became = self.notes.iter().map(|note| note.remove_one(&self.directory)).max();
        if became == Some(Removal::Held) {
            self.stand_by.take().into_iter().for_each(StandBy::let_go);
        }
    }
}

/// Removes the mount points that no process holds any more: their maker was killed, and its stand-by process too.
pub(crate) fn sweep_mountpoints(directory: &Path) {
    for note in note::abandoned(directory) {
        note.remove_one(directory);
    }
}

/// A process that does the same for these notes, should we be killed, when the sandbox is dead as well.
fn stand_by_with(
    directory: &Path,
    notes: &[Note],
    guest: BorrowedFd<'_>,
    stage: &[PathBuf],
) -> Result<StandBy, SandboxError> {
    let failed = |errno: Errno| {
        let message = format!("cannot start the process that cleans up after a sandbox: {errno}");
        ErrorCode::StartFailed.error(message).caused_by(errno)
    };
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = openat(CWD, directory, flags, Mode::empty()).map_err(failed)?;
    let mut inherit = vec![directory.as_fd()];
    inherit.extend(notes.iter().flat_map(|note| [note.file(), note.folder.as_fd()]));
    let stage = stage.iter().map(|place| place.as_os_str().as_bytes());
    let words = [b"belljar-guest".as_slice(), b"reap"].into_iter().chain(stage);
    let words = words.chain(notes.iter().map(|note| note.name.as_bytes()));
    let words = words.map(CString::new).collect::<Result<_, _>>().map_err(|_| failed(Errno::INVAL))?;
    stand_by(embedded::program()?, words, &inherit, guest).map_err(failed)
}

/// What to make where a shield finds nothing. A folder on the way to others may have been there as another sandbox's mount
/// point when we looked, and be gone since.
fn mountpoint_for(missing: &Missing, shield: &str) -> Option<Mountpoint> {
    let known = missing.mountpoints.iter().find(|mountpoint| mountpoint.path == shield).cloned();
    let is_on_the_way =
        || missing.shields.iter().any(|other| other != shield && Path::new(other).starts_with(shield));
    known.or_else(|| {
        is_on_the_way().then(|| Mountpoint { path: shield.into(), kind: MountpointKind::Directory })
    })
}

/// What is at a path in a folder, following no link on the way.
fn find(folder: &OwnedFd, path: &str) -> Result<OwnedFd, Errno> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    openat2(folder, path, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty(), resolve)
}

/// Makes a mount point, following no link on the way, and gives it open. What is there by now is as good. As root it gets this owner.
fn plant(folder: &OwnedFd, owner: Option<&Stat>, mountpoint: &Mountpoint) -> Result<Option<OwnedFd>, Errno> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let within = match mountpoint.path.rsplit_once('/') {
        Some((parent, _)) => Some(openat2(folder, parent, flags, Mode::empty(), resolve)?),
        None => None,
    };
    let (parent, name) =
        (within.as_ref().unwrap_or(folder), mountpoint.path.rsplit('/').next().unwrap_or(&mountpoint.path));
    // Independent of our umask: every process that needs it must be able to hold it.
    let made = match &mountpoint.kind {
        MountpointKind::Directory => mkdirat(parent, name, Mode::from_raw_mode(0o755)).and_then(|()| {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let made = openat(parent, name, flags, Mode::empty())?;
            fchmod(&made, Mode::from_raw_mode(0o755))?;
            Ok(made)
        }),
        MountpointKind::File(content) => {
            let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            openat(parent, name, flags, Mode::from_raw_mode(0o644)).and_then(|made| {
                write(&made, &content.0)?;
                fchmod(&made, Mode::from_raw_mode(0o644))?;
                Ok(made)
            })
        }
    };
    let made = match made {
        Err(Errno::EXIST) => return Ok(None),
        other => other?,
    };
    if let Some(owner) = owner {
        // As if its owner had made it.
        let (user, group) = (Uid::from_raw(owner.st_uid), Gid::from_raw(owner.st_gid));
        if !user.is_root() || !group.is_root() {
            match fchown(&made, Some(user), Some(group)) {
                // Root of a container that does not have this owner, or may not change owners: then it is ours.
                Err(Errno::INVAL | Errno::PERM) => {}
                other => other?,
            }
        }
    }
    Ok(Some(made))
}

fn no_place(reason: &str) -> SandboxError {
    let message = format!(
        "something in the workspace is protected that is not there yet, and belljar cannot note what it makes for that: {reason}"
    );
    ErrorCode::StateFailed.error(message).hint("set XDG_STATE_HOME to a folder that you can write to")
}

fn not_made(folder: &Path, mountpoint: &Mountpoint, errno: Errno) -> SandboxError {
    let path = folder.join(&mountpoint.path);
    let message = format!("`{}` is protected and not there, and cannot be made: {errno}", path.display());
    match errno {
        Errno::LOOP => ErrorCode::PathRefused
            .error(message)
            .hint("a folder on the way to it is a link: put what it points to in its place"),
        _ => ErrorCode::StartFailed
            .error(message)
            .hint(hint!("make the folder writable for yourself, or work on it with {}", Term::Overlay)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use belljar_sys::rustix::process::umask;
    use belljar_wire::message::Bytes;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_mountpoint_can_be_held_by_every_user() {
        let folder = std::env::temp_dir().join(format!("belljar-plant-{}", std::process::id()));
        std::fs::create_dir(&folder).unwrap();
        let opened = OwnedFd::from(std::fs::File::open(&folder).unwrap());
        let before = umask(Mode::from_raw_mode(0o077));
        for (path, kind) in
            [("d", MountpointKind::Directory), ("f", MountpointKind::File(Bytes(b".".to_vec())))]
        {
            plant(&opened, None, &Mountpoint { path: path.into(), kind }).unwrap();
        }
        umask(before);
        let mode = |path: &str| folder.join(path).metadata().unwrap().permissions().mode() & 0o7777;
        assert_eq!([mode("d"), mode("f")], [0o755, 0o644]);
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
