//! The changes of a sandbox that worked in the folder itself: a look before, a look after, and the differences.
//!
//! Only metadata from the kernel is compared (kind, size, inode, change time, which no program can set); no content is read. A
//! folder is treated as hostile: no link is followed, no other filesystem entered. Of a git directory only the refs of branches and
//! tags are compared; paths that the sandbox could not change are skipped. The engine does this on request.

use belljar_overlay::beneath::{self, Beneath};
use belljar_overlay::{Kind, Moment, RelPath, Stat};
use belljar_spec::workspace::{Shielded, View};
use serde::Serialize;
use std::collections::{BTreeMap, HashSet};
use std::path::PathBuf;

/// The state of a folder.
#[derive(Debug)]
pub struct Look {
    folder: PathBuf,
    /// Paths that the sandbox could not change.
    held: HashSet<RelPath>,
    /// `None`: too many files.
    seen: Option<Seen>,
}

/// The differences.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Compared {
    /// These changes.
    Touched(Touched),
    /// There were too many files before to compare.
    TooMany,
}

/// The touched files.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Touched {
    pub added: u64,
    /// Including changes of type or mode.
    pub modified: u64,
    pub deleted: u64,
    /// The first of them, ordered by name.
    pub paths: Vec<TouchedPath>,
    /// There are too many new files: none of them is in `added`. All changes of earlier files are reported.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub more: bool,
}

/// One touched path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TouchedPath {
    pub path: RelPath,
    pub how: How,
}

/// The kind of change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum How {
    Added,
    Modified,
    Deleted,
}

/// The files that were seen, by path.
type Seen = BTreeMap<RelPath, Entry>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Entry {
    /// With entries: any work in it changes its metadata, and the changed entries are reported instead.
    Directory,
    /// Empty, or with only ignored entries.
    Empty,
    Other {
        kind: Kind,
        size: u64,
        inode: u64,
        changed: Moment,
    },
}

impl Look {
    /// Looks at the folder of a view.
    pub fn at(view: &View) -> Look {
        let is_held = |what: &Shielded| !matches!(what, Shielded::Anchored | Shielded::Watched);
        let held = view.shields.iter().filter(|shield| is_held(&shield.what));
        let held = held.filter_map(|shield| RelPath::understand(shield.path.as_ref())).collect();
        let mut look = Look { folder: view.folder.clone(), held, seen: None };
        look.seen = look.again();
        look
    }

    /// Looks again, and returns the differences. The sandbox has ended.
    pub fn compare(&self) -> Compared {
        // If there were too many files before, there is no need to count them again.
        let Some(before) = &self.seen else { return Compared::TooMany };
        let again = self.again();
        let more = again.is_none();
        // A sandbox must not hide a change behind a heap of new files.
        let after = again.unwrap_or_else(|| self.known(before));
        Compared::Touched(Touched { more, ..different(before, &after) })
    }

    /// The present state of the earlier files, whatever else is there now.
    fn known(&self, before: &Seen) -> Seen {
        let Ok(folder) = Beneath::open(&self.folder) else { return Seen::new() };
        let found = before.keys().filter_map(|path| Some((path.clone(), folder.stat(path).ok()??.into())));
        found.collect()
    }

    fn again(&self) -> Option<Seen> {
        // The backend, which mounts the folder, reports the error.
        let Ok(folder) = Beneath::open(&self.folder) else { return Some(Seen::new()) };
        let mut walk = Walk { folder: &folder, held: &self.held, seen: Seen::new(), todo: vec![Vec::new()] };
        while let Some(path) = walk.todo.pop() {
            walk.directory(&path)?;
        }
        Some(walk.seen)
    }
}

struct Walk<'w> {
    folder: &'w Beneath,
    held: &'w HashSet<RelPath>,
    seen: Seen,
    /// Directories that are still to be read.
    todo: Vec<Vec<u8>>,
}

impl Walk<'_> {
    /// `None` if there are too many. An unreadable or deleted directory counts as empty.
    fn directory(&mut self, path: &[u8]) -> Option<()> {
        let Ok(directory) = self.folder.directory(path) else { return Some(()) };
        let names = match path == GIT || path.ends_with(BELOW_GIT) {
            true => Some(REFS.map(<[u8]>::to_vec).into()),
            false => {
                let most = MAX_TOUCHED_PATHS.saturating_sub(self.seen.len());
                beneath::some_names(&directory, most).unwrap_or(Some(Vec::new()))
            }
        };
        for name in names? {
            let child = RelPath::child(path, &name);
            if self.held.contains(&child) {
                continue;
            }
            let Ok(Some(stat)) = beneath::stat_at(&directory, &name) else { continue };
            if stat.kind == Kind::Directory {
                self.todo.push(child.as_bytes().to_vec());
            }
            if let Some(parent) = self.parent(&child) {
                *parent = Entry::Directory;
            }
            self.seen.insert(child, Entry::from(stat));
        }
        Some(())
    }

    fn parent(&mut self, child: &RelPath) -> Option<&mut Entry> {
        self.seen.get_mut(&child.ancestors().next()?)
    }
}

impl From<Stat> for Entry {
    fn from(stat: Stat) -> Entry {
        let Stat { kind, size, inode, changed, .. } = stat;
        match kind {
            Kind::Directory => Entry::Empty,
            kind => Entry::Other { kind, size, inode, changed },
        }
    }
}

fn different(before: &Seen, after: &Seen) -> Touched {
    let mut found = Vec::new();
    for (path, new) in after {
        let how = match before.get(path) {
            None if *new == Entry::Directory => continue,
            None => How::Added,
            Some(old) if old.is_directory() && new.is_directory() || old == new => continue,
            Some(_) => How::Modified,
        };
        found.push(TouchedPath { path: path.clone(), how });
    }
    let gone = before.iter().filter(|(path, old)| **old != Entry::Directory && !after.contains_key(*path));
    found.extend(gone.map(|(path, _)| TouchedPath { path: path.clone(), how: How::Deleted }));
    let count = |how: How| found.iter().filter(|one| one.how == how).count() as u64;
    let (added, modified, deleted) = (count(How::Added), count(How::Modified), count(How::Deleted));
    found.sort_by(|one, other| one.path.cmp(&other.path));
    found.truncate(NAMED);
    Touched { added, modified, deleted, paths: found, more: false }
}

impl Entry {
    fn is_directory(self) -> bool {
        matches!(self, Entry::Directory | Entry::Empty)
    }
}

const GIT: &[u8] = b".git";
const BELOW_GIT: &[u8] = b"/.git";
/// The refs of branches and tags, and HEAD.
const REFS: [&[u8]; 4] = [b"HEAD", b"packed-refs", b"refs", b"reftable"];
/// A folder of dependencies has tens of thousands. A look at so many takes some tenths of a second, and ten megabytes.
const MAX_TOUCHED_PATHS: usize = if cfg!(test) { 20_000 } else { 100_000 };
/// More than a user reads.
const NAMED: usize = 200;

#[cfg(test)]
mod tests;
