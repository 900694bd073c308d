//! Executes the steps of an apply, checks their effects, and undoes them.

use super::journal::Journal;
use super::plan::{Attributes, Seen, Step};
use super::{Point, stage};
use crate::beneath::{self, Beneath, stat_at};
use crate::error::{ConflictWhy, LayerError};
use crate::path::RelPath;
use crate::stat::{Kind, Moment, Stat};
use crate::xattrs;
use belljar_sys::rustix::fs::{
    self, AtFlags, CWD, Mode, OFlags, RenameFlags, Timespec, Timestamps, UTIME_OMIT,
};
use belljar_sys::rustix::io::Errno;
use std::collections::BTreeSet;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

/// The folder and its staging directory.
pub(super) struct Swaps<'a> {
    host: &'a Beneath,
    staging: OwnedFd,
}

/// Why it stopped.
pub(super) enum Stopped {
    Conflict(RelPath, ConflictWhy),
    Failed(LayerError),
}

impl<'a> Swaps<'a> {
    pub(super) fn open(host: &'a Beneath, journal: &Journal) -> io::Result<Swaps<'a>> {
        Ok(Swaps { host, staging: stage::open(host, &journal.staging)? })
    }

    /// All steps, in their order.
    pub(super) fn all(&self, journal: &Journal, reached: &mut dyn FnMut(Point)) -> Result<(), Stopped> {
        for (number, step) in journal.steps.iter().enumerate() {
            reached(Point::Before(number));
            self.one(step)?;
            reached(Point::After(number));
        }
        Ok(())
    }

    /// Fails if a process still wrote to a replaced file, through a descriptor from before.
    pub(super) fn still_as_judged(&self, journal: &Journal) -> Result<(), Stopped> {
        for step in &journal.steps {
            match step {
                Step::Swap { path, slot, old, .. } | Step::Take { path, slot, old } => {
                    if !self.holds(*slot, old).map_err(|source| failed(&path.0, "checked", source))? {
                        return Err(Stopped::Conflict(path.0.clone(), ConflictWhy::Meanwhile));
                    }
                }
                Step::Put { .. } | Step::Settle { .. } => {}
            }
        }
        Ok(())
    }

    /// Syncs the directories before the replaced files are removed.
    pub(super) fn on_disk(&self, journal: &Journal) -> Result<(), Stopped> {
        let parents: BTreeSet<&[u8]> = journal.steps.iter().map(|step| step.path().parent()).collect();
        let synced = || -> io::Result<()> {
            if parents.len() > FEW {
                return Ok(fs::syncfs(&self.staging)?);
            }
            for parent in &parents {
                match self.host.directory(parent) {
                    Ok(directory) => fs::fsync(directory)?,
                    // It was removed with its parent, or only other users may open it.
                    Err(error) if beneath::is_absent(&error) => {}
                    Err(_) => return Ok(fs::syncfs(&self.staging)?),
                }
            }
            Ok(())
        };
        synced().map_err(|source| {
            Stopped::Failed(LayerError::Apply { path: "the folder".into(), step: "written to disk", source })
        })
    }

    /// Undoes the steps in reverse. Returns the paths that were left alone because they were changed on the host since.
    pub(super) fn undo(&self, journal: &Journal) -> Result<Vec<RelPath>, (RelPath, io::Error)> {
        let mut left = Vec::new();
        for step in journal.steps.iter().rev() {
            let undone = match step {
                Step::Put { path, slot, new } => self.undo_put(&path.0, *slot, new),
                Step::Swap { path, slot, new, old } => self.undo_swap(&path.0, *slot, new, old),
                Step::Take { path, slot, old } => self.undo_take(&path.0, *slot, old),
                Step::Settle { path, old, attributes, .. } => {
                    let attributes = attributes.as_ref().map(|Attributes { old, .. }| old);
                    let (mode, modified) =
                        (old.mode, Some(old.modified).filter(|_| old.kind != Kind::Directory));
                    self.settle(&path.0, old.inode, mode, modified, attributes).map(|_| Undone::Yes)
                }
            };
            match undone {
                Ok(Undone::Yes) => {}
                Ok(Undone::Left) => left.push(step.path().clone()),
                Err(error) => return Err((step.path().clone(), error)),
            }
        }
        left.sort();
        Ok(left)
    }

    /// After that: entries are as judged, except for their ctime, which our renames changed.
    pub(super) fn restored(&self, journal: &Journal) -> Vec<(RelPath, Seen)> {
        let olds = journal.steps.iter().filter_map(|step| match step {
            Step::Swap { path, old, .. } | Step::Take { path, old, .. } | Step::Settle { path, old, .. } => {
                Some((&path.0, old))
            }
            Step::Put { .. } => None,
        });
        let restored = olds.filter_map(|(path, old)| {
            let now = self.host.stat(path).ok()??;
            (old.is_same(&now) && old.changed != now.changed).then(|| (path.clone(), Seen::of(&now)))
        });
        restored.collect()
    }

    fn one(&self, step: &Step) -> Result<(), Stopped> {
        match step {
            Step::Put { path, slot, .. } => self.put(&path.0, *slot),
            Step::Swap { path, slot, old, .. } => self.swap(&path.0, *slot, old),
            Step::Take { path, slot, old } => self.take(&path.0, *slot, old),
            Step::Settle { path, old, mode, modified, attributes } => {
                if old.kind != Kind::Directory {
                    self.expect(&path.0, old)?;
                }
                let attributes = attributes.as_ref().map(|Attributes { new, .. }| new);
                match self.settle(&path.0, old.inode, *mode, *modified, attributes) {
                    Ok(true) => Ok(()),
                    Ok(false) => Err(Stopped::Conflict(path.0.clone(), ConflictWhy::Meanwhile)),
                    Err(source) => Err(failed(&path.0, "given its permissions", source)),
                }
            }
        }
    }

    fn put(&self, path: &RelPath, slot: usize) -> Result<(), Stopped> {
        let parent = self.parent(path)?;
        let slot = slot.to_string();
        match fs::renameat_with(&self.staging, slot.as_str(), &parent, path.name(), RenameFlags::NOREPLACE) {
            Ok(()) => Ok(()),
            Err(Errno::EXIST) => Err(Stopped::Conflict(path.clone(), ConflictWhy::Meanwhile)),
            Err(error) => Err(failed(path, "put in place", error.into())),
        }
    }

    fn swap(&self, path: &RelPath, slot: usize, old: &Seen) -> Result<(), Stopped> {
        self.expect(path, old)?;
        let parent = self.parent(path)?;
        let name = slot.to_string();
        let exchange =
            || fs::renameat_with(&self.staging, name.as_str(), &parent, path.name(), RenameFlags::EXCHANGE);
        match exchange() {
            Ok(()) => {}
            Err(Errno::NOENT) => return Err(Stopped::Conflict(path.clone(), ConflictWhy::Meanwhile)),
            Err(error) => return Err(failed(path, "replaced", error.into())),
        }
        // The file that was there the moment before.
        if self.holds(slot, old).map_err(|source| failed(path, "checked", source))? {
            return Ok(());
        }
        exchange().map_err(|error| failed(path, "put back", error.into()))?;
        Err(Stopped::Conflict(path.clone(), ConflictWhy::Meanwhile))
    }

    fn take(&self, path: &RelPath, slot: usize, old: &Seen) -> Result<(), Stopped> {
        self.expect(path, old)?;
        let parent = self.parent(path)?;
        let name = slot.to_string();
        match fs::renameat_with(&parent, path.name(), &self.staging, name.as_str(), RenameFlags::NOREPLACE) {
            Ok(()) => {}
            Err(Errno::NOENT) => return Err(Stopped::Conflict(path.clone(), ConflictWhy::Meanwhile)),
            Err(error) => return Err(failed(path, "removed", error.into())),
        }
        if self.holds(slot, old).map_err(|source| failed(path, "checked", source))? {
            return Ok(());
        }
        fs::renameat_with(&self.staging, name.as_str(), &parent, path.name(), RenameFlags::NOREPLACE)
            .map_err(|error| failed(path, "put back", error.into()))?;
        Err(Stopped::Conflict(path.clone(), ConflictWhy::Meanwhile))
    }

    /// Sets permissions, attributes and time of the entry, if it is still the same. Returns whether it is.
    fn settle(
        &self,
        path: &RelPath,
        inode: u64,
        mode: u32,
        modified: Option<Moment>,
        attributes: Option<&Vec<(Vec<u8>, Vec<u8>)>>,
    ) -> io::Result<bool> {
        let parent = match self.host.anchor(path.parent()) {
            Err(error) if is_in_the_way(&error) => return Ok(false),
            parent => parent?,
        };
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let held = match fs::openat(&parent, path.name(), flags, Mode::empty()) {
            Err(Errno::NOENT) => return Ok(false),
            held => held?,
        };
        let found = beneath::stat_of(&held)?;
        if found.inode != inode || found.kind == Kind::Link {
            return Ok(false);
        }
        if let Some(attributes) = attributes {
            let directory = self.host.directory(path.as_bytes())?;
            xattrs::make(directory, &attributes.iter().cloned().collect())?;
        }
        // One open file, even if its name leads elsewhere by now.
        let this = format!("/proc/self/fd/{}", held.as_raw_fd());
        if found.mode != mode {
            fs::chmod(&this, Mode::from_raw_mode(mode))?;
        }
        if let Some(Moment(seconds, nanos)) = modified.filter(|modified| *modified != found.modified) {
            let last_access = Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT };
            let last_modification = Timespec { tv_sec: seconds, tv_nsec: nanos.into() };
            fs::utimensat(CWD, &this, &Timestamps { last_access, last_modification }, AtFlags::empty())?;
        }
        Ok(true)
    }

