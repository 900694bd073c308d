//! An index with staged changes of the user at paths that the sandbox's commits change too.

use super::follow::Obstacle;
use crate::inert::Call;
use crate::raw_diff::{Change, Part, parts};
use belljar_git::ObjectId;
use std::collections::BTreeMap;

/// Moves an index from one commit to another if `git read-tree` refuses to. At a path that both changed, the user's entry stays,
/// staged against the new commit; one that the user only announced (`git add -N`) becomes the new commit's.
pub(super) fn carry_over(call: &dyn Fn() -> Call, old: &str, new: &ObjectId) -> Result<(), Obstacle> {
    let words =
        ["diff-index", "--cached", "--ita-invisible-in-index", "--raw", "-z", "--no-renames", "--no-abbrev"];
    let staged = records(&call().args(words).arg(old).output()?);
    if staged.values().any(|record| record.status == b'U') {
        return Err(Obstacle::Index("the host's index has conflicts".to_string()));
    }
    let changed = changes(call, old, new)?;
    let mut before = Vec::new();
    let mut after = Vec::new();
    for (path, change) in &changed {
        match staged.get(path) {
            Some(users) if users.new == change.new => {}
            Some(users) => {
                before.extend(line(&change.old, path));
                after.extend(line(&users.new, path));
            }
            // Nothing is staged there, but there may be an announced entry.
            None if is_nothing(&change.old) => before.extend(line(&change.old, path)),
            None => {}
        }
    }
    let put = |lines: &[u8]| call().args(["update-index", "-z", "--index-info"]).run_with(lines);
    let read = || call().args(["read-tree", "-m", "-i", old, new.as_str()]).run();
    for finished in [put(&before), read(), put(&after)] {
        let finished = finished?;
        if finished.code != Some(0) {
            return Err(Obstacle::Index(format!("the host's index cannot go along: {}", finished.reason())));
        }
    }
    Ok(())
}

/// The differences of two commits, by path.
pub(super) fn changes(
    call: &dyn Fn() -> Call,
    old: &str,
    new: &ObjectId,
) -> Result<BTreeMap<Vec<u8>, Record>, Obstacle> {
    let words = ["diff-tree", "-r", "--raw", "-z", "--no-renames", "--no-abbrev", old, new.as_str()];
    Ok(records(&call().args(words).output()?))
}

/// A mode and an object, as git's raw diffs have them.
pub(super) type Side = (Vec<u8>, Vec<u8>);

/// A path that differs.
pub(super) struct Record {
    pub(super) old: Side,
    pub(super) new: Side,
    status: u8,
}

#[cfg(test)]
impl Record {
    pub(super) fn new(old: Side, new: Side) -> Record {
        Record { old, new, status: b'M' }
    }
}

fn records(raw: &[u8]) -> BTreeMap<Vec<u8>, Record> {
    let side = |(mode, id): (&[u8], &[u8])| (mode.to_vec(), id.to_vec());
    let record = |part: Part<'_>| match part {
        Part::Commit(_) => None,
        Part::Change(Change { old, new, status, path }) => {
            let status = status.first().copied().unwrap_or_default();
            Some((path.to_vec(), Record { old: side(old), new: side(new), status }))
        }
    };
    parts(raw).filter_map(record).collect()
}

pub(super) fn is_nothing((mode, _): &Side) -> bool {
    mode.iter().all(|digit| *digit == b'0')
}

/// As `update-index --index-info` reads it; mode 0 removes.
pub(super) fn line(side: &Side, path: &[u8]) -> Vec<u8> {
    let mode: &[u8] = if is_nothing(side) { b"0" } else { &side.0 };
    [mode, b" ", &side.1, b"\t", path, b"\0"].concat()
}
