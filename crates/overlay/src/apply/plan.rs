//! The steps of an apply, in their order.

use crate::change::Change;
use crate::path::RelPath;
use crate::stat::{Kind, Moment, Stat};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// One step. Each can be undone, and its effect can be checked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Step {
    /// Puts a staged entry where nothing is.
    Put { path: JournalPath, slot: usize, new: Seen },
    /// Exchanges a staged entry with the existing one.
    Swap { path: JournalPath, slot: usize, new: Seen, old: Seen },
    /// Moves the existing entry to the staging directory.
    Take { path: JournalPath, slot: usize, old: Seen },
    /// Sets permissions, attributes and time of an entry that stays.
    Settle {
        path: JournalPath,
        old: Seen,
        mode: u32,
        modified: Option<Moment>,
        attributes: Option<Attributes>,
    },
}

/// The observed state of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Seen {
    pub(super) kind: Kind,
    pub(super) inode: u64,
    pub(super) size: u64,
    pub(super) mode: u32,
    pub(super) modified: Moment,
    pub(super) changed: Moment,
}

/// A directory's extended attributes, before and after.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Attributes {
    pub(super) old: Vec<(Vec<u8>, Vec<u8>)>,
    pub(super) new: Vec<(Vec<u8>, Vec<u8>)>,
}

/// A path in the journal's encoding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct JournalPath(pub(super) RelPath);

/// The kind of step for a change. Slots are assigned when it is staged.
pub(super) enum Kinded<'a> {
    /// Staged and put or swapped.
    Written(&'a Change),
    Taken(&'a Change),
    /// Only permissions.
    Settled(&'a Change),
}

/// Changes in the order of execution: removals from the inside out; additions from the outside in; permissions of directories last
/// and from the inside out, unless they open a directory that later steps need.
pub(super) fn order(list: &[Change]) -> Vec<Kinded<'_>> {
    let is_settled = |change: &&Change| !is_written(change) && change.new.is_some();
    let opens = |change: &&Change| {
        change.new.is_some_and(|new| new.mode & 0o200 != 0)
            && change.old.is_some_and(|old| old.mode & 0o200 == 0)
    };
    let first = list.iter().filter(is_settled).filter(opens).map(Kinded::Settled);
    let taken = list.iter().rev().filter(|change| change.new.is_none()).map(Kinded::Taken);
    let written = list.iter().filter(|change| is_written(change)).map(Kinded::Written);
    let last = list.iter().rev().filter(is_settled).filter(|change| !opens(change)).map(Kinded::Settled);
    first.chain(taken).chain(written).chain(last).collect()
}

/// Whether it needs a staged copy.
fn is_written(change: &Change) -> bool {
    match (change.old, change.new) {
        (_, None) => false,
        (None, Some(_)) => true,
        (Some(old), Some(new)) => {
            old.kind != new.kind || (new.kind != Kind::Directory && (change.content || change.attributes))
        }
    }
}

impl Seen {
    pub(super) fn of(stat: &Stat) -> Seen {
        let Stat { kind, inode, size, mode, modified, changed, .. } = *stat;
        Seen { kind, inode, size, mode, modified, changed }
    }

    /// Whether it is the same file, unchanged. A directory changes with its entries.
    pub(super) fn is_untouched(&self, stat: &Stat) -> bool {
        self.is_same(stat) && (self.kind == Kind::Directory || self.changed == stat.changed)
    }

    /// The same for a file that was renamed since, which changes its ctime.
    pub(super) fn is_same(&self, stat: &Stat) -> bool {
        let now = Seen::of(stat);
        let same = (self.kind, self.inode) == (now.kind, now.inode);
        same && (self.kind == Kind::Directory
            || (self.size, self.mode, self.modified) == (now.size, now.mode, now.modified))
    }
}

impl Step {
    pub(super) fn path(&self) -> &RelPath {
        match self {
            Step::Put { path, .. }
            | Step::Swap { path, .. }
            | Step::Take { path, .. }
            | Step::Settle { path, .. } => &path.0,
        }
    }
}

impl Serialize for JournalPath {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0.encode())
    }
}

impl<'de> Deserialize<'de> for JournalPath {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<JournalPath, D::Error> {
        let text = String::deserialize(deserializer)?;
        RelPath::decode(&text)
            .map(JournalPath)
            .ok_or_else(|| serde::de::Error::custom("not a path below a folder"))
    }
}