    fn undo_put(&self, path: &RelPath, slot: usize, new: &Seen) -> io::Result<Undone> {
        let slot = slot.to_string();
        if stat_at(&self.staging, slot.as_bytes())?.is_some() {
            // Never put.
            return Ok(Undone::Yes);
        }
        let Some((parent, found)) = self.found(path)? else { return Ok(Undone::Yes) };
        if !new.is_same(&found) || !self.is_bare(path, &found)? {
            return Ok(Undone::Left);
        }
        fs::renameat_with(&parent, path.name(), &self.staging, slot.as_str(), RenameFlags::NOREPLACE)?;
        Ok(Undone::Yes)
    }

    fn undo_swap(&self, path: &RelPath, slot: usize, new: &Seen, old: &Seen) -> io::Result<Undone> {
        let name = slot.to_string();
        let replaced = stat_at(&self.staging, name.as_bytes())?.filter(|stat| stat.inode == old.inode);
        if replaced.is_none() {
            // Never swapped.
            return Ok(Undone::Yes);
        }
        let Some((parent, found)) = self.found(path)? else { return Ok(Undone::Left) };
        if !new.is_same(&found) || !self.is_bare(path, &found)? {
            return Ok(Undone::Left);
        }
        fs::renameat_with(&self.staging, name.as_str(), &parent, path.name(), RenameFlags::EXCHANGE)?;
        Ok(Undone::Yes)
    }

