//! Finds the changes that a layer would make to its folder: walks the upper directory beside the folder.
//!
//! Both are treated as hostile: no link is followed, and names have no meaning beyond the name. A file with equal content, mode and
//! attributes is no change, regardless of its times. Depth costs no stack and no descriptors: each entry is opened from its
//! directory, and that from its parent. Entries beyond the limits of depth and number are left out.

use super::beneath::{self, Beneath};
use super::change::{Change, Changes, LeftOut, LeftOutWhy};
use super::compare::{Budget, Same, same_content};
use super::descent::Descent;
use super::dot_git::is_dot_git;
use super::error::LayerError;
use super::guard::Guard;
use super::path::RelPath;
use super::repository;
use super::stat::{Kind, Stat};
use super::xattrs::{self, Mark};
use std::collections::HashSet;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

/// Finds the changes that a layer would make to its folder.
pub(super) fn changes(upper: &Beneath, host: &Beneath, guard: &Guard) -> Result<Changes, LayerError> {
    changes_up_to(upper, host, guard, MAX_ENTRIES)
}

/// The same, for the first entries of the layer up to a limit.
pub(super) fn changes_up_to(
    upper: &Beneath,
    host: &Beneath,
    guard: &Guard,
    entries: usize,
) -> Result<Changes, LayerError> {
    let mut walk = Walk {
        uppers: Descent::new(upper),
        hosts: Descent::new(host),
        guard,
        entries,
        found: Changes::default(),
        kept: HashSet::new(),
        todo: Vec::new(),
        budget: Budget::default(),
    };
    walk.todo.push((Vec::new(), HostSide::Merged));
    while let Some((path, side)) = walk.todo.pop() {
        walk.directory(&path, side)?;
    }
    let mut found = walk.found;
    repository::leave_out(&mut found, host)?;
    found.list.sort_by(|a, b| a.path.cmp(&b.path));
    found.left_out.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(found)
}

struct Walk<'a> {
    uppers: Descent<'a>,
    hosts: Descent<'a>,
    guard: &'a Guard,
    found: Changes,
    /// Directories of the host that cannot be removed, because an entry in them stays.
    kept: HashSet<RelPath>,
    /// How many more entries of the layer are read.
    entries: usize,
    /// How much may still be read for comparison.
    budget: Budget,
    /// Directories of the layer that are still to be read.
    todo: Vec<(Vec<u8>, HostSide)>,
}

/// An entry's directories, and its name in both.
#[derive(Clone, Copy)]
struct At<'a> {
    upper: &'a OwnedFd,
    host: Option<&'a OwnedFd>,
    name: &'a [u8],
}

impl At<'_> {
    fn file(&self) -> io::Result<File> {
        beneath::file_at(self.upper, self.name)
    }

    /// The handle to open it on the host, if its directory exists there.
    fn on_host<T>(&self, open: impl FnOnce(&OwnedFd, &[u8]) -> io::Result<T>) -> io::Result<T> {
        open(self.host.ok_or(io::ErrorKind::NotFound)?, self.name)
    }
}

/// The counterpart of a layer's directory on the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HostSide {
    /// A directory that is merged with it.
    Merged,
    /// A directory that it hides.
    Hidden,
    /// No directory.
    Absent,
}

