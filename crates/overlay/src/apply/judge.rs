//! Finds the conflicts of applying changes: files that are not as the sandbox saw them.

use super::choose::Chosen;
use super::found::Found;
use super::restored::Restored;
use super::touched::Touched;
use crate::beneath::{self, Beneath};
use crate::change::{Change, Changes};
use crate::error::{Conflict, ConflictWhy};
use crate::guard::Guard;
use crate::path::RelPath;
use crate::record::Layer;
use crate::rename;
use crate::stat::{Kind, Moment, Stat};
use std::collections::{HashMap, HashSet};

/// Recorded knowledge of the folder, besides its present state.
pub(super) struct Known {
    /// The effects of earlier applies of the layer.
    pub(super) restored: Restored,
    pub(super) touched: Touched,
    /// Its state when the last run ended.
    pub(super) found: Option<Found>,
}

/// Every conflict of the selection, ordered by path.
pub(super) fn judge(
    chosen: &Chosen,
    changes: &Changes,
    layer: &Layer,
    known: &Known,
    upper: &Beneath,
    host: &Beneath,
) -> Vec<Conflict> {
    let trace = |directory: &[u8]| trace(directory, layer.stamp, &known.touched, host);
    let gone = gone(changes, &layer.guard(), trace, upper, host);
    let mut arrivals =
        Arrivals { stamp: layer.stamp, touched: &known.touched, host, known_directories: HashMap::new() };
    let mut conflicts: Vec<Conflict> = Vec::new();
    for change in &chosen.list {
        let is_ours = change.old.is_some_and(|old| known.restored.knows(&change.path, &old));
        let why = if is_ours {
            continue;
        } else if is_changed(change, layer.stamp) || arrivals.brought(change) {
            ConflictWhy::Changed
        } else if gone.contains(&change.path) {
            ConflictWhy::Gone
        } else if let Some(why) = known.found.as_ref().and_then(|found| found.conflict(change)) {
            why
        } else {
            continue;
        };
        // The entries of a deleted directory are deleted with it.
        let is_covered = |last: &Conflict| why == ConflictWhy::Gone && change.path.is_within(&last.path);
        if !conflicts.last().is_some_and(is_covered) {
            conflicts.push(Conflict { path: change.path.clone(), why });
        }
    }
    conflicts
}

/// Whether the folder's entry changed since the layer was made. A directory's own times also change with its entries, so a
/// directory counts only if it was made since.
fn is_changed(change: &Change, stamp: Moment) -> bool {
    let Some(old) = change.old else { return false };
    match (old.kind, change.new.map(|new| new.kind)) {
        (Kind::Directory, Some(Kind::Directory)) => false,
        (Kind::Directory, _) => old.made.unwrap_or(old.changed).is_since(stamp),
        _ => old.changed.is_since(stamp),
    }
}

/// Directories that were moved to their place since the layer was made: the ctimes of the files in them do not show that.
struct Arrivals<'a> {
    stamp: Moment,
    touched: &'a Touched,
    host: &'a Beneath,
    known_directories: HashMap<RelPath, bool>,
}

impl Arrivals<'_> {
    /// Whether the folder's entry came with such a directory, or is one.
    fn brought(&mut self, change: &Change) -> bool {
        let Some(old) = change.old else { return false };
        let is_one = !self.touched.has(change.path.as_bytes()) && has_arrived(&old, self.stamp);
        is_one || change.path.ancestors().any(|directory| self.is_one(directory))
    }

    fn is_one(&mut self, directory: RelPath) -> bool {
        let Arrivals { stamp, touched, host, known_directories } = self;
        *known_directories.entry(directory).or_insert_with_key(|directory| {
            let found = host.stat(directory);
            !touched.has(directory.as_bytes())
                && found.map_or(true, |found| found.is_some_and(|found| has_arrived(&found, *stamp)))
        })
    }
}

/// A move changes a directory's ctime and not its mtime. So does a change of permissions, which counts as a change on the host too.
fn has_arrived(directory: &Stat, stamp: Moment) -> bool {
    directory.is_directory() && directory.changed.is_since(stamp) && directory.modified < directory.changed
}

/// What a directory of the folder shows about missing files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Trace {
    /// Nothing was deleted in it since the layer was made.
    None,
    /// A host process made, renamed or deleted an entry in it.
    Changed,
    /// One of our applies did, and perhaps a host process too.
    Ours,
}

/// Deleting a file changes the ctime of its directory, and no program can set that back.
fn trace(directory: &[u8], stamp: Moment, touched: &Touched, host: &Beneath) -> Trace {
    if touched.has(directory) {
        return Trace::Ours;
    }
    match host.anchor(directory).and_then(beneath::stat_of) {
        Ok(found) if found.changed.is_since(stamp) => Trace::Changed,
        Ok(_) => Trace::None,
        // The layer made it: if it had existed in the folder, it would be a copy itself.
        Err(error) if beneath::is_absent(&error) => Trace::None,
        Err(_) => Trace::Changed,
    }
}

/// Files that the sandbox changed and that were deleted on the host meanwhile: the layer has copies of missing files.
///
/// With `userxattr`, overlayfs says that something is a copy, not of what; and a copy that was moved inside has another name. If
/// the directory did not change since, nothing can have been deleted, and the copy was moved there. If it did, only a copy that
/// equals a file which the layer removed or replaced counts as moved: this may report a false conflict, but never undoes a
/// deletion. If the change may be our own, copies are counted against the folder's files that the layer removed or replaced: with
/// enough of these, nothing is gone.
fn gone(
    changes: &Changes,
    guard: &Guard,
    trace: impl Fn(&[u8]) -> Trace,
    upper: &Beneath,
    host: &Beneath,
) -> HashSet<RelPath> {
    let is_copy = |change: &&Change| change.copied && change.old.is_none();
    let mut gone: HashSet<RelPath> = HashSet::new();
    let mut suspects: HashSet<RelPath> = HashSet::new();
    let mut counted: HashSet<RelPath> = HashSet::new();
    for change in changes.list.iter().filter(is_copy) {
        match change.new {
            // A parent of a protected path may be a copy of a directory that only existed as a mount point.
            Some(new) if new.kind == Kind::Directory && guard.anchors(&change.path) => {}
            // overlayfs never moves a directory that has a lower layer: so this one is in its original place.
            Some(new) if new.kind == Kind::Directory => drop(gone.insert(change.path.clone())),
            // Another hard link of a file.
            Some(new) if new.links > 1 => {}
            Some(_) => match trace(change.path.parent()) {
                Trace::None => {}
                Trace::Changed => drop(suspects.insert(change.path.clone())),
                Trace::Ours => drop(counted.insert(change.path.clone())),
            },
            None => {}
        }
    }
    let taken = changes.list.iter().filter(|change| {
        let was_file = change.old.is_some_and(|old| old.kind == Kind::File);
        was_file && (change.new.is_none() || !change.copied)
    });
    if counted.len() > taken.count() {
        suspects.extend(counted);
    }
    if !suspects.is_empty() {
        let mut moved = changes.list.clone();
        rename::find(&mut moved, upper, host);
        let unexplained =
            moved.iter().filter(|change| change.from.is_none() && suspects.contains(&change.path));
        gone.extend(unexplained.map(|change| change.path.clone()));
    }
    gone
}
