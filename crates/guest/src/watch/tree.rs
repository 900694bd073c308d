//! The directories that are watched, by the numbers that the kernel knows them by, and what happened in them.
//!
//! A directory that appears is watched first and listed then, so that nothing made in between is missed; what was made in
//! between is in the list and comes as an event too, and is told once. One that is moved is forgotten under its old name
//! and appears under its new one. No link is followed: directories are opened one name at a time.

use crate::files::{PathRoot, is_proc, list};
use belljar_sys::rustix::fd::{AsRawFd, OwnedFd};
use belljar_sys::rustix::fs::inotify::{self, CreateFlags, Event, ReadFlags, WatchFlags};
use belljar_sys::rustix::fs::{Mode, OFlags, fstat, openat};
use belljar_sys::rustix::io::{Errno, fcntl_dupfd_cloexec};
use belljar_wire::message::{Bytes, Change, ChangeKind, EntryKind};
use std::collections::{HashMap, HashSet, VecDeque};

pub(super) struct Tree<'p> {
    kernel: OwnedFd,
    place: &'p PathRoot,
    path: &'p str,
    /// Device and inode. Never held open: then the kernel would not say that it was removed.
    root: (u64, u64),
    root_watch: i32,
    recursive: bool,
    /// Relative to the root.
    directories: HashMap<i32, Vec<u8>>,
    /// Found in a list: an event that says the same may still be on its way.
    listed: HashSet<Vec<u8>>,
    changes: Vec<Change>,
    is_over: bool,
}

