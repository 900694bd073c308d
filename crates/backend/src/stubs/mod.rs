//! Stubs: what has to be in a folder of the host so that something can be mounted over it, and is not there.
//!
//! ```text
//! note     S/stubs/DEVICE-INODE of the folder; says what is made in it; locked by everybody who needs it
//! reaper   a process of its own (the guest's program in another life) that takes stubs away when the sandbox is dead
//! stub     an empty directory, a small file
//! ```
//!
//! In this order, so that a kill at any moment leaves somebody who knows: the reaper outlives us, and where both are
//! killed, the next start finds a note that nobody holds ([`sweep_stubs`]). Several sandboxes may need the same stub: the
//! last one that lets go of the note takes away all that it names.

mod note;
mod reaper;

use crate::Plan;
use crate::layout::{Layout, Missing};
use belljar_spec::SandboxError;
use belljar_sys::rustix::fd::BorrowedFd;
use belljar_sys::rustix::fs::{
    AtFlags, Gid, Mode, OFlags, ResolveFlags, Uid, chownat, fstat, mkdirat, openat, openat2,
};
use belljar_sys::rustix::io::{Errno, write};
use belljar_sys::rustix::process::geteuid;
use belljar_wire::message::{Stub, StubKind};
use note::Note;
use reaper::Reaper;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// The stubs of one sandbox. Dropped, they are gone; the sandbox must be dead by then, or this waits until it is.
pub(crate) struct Stubs {
    directory: PathBuf,
    kept_program: Option<PathBuf>,
    notes: Vec<Note>,
    reaper: Reaper,
}

impl Stubs {
    /// Gets ready for what a layout needs in folders of the host; `None` where that is nothing. `guest` is the sandbox's
    /// first process.
    pub(crate) fn begin(
        plan: &Plan,
        layout: &Layout,
        guest: BorrowedFd<'_>,
    ) -> Result<Option<Stubs>, SandboxError> {
        let shielded: Vec<&Missing> =
            layout.missing.iter().filter(|missing| !missing.shields.is_empty()).collect();
        let needed = || shielded.iter().filter(|missing| !missing.stubs.is_empty());
        let Some(directory) = plan.stubs().filter(|_| !shielded.is_empty()) else {
            return if needed().next().is_none() {
                Ok(None)
            } else {
                Err(no_place("it has no state directory"))
            };
        };
        // What others made and we found there, we need as long as they do.
        let mut notes = note::of_others(directory, &shielded);
        for missing in needed() {
            if notes.iter().all(|note| !note.is_about(&missing.root)) {
                notes.push(
                    Note::open(directory, &missing.root).map_err(|error| no_place(&error.to_string()))?,
                );
            }
        }
        if notes.is_empty() {
            return Ok(None);
        }
        let kept_program = plan.kept_program().map(Path::to_path_buf);
        let reaper = Reaper::start(kept_program.as_deref(), directory, &notes, Some(guest))?;
        Ok(Some(Stubs { directory: directory.to_path_buf(), kept_program, notes, reaper }))
    }

    /// Makes them.
    pub(crate) fn make(&self, layout: &Layout) -> Result<(), SandboxError> {
        for missing in layout.missing.iter().filter(|missing| !missing.stubs.is_empty()) {
            let note = self.notes.iter().find(|note| note.is_about(&missing.root));
            let note = note.expect("a note for every folder that needs stubs was opened at the beginning");
            note.add(&missing.stubs).map_err(|error| no_place(&error.to_string()))?;
            for stub in &missing.stubs {
                plant(&note.folder, stub).map_err(|errno| not_made(&missing.root, stub, errno))?;
            }
        }
        Ok(())
    }
}

impl Drop for Stubs {
    fn drop(&mut self) {
        if !self.reaper.finish() {
            // Somebody killed it.
            let _ = Reaper::start(self.kept_program.as_deref(), &self.directory, &self.notes, None);
        }
    }
}

/// Takes away the stubs that nobody holds any more: whoever made them was killed, and its reaper too.
pub fn sweep_stubs(directory: &Path, kept_program: Option<&Path>) {
    for note in note::abandoned(directory) {
        // What cannot be started now is tried again by the next one.
        let _ = Reaper::start(kept_program, directory, &[note], None);
    }
}

/// Makes a stub, with nobody's link on the way. What is there by now is as good.
fn plant(folder: &OwnedFd, stub: &Stub) -> Result<(), Errno> {
    let (parent, name) = stub.path.rsplit_once('/').unwrap_or((".", &stub.path));
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let parent = openat2(folder, parent, flags, Mode::empty(), resolve)?;
    let made = match &stub.kind {
        StubKind::Directory => mkdirat(&parent, name, Mode::from_raw_mode(0o755)),
        StubKind::File(content) => {
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            openat(&parent, name, flags, Mode::from_raw_mode(0o644))
                .and_then(|file| write(file, &content.0))
                .map(drop)
        }
    };
    match made {
        Err(Errno::EXIST) => return Ok(()),
        other => other?,
    }
    if geteuid().is_root() {
        // As if its owner had made it.
        let owner = fstat(folder)?;
        let (user, group) = (Uid::from_raw(owner.st_uid), Gid::from_raw(owner.st_gid));
        chownat(&parent, name, Some(user), Some(group), AtFlags::SYMLINK_NOFOLLOW)?;
    }
    Ok(())
}

fn no_place(reason: &str) -> SandboxError {
    let message = format!(
        "something in the workspace is protected that is not there yet, and belljar cannot note what it makes for that: {reason}"
    );
    SandboxError::runtime("stubs_not_noted", message)
        .hint("set XDG_STATE_HOME to a folder that you can write to")
}

fn not_made(folder: &Path, stub: &Stub, errno: Errno) -> SandboxError {
    let path = folder.join(&stub.path);
    let message = format!("`{}` is protected and not there, and cannot be made: {errno}", path.display());
    match errno {
        Errno::LOOP => SandboxError::policy("protected_path_is_link", message)
            .hint("a folder on the way to it is a link: put what it points to in its place"),
        _ => SandboxError::runtime("protected_path_unusable", message)
            .hint("make the folder writable for yourself, or work on it with `--overlay`"),
    }
}
