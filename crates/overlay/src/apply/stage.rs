//! Copies all new content into one directory on the folder's filesystem, and makes the list of steps.

use super::Point;
use super::choose::Chosen;
use super::journal::Journal;
use super::plan::{Attributes, JournalPath, Kinded, Seen, Step, order};
use crate::beneath::{self, Beneath};
use crate::change::Change;
use crate::error::LayerError;
use crate::stat::{Kind, Stat};
use crate::xattrs::{self, AccessList};
use belljar_sys::rustix::fs::{
    self, AtFlags, Gid, Mode, OFlags, SeekFrom, Timespec, Timestamps, UTIME_OMIT, Uid,
};
use belljar_sys::rustix::io::Errno;
use belljar_sys::rustix::process::geteuid;
use std::cell::RefCell;
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};

/// Copies the files, and fills in the journal's steps. On disk when it returns.
pub(super) fn stage(
    place: OwnedFd,
    journal: &mut Journal,
    chosen: &Chosen,
    upper: &Beneath,
    host: &Beneath,
    reached: &mut dyn FnMut(Point),
) -> Result<(), LayerError> {
    let name = journal.staging.clone();
    let failed = |source| not_made(&name, source);
    let owner = owner(host).map_err(failed)?;
    let staging = Staging { place, upper, host, owner, lists: RefCell::default() };
    for (slot, kinded) in order(&chosen.list).into_iter().enumerate() {
        reached(Point::Staging(slot));
        let (change, steps) = match kinded {
            Kinded::Written(change) => (change, staging.write(change, slot)),
            Kinded::Taken(change) => (change, Ok(staging.take(change, slot))),
            Kinded::Settled(change) => (change, staging.settle(change)),
        };
        journal.steps.extend(steps.map_err(|source| LayerError::apply(&change.path, "copied", source))?);
    }
    // New directories get their permissions when they are complete, and before their parents get theirs.
    let (settles, mut steps): (Vec<Step>, Vec<Step>) =
        journal.steps.drain(..).partition(|step| matches!(step, Step::Settle { modified: Some(_), .. }));
    let last = steps.iter().rposition(|step| !matches!(step, Step::Settle { .. })).map_or(0, |last| last + 1);
    steps.splice(last..last, settles.into_iter().rev());
    journal.steps = steps;
    staging.on_disk(journal.steps.len()).map_err(failed)
}

/// Fails if the staging directory's name is taken. Such an entry is not ours, and is not touched.
pub(super) fn is_free(host: &Beneath, name: &str) -> Result<(), LayerError> {
    match beneath::stat_at(host.root(), name.as_bytes()) {
        Ok(None) => Ok(()),
        Ok(Some(_)) => {
            let why = "something that belljar did not make is there; move it away";
            Err(not_made(name, io::Error::new(io::ErrorKind::AlreadyExists, why)))
        }
        Err(source) => Err(not_made(name, source)),
    }
}

/// Makes the staging directory. If this fails, an entry of that name belongs to another process.
pub(super) fn make(host: &Beneath, name: &str) -> Result<OwnedFd, LayerError> {
    fs::mkdirat(host.root(), name, Mode::RWXU).map_err(|error| not_made(name, error.into()))?;
    open(host, name).map_err(|source| {
        // Our directory is empty; a non-empty one was put in its place by another process.
        let _ = fs::unlinkat(host.root(), name, AtFlags::REMOVEDIR);
        not_made(name, source)
    })
}

fn not_made(name: &str, source: io::Error) -> LayerError {
    LayerError::Apply { path: format!("`{name}`"), step: "made in the folder", source }
}

/// The staging directory, if it is ours: another sandbox may work in the folder itself, and put its own directory there.
pub(super) fn open(host: &Beneath, name: &str) -> io::Result<OwnedFd> {
    let place = host.directory(name.as_bytes())?;
    let found = beneath::stat_of(&place)?;
    if found.uid != geteuid().as_raw() || found.mode & 0o077 != 0 {
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, "another process put a directory there"));
    }
    Ok(place)
}