    fn undo_take(&self, path: &RelPath, slot: usize, old: &Seen) -> io::Result<Undone> {
        let name = slot.to_string();
        if stat_at(&self.staging, name.as_bytes())?.is_none_or(|stat| stat.inode != old.inode) {
            return Ok(Undone::Yes);
        }
        let parent = match self.host.anchor(path.parent()) {
            Err(error) if is_in_the_way(&error) => return Ok(Undone::Left),
            parent => parent?,
        };
        match fs::renameat_with(&self.staging, name.as_str(), &parent, path.name(), RenameFlags::NOREPLACE) {
            Ok(()) => Ok(Undone::Yes),
            Err(Errno::EXIST) => Ok(Undone::Left),
            Err(error) => Err(error.into()),
        }
    }

    /// The present entry, with its parent directory.
    fn found(&self, path: &RelPath) -> io::Result<Option<(OwnedFd, Stat)>> {
        let parent = match self.host.anchor(path.parent()) {
            Err(error) if is_in_the_way(&error) => return Ok(None),
            parent => parent?,
        };
        Ok(stat_at(&parent, path.name())?.map(|stat| (parent, stat)))
    }

    /// Whether removing it would remove nothing else: a file, or an empty directory.
    fn is_bare(&self, path: &RelPath, found: &Stat) -> io::Result<bool> {
        match found.kind {
            Kind::Directory => beneath::is_empty(self.host.directory(path.as_bytes())?),
            _ => Ok(true),
        }
    }