impl<'p> Tree<'p> {
    pub(super) fn watch(place: &'p PathRoot, path: &'p str, recursive: bool) -> Result<Tree<'p>, Errno> {
        let root = place.directory(path)?;
        if is_proc(&root)? {
            return Err(Errno::OPNOTSUPP);
        }
        let kernel = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        let root_watch = add(&kernel, &root)?;
        let mut tree = Tree {
            kernel,
            place,
            path,
            root: identity(&root)?,
            root_watch,
            recursive,
            directories: HashMap::from([(root_watch, Vec::new())]),
            listed: HashSet::new(),
            changes: Vec::new(),
            is_over: false,
        };
        if recursive {
            tree.look_below(Vec::new(), Tell::Nothing);
        }
        Ok(tree)
    }

    /// Where the kernel's events are read.
    pub(super) fn events(&self) -> Result<OwnedFd, Errno> {
        fcntl_dupfd_cloexec(&self.kernel, 0)
    }

    /// The directory itself is gone.
    pub(super) fn is_over(&self) -> bool {
        self.is_over
    }

    /// What has happened, if it is much, or the last of it.
    pub(super) fn take(&mut self) -> Vec<Change> {
        if self.changes.len() >= MUCH || self.is_over { self.take_all() } else { Vec::new() }
    }

    pub(super) fn take_all(&mut self) -> Vec<Change> {
        std::mem::take(&mut self.changes)
    }

    /// The kernel has no more events: whatever was listed has been said.
    pub(super) fn caught_up(&mut self) {
        self.listed.clear();
    }

    pub(super) fn understand(&mut self, event: &Event<'_>) {
        let what = event.events();
        if what.contains(ReadFlags::QUEUE_OVERFLOW) {
            self.tell(ChangeKind::Overflow, Vec::new());
            if self.recursive {
                self.look_below(Vec::new(), Tell::Nothing);
            }
            return;
        }
        let is_root = event.wd() == self.root_watch;
        let Some(directory) = self.directories.get(&event.wd()) else { return };
        let Some(name) = event.file_name() else {
            match what {
                _ if what.contains(ReadFlags::IGNORED) => {
                    self.directories.remove(&event.wd());
                    self.end(is_root);
                }
                _ if what.intersects(ReadFlags::DELETE_SELF | ReadFlags::MOVE_SELF) => self.end(is_root),
                _ if is_root && what.contains(ReadFlags::ATTRIB) => {
                    self.tell(ChangeKind::Modified, Vec::new())
                }
                // Its own directory says it as well.
                _ => {}
            }
            return;
        };
        let path = join(directory, name.to_bytes());
        let is_directory = what.contains(ReadFlags::ISDIR) && self.recursive;
        if what.intersects(ReadFlags::CREATE | ReadFlags::MOVED_TO) {
            if !self.listed.remove(&path) {
                self.tell(ChangeKind::Created, path.clone());
                if is_directory {
                    self.look_below(path, Tell::Everything);
                }
            }
        } else if what.intersects(ReadFlags::DELETE | ReadFlags::MOVED_FROM) {
            self.listed.remove(&path);
            if is_directory {
                self.forget(&path);
            }
            self.tell(ChangeKind::Removed, path);
        } else if what.intersects(ReadFlags::MODIFY | ReadFlags::ATTRIB) {
            self.tell(ChangeKind::Modified, path);
        }
    }

    fn end(&mut self, is_root: bool) {
        if is_root && !self.is_over {
            self.tell(ChangeKind::Removed, Vec::new());
            self.is_over = true;
        }
    }

    /// The same twice in a row says nothing new.
    fn tell(&mut self, kind: ChangeKind, path: Vec<u8>) {
        let change = Change { kind, path: Bytes(path) };
        if self.changes.last() != Some(&change) {
            self.changes.push(change);
        }
    }

    /// Watches a directory and all below it, what is near first: there may be more than can be watched.
    fn look_below(&mut self, path: Vec<u8>, tell: Tell) {
        let mut reported = 0;
        let top = path.clone();
        let mut waiting = VecDeque::from([path]);
        while let Some(path) = waiting.pop_front() {
            let entries = match self.look_at(&path) {
                Ok(entries) => entries,
                // The kernel's own limit, or ours: the next one would be too much as well.
                Err(Errno::NOSPC | Errno::NOMEM | Errno::MFILE) => {
                    return self.tell(ChangeKind::Overflow, top);
                }
                Err(Errno::NAMETOOLONG) => {
                    self.tell(ChangeKind::Overflow, path);
                    continue;
                }
                // It is gone again, or may not be read.
                Err(_) => continue,
            };
            for (name, kind) in entries {
                let below = join(&path, &name);
                if tell == Tell::Everything {
                    reported += 1;
                    if reported > MAX_REPORTED {
                        return self.tell(ChangeKind::Overflow, top);
                    }
                    self.listed.insert(below.clone());
                    self.tell(ChangeKind::Created, below.clone());
                }
                if kind == EntryKind::Directory {
                    waiting.push_back(below);
                }
            }
        }
    }

    /// Watches one directory, and then lists it.
    fn look_at(&mut self, path: &[u8]) -> Result<Vec<(Vec<u8>, EntryKind)>, Errno> {
        if path.len() > MAX_PATH_BYTES {
            return Err(Errno::NAMETOOLONG);
        }
        let directory = self.open(path)?;
        if is_proc(&directory)? {
            return Ok(Vec::new());
        }
        if self.directories.len() >= DIRECTORIES && !path.is_empty() {
            return Err(Errno::NOSPC);
        }
        let watch = add(&self.kernel, &directory)?;
        self.directories.insert(watch, path.to_vec());
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let entries = list(openat(&directory, ".", flags, Mode::empty())?)?;
        Ok(entries.into_iter().map(|entry| (entry.name.0, entry.kind)).collect())
    }

    fn open(&self, path: &[u8]) -> Result<OwnedFd, Errno> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut directory = self.place.directory(self.path)?;
        if identity(&directory)? != self.root {
            return Err(Errno::STALE);
        }
        for name in path.split(|byte| *byte == b'/').filter(|name| !name.is_empty()) {
            directory = openat(&directory, name, flags, Mode::empty())?;
        }
        Ok(directory)
    }

    /// What was below this is not any more, or not by this name.
    fn forget(&mut self, path: &[u8]) {
        let kernel = &self.kernel;
        self.directories.retain(|watch, known| {
            let below =
                known.strip_prefix(path).is_some_and(|rest| matches!(rest.first(), None | Some(b'/')));
            if below {
                // Of what was removed the kernel has forgotten it already.
                let _ = inotify::remove_watch(kernel, *watch);
            }
            !below
        });
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Tell {
    /// It was there before.
    Nothing,
    /// It is all new.
    Everything,
}

fn identity(directory: &OwnedFd) -> Result<(u64, u64), Errno> {
    let found = fstat(directory)?;
    Ok((found.st_dev, found.st_ino))
}

/// The kernel takes a path; this one cannot be diverted, since it goes by the descriptor.
fn add(kernel: &OwnedFd, directory: &OwnedFd) -> Result<i32, Errno> {
    inotify::add_watch(kernel, format!("/proc/self/fd/{}", directory.as_raw_fd()), WATCHED)
}

fn join(directory: &[u8], name: &[u8]) -> Vec<u8> {
    if directory.is_empty() { name.to_vec() } else { [directory, b"/", name].concat() }
}

const WATCHED: WatchFlags = WatchFlags::CREATE
    .union(WatchFlags::DELETE)
    .union(WatchFlags::MODIFY)
    .union(WatchFlags::ATTRIB)
    .union(WatchFlags::MOVED_FROM)
    .union(WatchFlags::MOVED_TO)
    .union(WatchFlags::DELETE_SELF)
    .union(WatchFlags::MOVE_SELF)
    .union(WatchFlags::EXCL_UNLINK)
    .union(WatchFlags::ONLYDIR);
/// The kernel keeps about a kibibyte for each.
const DIRECTORIES: usize = 10_000;
/// What one directory that appears may tell of what is in it.
const MAX_REPORTED: usize = 10_000;
/// After so many changes the host hears of them, even if there are more.
const MUCH: usize = 1024;
/// PATH_MAX: no program can name a deeper path.
const MAX_PATH_BYTES: usize = 4096;

#[cfg(test)]
#[path = "tree_tests.rs"]
mod tests;