impl Walk<'_> {
    fn directory(&mut self, path: &[u8], side: HostSide) -> Result<(), LayerError> {
        let failed = |source| LayerError::read(path, source);
        let upper = match self.uppers.directory(path) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied && !path.is_empty() => {
                self.leave_out(RelPath::child(b"", path), LeftOutWhy::Unreadable);
                return Ok(());
            }
            opened => opened.map_err(failed)?,
        };
        let host = match side {
            HostSide::Merged | HostSide::Hidden => Some(self.hosts.directory(path).map_err(failed)?),
            HostSide::Absent => None,
        };
        let mark = xattrs::mark(&upper, Mark::Opaque).map_err(failed)?;
        let hidden = side == HostSide::Hidden || mark.as_deref() == Some(b"y");
        let (names, are_all) =
            beneath::first_names(&upper, self.entries.saturating_add(1)).map_err(failed)?;
        for name in &names {
            let child = RelPath::child(path, name);
            if self.entries == 0 {
                self.leave_out(child, LeftOutWhy::TooMany);
                self.todo.clear();
                return Ok(());
            }
            self.entries -= 1;
            let failed = |source| LayerError::read(child.as_bytes(), source);
            let Some(new) = beneath::stat_at(&upper, name).map_err(failed)? else { continue };
            let old = match &host {
                Some(host) => beneath::stat_at(host, name).map_err(failed)?,
                None => None,
            };
            let at = At { upper: &upper, host: host.as_deref(), name };
            self.entry(at, child, old, new, hidden)?;
        }
        debug_assert!(are_all, "one entry more than is looked at was read, and ended the walk");
        if let Some(host) = host.filter(|_| hidden) {
            let names: HashSet<&[u8]> = names.iter().map(Vec::as_slice).collect();
            for name in beneath::names(&host).map_err(failed)? {
                if !names.contains(name.as_slice())
                    && let Some(old) = beneath::stat_at(&host, &name).map_err(failed)?
                {
                    self.gone(RelPath::child(path, &name), old)?;
                }
            }
        }
        Ok(())
    }

    fn entry(
        &mut self,
        at: At<'_>,
        path: RelPath,
        old: Option<Stat>,
        new: Stat,
        hidden: bool,
    ) -> Result<(), LayerError> {
        let failed = |source| LayerError::read(path.as_bytes(), source);
        if new.is_whiteout() || is_marked_whiteout(at, &new).map_err(failed)? {
            return old.map_or(Ok(()), |old| self.gone(path, old));
        }
        let left_out = match new.kind {
            Kind::Directory => return self.subdirectory(at, path, old, new, hidden),
            Kind::File | Kind::Link => None,
            Kind::Fifo => Some(LeftOutWhy::Fifo),
            Kind::Socket => Some(LeftOutWhy::Socket),
            Kind::Device => Some(LeftOutWhy::Device),
        };
        if let Some(why) = left_out {
            self.leave_out(path, why);
            return Ok(());
        }
        if old.is_some_and(|old| old.is_directory()) {
            if self.guard.anchors(&path) || self.guard.protects(&path) {
                self.leave_out(path, LeftOutWhy::Protected);
                return Ok(());
            }
            self.gone_below(&path)?;
        }
        let mut change = Change {
            path,
            from: None,
            old,
            new: Some(new),
            content: true,
            compared: true,
            attributes: false,
            copied: false,
        };
        match (new.kind, old.map(|old| old.kind)) {
            (Kind::Link, Some(Kind::Link)) => {
                let failed = |e| LayerError::read(change.path.as_bytes(), e);
                change.content = beneath::link_at(at.upper, at.name).map_err(failed)?
                    != at.on_host(|host, name| beneath::link_at(host, name)).map_err(failed)?;
                if !change.content {
                    return Ok(());
                }
            }
            (Kind::File, _) => {
                let Some(file) =
                    readable(at.file()).map_err(|e| LayerError::read(change.path.as_bytes(), e))?
                else {
                    self.leave_out(change.path, LeftOutWhy::Unreadable);
                    return Ok(());
                };
                change.copied = has_origin(&file).map_err(|e| LayerError::read(change.path.as_bytes(), e))?;
                if let Some(old) = old.filter(|old| old.kind == Kind::File)
                    && let Some(host) = readable(at.on_host(|host, name| beneath::file_at(host, name)))
                        .map_err(|e| LayerError::read(change.path.as_bytes(), e))?
                {
                    let failed = |e| LayerError::read(change.path.as_bytes(), e);
                    change.attributes =
                        xattrs::own(&file).map_err(failed)? != xattrs::own(&host).map_err(failed)?;
                    if old.size == new.size {
                        let same = same_content(&file, &host, new.size, &mut self.budget).map_err(failed)?;
                        (change.content, change.compared) = (same != Same::Yes, same != Same::Unknown);
                    }
                }
                self.note_set_id(&change);
                let same_mode = old.is_some_and(|old| Some(old.mode) == change.mode());
                if !change.content && !change.attributes && same_mode {
                    return Ok(());
                }
            }
            _ => {}
        }
        self.emit(change);
        Ok(())
    }

    fn subdirectory(
        &mut self,
        at: At<'_>,
        path: RelPath,
        old: Option<Stat>,
        new: Stat,
        hidden: bool,
    ) -> Result<(), LayerError> {
        let failed = |source| LayerError::read(path.as_bytes(), source);
        let merged = old.filter(Stat::is_directory);
        let side = match merged {
            Some(_) if hidden => HostSide::Hidden,
            Some(_) => HostSide::Merged,
            None => HostSide::Absent,
        };
        let mut change = Change {
            path: path.clone(),
            from: None,
            old,
            new: Some(new),
            content: false,
            compared: true,
            attributes: false,
            copied: false,
        };
        let Some(opened) = readable(beneath::directory_at(at.upper, at.name)).map_err(failed)? else {
            // Nor can it be made: its attributes are not known, and its entries would be missing.
            self.leave_out(path, LeftOutWhy::Unreadable);
            return Ok(());
        };
        if path.parts().count() > DEEPEST {
            self.leave_out(path, LeftOutWhy::TooDeep);
            return Ok(());
        }
        if is_dot_git(at.name) {
            // One that was made inside, and is reported as a whole. An empty one was a mount point.
            if !beneath::first_names(&opened, 1).map_err(failed)?.0.is_empty() {
                self.leave_out(path, LeftOutWhy::Repository);
            }
            return Ok(());
        }
        change.copied = has_origin(&opened).map_err(failed)?;
        if merged.is_some() {
            let host = at.on_host(|host, name| beneath::directory_at(host, name)).map_err(failed)?;
            let own = |directory: &OwnedFd| xattrs::own(directory).map_err(failed);
            change.attributes = own(&opened)? != own(&host)?;
        }
        let unchanged = merged.is_some_and(|old| Some(old.mode) == change.mode()) && !change.attributes;
        if merged.is_none() && old.is_some() && (self.guard.anchors(&path) || self.guard.protects(&path)) {
            // A link or a file becomes a directory that git obeys: all of it is left out.
            self.leave_out(path, LeftOutWhy::Protected);
            return Ok(());
        }
        self.note_set_id(&change);
        if !unchanged {
            self.emit(change);
        }
        self.todo.push((path.as_bytes().to_vec(), side));
        Ok(())
    }

    /// A deletion of the layer, with everything below.
    fn gone(&mut self, path: RelPath, old: Stat) -> Result<(), LayerError> {
        if old.is_directory() {
            if self.guard.anchors(&path) || self.guard.protects(&path) {
                self.leave_out(path, LeftOutWhy::Protected);
                return Ok(());
            }
            self.gone_below(&path)?;
            if self.kept.contains(&path) {
                return Ok(());
            }
        }
        self.emit_gone(path, old);
        Ok(())
    }

    fn gone_below(&mut self, path: &RelPath) -> Result<(), LayerError> {
        let mut directories = Vec::new();
        let mut todo = vec![path.clone()];
        while let Some(at) = todo.pop() {
            let failed = |source| LayerError::read(at.as_bytes(), source);
            let directory = self.hosts.directory(at.as_bytes()).map_err(failed)?;
            for name in beneath::names(&directory).map_err(failed)? {
                let child = RelPath::child(at.as_bytes(), &name);
                let Some(old) = beneath::stat_at(&directory, &name).map_err(failed)? else { continue };
                if !old.is_directory() {
                    self.emit_gone(child, old);
                } else if self.guard.anchors(&child) || self.guard.protects(&child) {
                    self.leave_out(child, LeftOutWhy::Protected);
                } else if child.parts().count() > DEEPEST {
                    self.leave_out(child, LeftOutWhy::TooDeep);
                } else {
                    todo.push(child.clone());
                    directories.push((child, old));
                }
            }
        }
        // Entries before their parents, so that one that stays keeps its parents.
        for (path, old) in directories.into_iter().rev() {
            if !self.kept.contains(&path) {
                self.emit_gone(path, old);
            }
        }
        Ok(())
    }

    fn emit_gone(&mut self, path: RelPath, old: Stat) {
        let (content, attributes, copied) = (true, false, false);
        self.emit(Change {
            path,
            from: None,
            old: Some(old),
            new: None,
            content,
            compared: true,
            attributes,
            copied,
        });
    }

    fn emit(&mut self, change: Change) {
        let directory = change.new.is_some_and(|new| new.is_directory());
        if self.guard.protects(&change.path) && directory {
            // Its entries are reported.
        } else if self.guard.protects(&change.path) || (!directory && self.guard.anchors(&change.path)) {
            self.leave_out(change.path, LeftOutWhy::Protected);
        } else {
            self.found.list.push(change);
        }
    }

    fn leave_out(&mut self, path: RelPath, why: LeftOutWhy) {
        self.kept.extend(path.ancestors());
        self.kept.insert(path.clone());
        self.found.left_out.push(LeftOut { path, why });
    }

    fn note_set_id(&mut self, change: &Change) {
        let set_id_bits = change.new.map_or(0, |new| new.mode) & 0o6000;
        if set_id_bits & !change.mode().unwrap_or(0) != 0 {
            self.found.left_out.push(LeftOut { path: change.path.clone(), why: LeftOutWhy::SetId });
        }
    }
}

/// The other form of a whiteout: an empty file with an xattr.
fn is_marked_whiteout(at: At<'_>, new: &Stat) -> io::Result<bool> {
    if new.kind != Kind::File || new.size != 0 {
        return Ok(false);
    }
    match readable(at.file())? {
        Some(file) => Ok(xattrs::mark(file, Mark::Whiteout)?.is_some()),
        None => Ok(false),
    }
}

fn has_origin(file: impl AsFd) -> io::Result<bool> {
    Ok(xattrs::mark(file, Mark::Origin)?.is_some())
}

/// An unreadable one counts as absent; other failures are errors.
fn readable<T>(opened: io::Result<T>) -> io::Result<Option<T>> {
    match opened {
        Ok(opened) => Ok(Some(opened)),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(None),
        Err(error) => Err(error),
    }
}

/// The nesting of directories. Each change has its whole path, so twice the depth costs four times as much; no real project has a
/// tenth of it.
pub(super) const DEEPEST: usize = 1000;
/// Entries of a layer. The largest projects have a tenth of this changed; this many take some minutes and 1 GiB of memory.
const MAX_ENTRIES: usize = 2_000_000;