    /// Whether a slot has the file that was judged.
    fn holds(&self, slot: usize, old: &Seen) -> io::Result<bool> {
        let name = slot.to_string();
        let same = stat_at(&self.staging, name.as_bytes())?.is_some_and(|stat| old.is_same(&stat));
        if !same || old.kind != Kind::Directory {
            return Ok(same);
        }
        // Its entries were removed before; an entry that is there now came meanwhile.
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match fs::openat(&self.staging, name.as_str(), flags, Mode::empty()) {
            Ok(directory) => beneath::is_empty(directory),
            Err(error) => Err(error.into()),
        }
    }

    fn expect(&self, path: &RelPath, old: &Seen) -> Result<(), Stopped> {
        let found = self.host.stat(path).map_err(|source| unreachable(path, source))?;
        match found {
            Some(stat) if old.is_untouched(&stat) => Ok(()),
            _ => Err(Stopped::Conflict(path.clone(), ConflictWhy::Meanwhile)),
        }
    }

    fn parent(&self, path: &RelPath) -> Result<OwnedFd, Stopped> {
        self.host.anchor(path.parent()).map_err(|source| unreachable(path, source))
    }
}

/// The folder's entries that were put, swapped or settled.
pub(super) fn applied(journal: &Journal, host: &Beneath) -> Vec<(RelPath, Seen)> {
    let put = journal.steps.iter().filter_map(|step| match step {
        Step::Put { path, new, .. } | Step::Swap { path, new, .. } => Some((&path.0, new)),
        Step::Settle { path, old, .. } => Some((&path.0, old)),
        Step::Take { .. } => None,
    });
    let now = put.filter_map(|(path, seen)| {
        let now = host.stat(path).ok()??;
        // A file that was already replaced on the host is not ours.
        (now.inode == seen.inode && now.modified == seen.modified && now.kind != Kind::Directory)
            .then(|| (path.clone(), Seen::of(&now)))
    });
    now.collect()
}

enum Undone {
    Yes,
    /// It was changed on the host since.
    Left,
}

fn failed(path: &RelPath, step: &'static str, source: io::Error) -> Stopped {
    Stopped::Failed(LayerError::apply(path, step, source))
}

/// Links and other filesystems on the way were put there on the host meanwhile.
fn unreachable(path: &RelPath, source: io::Error) -> Stopped {
    if is_in_the_way(&source) {
        return Stopped::Conflict(path.clone(), ConflictWhy::InTheWay);
    }
    failed(path, "reached", source)
}

fn is_in_the_way(error: &io::Error) -> bool {
    let codes = [Errno::LOOP, Errno::XDEV, Errno::NOTDIR, Errno::NOENT].map(Errno::raw_os_error);
    error.raw_os_error().is_some_and(|code| codes.contains(&code))
}

const FEW: usize = 32;