struct Staging<'a> {
    place: OwnedFd,
    upper: &'a Beneath,
    host: &'a Beneath,
    /// The owner of applied files; `None` (our own user) unless we are root.
    owner: Option<(Uid, Gid)>,
    /// Default access lists of folders: who may use the files made in them.
    lists: RefCell<HashMap<Vec<u8>, Option<Vec<u8>>>>,
}

impl Staging<'_> {
    fn write(&self, change: &Change, slot: usize) -> io::Result<Vec<Step>> {
        let name = slot.to_string();
        let new = change.new.ok_or(Errno::INVAL)?;
        let mode = change.mode().unwrap_or(0);
        match new.kind {
            Kind::File => self.file(change, &new, &name, mode)?,
            Kind::Link => self.link(change, &new, &name)?,
            Kind::Directory => self.directory(change, &name, mode)?,
            Kind::Fifo | Kind::Socket | Kind::Device => return Err(Errno::INVAL.into()),
        }
        let staged = beneath::stat_at(&self.place, name.as_bytes())?.ok_or(Errno::NOENT)?;
        let (path, staged) = (JournalPath(change.path.clone()), Seen::of(&staged));
        let step = match change.old {
            None => Step::Put { path, slot, new: staged },
            Some(old) => Step::Swap { path, slot, new: staged, old: Seen::of(&old) },
        };
        let mut steps = vec![step];
        if new.kind == Kind::Directory {
            let (path, modified) = (JournalPath(change.path.clone()), Some(new.modified));
            steps.push(Step::Settle { path, old: staged, mode, modified, attributes: None });
        }
        Ok(steps)
    }

    fn take(&self, change: &Change, slot: usize) -> Vec<Step> {
        let path = JournalPath(change.path.clone());
        change.old.iter().map(|old| Step::Take { path: path.clone(), slot, old: Seen::of(old) }).collect()
    }

    fn settle(&self, change: &Change) -> io::Result<Vec<Step>> {
        let (Some(old), Some(mode)) = (change.old, change.mode()) else { return Ok(Vec::new()) };
        let attributes = if change.attributes {
            let of = |side: &Beneath| -> io::Result<Vec<_>> {
                Ok(xattrs::own(side.directory(change.path.as_bytes())?)?.into_iter().collect())
            };
            Some(Attributes { old: of(self.host)?, new: of(self.upper)? })
        } else {
            None
        };
        let (path, old) = (JournalPath(change.path.clone()), Seen::of(&old));
        Ok(vec![Step::Settle { path, old, mode, modified: None, attributes }])
    }

    fn file(&self, change: &Change, new: &Stat, name: &str, mode: u32) -> io::Result<()> {
        let from = self.upper.file(&change.path)?;
        if beneath::stat_of(&from)?.kind != Kind::File {
            return Err(Errno::INVAL.into());
        }
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let to: File = fs::openat(&self.place, name, flags, Mode::RUSR | Mode::WUSR)?.into();
        copy(&from, &to, new.size)?;
        xattrs::give(&to, &xattrs::own(&from)?)?;
        if let Some((uid, gid)) = self.owner {
            fs::fchown(&to, Some(uid), Some(gid))?;
        }
        let list = match change.old.filter(|old| old.kind == Kind::File) {
            Some(_) => self.host.file(&change.path).and_then(|old| xattrs::access_list(old, AccessList::Own)),
            None => self.inherited_list(change.path.parent()),
        };
        // An unreadable one has no list that matters.
        xattrs::make_access_list(&to, AccessList::Own, list.unwrap_or_default().as_deref())?;
        fs::fchmod(&to, Mode::from_raw_mode(mode))?;
        Ok(fs::futimens(&to, &times(new))?)
    }

    /// The list that the kernel would give a new file in that directory. A new directory inherits it from its parent.
    fn inherited_list(&self, folder: &[u8]) -> io::Result<Option<Vec<u8>>> {
        if let Some(list) = self.lists.borrow().get(folder) {
            return Ok(list.clone());
        }
        let list = match self.host.directory(folder) {
            Ok(directory) => xattrs::access_list(directory, AccessList::Default)?,
            // It is new itself, or replaces a file.
            Err(error) if !folder.is_empty() && beneath::is_absent(&error) => {
                let around =
                    folder.iter().rposition(|byte| *byte == b'/').map_or(&[][..], |end| &folder[..end]);
                self.inherited_list(around)?
            }
            Err(error) => return Err(error),
        };
        self.lists.borrow_mut().insert(folder.to_vec(), list.clone());
        Ok(list)
    }

    fn link(&self, change: &Change, new: &Stat, name: &str) -> io::Result<()> {
        fs::symlinkat(self.upper.link(&change.path)?, &self.place, name)?;
        if let Some((uid, gid)) = self.owner {
            fs::chownat(&self.place, name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)?;
        }
        Ok(fs::utimensat(&self.place, name, &times(new), AtFlags::SYMLINK_NOFOLLOW)?)
    }

    fn directory(&self, change: &Change, name: &str, mode: u32) -> io::Result<()> {
        fs::mkdirat(&self.place, name, Mode::RWXU)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let made = fs::openat(&self.place, name, flags, Mode::empty())?;
        xattrs::give(&made, &xattrs::own(self.upper.directory(change.path.as_bytes())?)?)?;
        if let Some((uid, gid)) = self.owner {
            fs::fchown(&made, Some(uid), Some(gid))?;
        }
        let list = self.inherited_list(change.path.parent()).unwrap_or_default();
        for which in [AccessList::Own, AccessList::Default] {
            xattrs::make_access_list(&made, which, list.as_deref())?;
        }
        // Writable until it is complete.
        Ok(fs::fchmod(&made, Mode::from_raw_mode(mode | 0o700))?)
    }

    /// A few files are synced one by one, many with their whole filesystem.
    fn on_disk(&self, steps: usize) -> io::Result<()> {
        if steps > FEW {
            return Ok(fs::syncfs(&self.place)?);
        }
        for name in beneath::names(&self.place)? {
            let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
            match fs::openat(&self.place, name.as_slice(), flags, Mode::empty()) {
                Ok(open) => fs::fsync(open)?,
                // A link, or a file that its owner may not read: then sync the whole filesystem.
                Err(Errno::LOOP | Errno::ACCESS) => return Ok(fs::syncfs(&self.place)?),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(fs::fsync(&self.place)?)
    }
}

/// Copies the content; holes stay holes, so that a sparse file stays sparse.
fn copy(from: &File, to: &File, size: u64) -> io::Result<()> {
    // As a reflink, if the filesystem supports it.
    if fs::ioctl_ficlone(to, from).is_ok() {
        return Ok(());
    }
    fs::ftruncate(to, size)?;
    let mut at = 0;
    while at < size {
        let start = match fs::seek(from, SeekFrom::Data(at)) {
            Ok(start) => start,
            Err(Errno::NXIO) => return Ok(()),
            Err(_) => at,
        };
        let end = fs::seek(from, SeekFrom::Hole(start)).unwrap_or(size).min(size);
        if start >= end {
            return Ok(());
        }
        fs::seek(from, SeekFrom::Start(start))?;
        fs::seek(to, SeekFrom::Start(start))?;
        let copied = transfer(from, to, end - start)?;
        if copied < end - start {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        at = end;
    }
    Ok(())
}

fn transfer(from: &File, to: &File, length: u64) -> io::Result<u64> {
    let mut limited = from.take(length);
    let mut to = to;
    let copied = io::copy(&mut limited, &mut to)?;
    to.flush()?;
    Ok(copied)
}

fn owner(host: &Beneath) -> io::Result<Option<(Uid, Gid)>> {
    if !geteuid().is_root() {
        return Ok(None);
    }
    let folder = beneath::stat_of(host.root().as_fd())?;
    Ok(Some((Uid::from_raw(folder.uid), Gid::from_raw(folder.gid))))
}

/// Only the modification time.
fn times(new: &Stat) -> Timestamps {
    Timestamps {
        last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        last_modification: Timespec { tv_sec: new.modified.0, tv_nsec: new.modified.1.into() },
    }
}

const FEW: usize = 32;
