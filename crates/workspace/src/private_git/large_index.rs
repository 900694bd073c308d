//! Moves an index of many files from one commit to another by the paths that differ. `git read-tree` walks both trees completely
//! and rewrites its cache of every folder: with 100,000 files that is most of the time of an import.
//!
//! Only if the index is plain and has these paths as in the old commit. All other cases are left to `git read-tree`.

use super::follow::Obstacle;
use super::staged::{self, Record};
use crate::inert::Call;
use belljar_git::{ObjectFormat, ObjectId};
use std::collections::BTreeMap;

/// Moves the index that `call` works on, with this content, from one commit to another. Returns whether it did; if not, nothing
/// changed.
pub(super) fn carry_over(
    call: &dyn Fn() -> Call,
    content: &[u8],
    format: ObjectFormat,
    old: &str,
    new: &ObjectId,
) -> Result<bool, Obstacle> {
    if content.len() < LARGE {
        return Ok(false);
    }
    let changed = staged::changes(call, old, new)?;
    if changed.len() > MAX_CHANGES || !has_as_before(content, format, &changed) {
        return Ok(false);
    }
    // A file is removed before the entries of a folder of its name are added.
    let (gone, kept): (Vec<_>, Vec<_>) =
        changed.iter().partition(|(_, change)| staged::is_nothing(&change.new));
    let lines: Vec<u8> =
        gone.into_iter().chain(kept).flat_map(|(path, change)| staged::line(&change.new, path)).collect();
    let finished = call().args(["update-index", "-z", "--index-info"]).run_with(&lines)?;
    Ok(finished.code == Some(0))
}

/// Whether an index has these paths as in the old commit, without flags set by the user, and no conflicts anywhere. False for an
/// index of an unknown format: gitformat-index(5).
fn has_as_before(index: &[u8], format: ObjectFormat, changed: &BTreeMap<Vec<u8>, Record>) -> bool {
    let hash = match format {
        ObjectFormat::Sha1 => 20,
        ObjectFormat::Sha256 => 32,
    };
    let had = changed.values().filter(|change| !staged::is_nothing(&change.old)).count();
    let seen = entries(index, hash, |entry| match changed.get(entry.name) {
        _ if entry.flags & STAGE != 0 => None,
        None => Some(0),
        Some(change) => {
            let (mode, id) = &change.old;
            let is_same = entry.flags & (ASSUME_VALID | EXTENDED) == 0
                && format!("{:06o}", entry.mode).as_bytes() == mode
                && hex(entry.id) == *id;
            is_same.then_some(1)
        }
    });
    seen == Some(had)
}

struct Entry<'i> {
    mode: u32,
    id: &'i [u8],
    flags: u16,
    name: &'i [u8],
}

/// Counts entries; `None` if one does not qualify, or not all can be read.
fn entries(index: &[u8], hash: usize, count: impl Fn(&Entry<'_>) -> Option<usize>) -> Option<usize> {
    let number = |at: usize| Some(u32::from_be_bytes(index.get(at..at + 4)?.try_into().ok()?));
    // Version 4 compresses names.
    if index.get(..4)? != b"DIRC" || !matches!(number(4)?, 2 | 3) {
        return None;
    }
    let (mut at, mut seen) = (HEADER, 0);
    for _ in 0..number(8)? {
        let flags_at = at + STAT + hash;
        let flags = u16::from_be_bytes(index.get(flags_at..flags_at + 2)?.try_into().ok()?);
        let name_at = flags_at + if flags & EXTENDED == 0 { 2 } else { 4 };
        let length = match usize::from(flags & LENGTH) {
            LONG => index.get(name_at..)?.iter().position(|byte| *byte == 0)?,
            length => length,
        };
        let name = index.get(name_at..name_at + length)?;
        let id = index.get(at + STAT..flags_at)?;
        seen += count(&Entry { mode: number(at + 24)?, id, flags, name })?;
        at += (name_at - at + length + 8) / 8 * 8;
    }
    let end = index.len().checked_sub(hash)?;
    while at + 8 <= end {
        // A lower-case signature: an extension that git must understand, such as those of a split or a sparse index.
        if index[at].is_ascii_lowercase() {
            return None;
        }
        at = at.checked_add(8)?.checked_add(number(at + 4)? as usize)?;
    }
    (at == end).then_some(seen)
}

fn hex(id: &[u8]) -> Vec<u8> {
    id.iter().flat_map(|byte| format!("{byte:02x}").into_bytes()).collect()
}

/// Some thousand files. In tests every index counts as large: so all tests of indexes cover this code.
const LARGE: usize = if cfg!(test) { 1 } else { 1 << 20 };
/// Beyond that, walking the trees is no slower.
const MAX_CHANGES: usize = 4096;
const HEADER: usize = 12;
/// The bytes of an entry before its object name.
const STAT: usize = 40;
const ASSUME_VALID: u16 = 0x8000;
const EXTENDED: u16 = 0x4000;
const STAGE: u16 = 0x3000;
const LENGTH: u16 = 0x0fff;
/// A name that is longer ends with a 0.
const LONG: usize = 0x0fff;

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::path::Path;
    use std::process::Command;

    fn git(folder: &Path, words: &[&str]) -> String {
        let who = ["-c", "user.name=T", "-c", "user.email=t@example.org"];
        let output = Command::new("git").args(who).args(words).current_dir(folder).output().unwrap();
        assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().trim_end().to_string()
    }

    /// Whether an index can follow to a commit that changes `a` and adds `new`, after the user did this.
    fn goes_along(user: &[&[&str]]) -> bool {
        let place = tempfile::tempdir().unwrap();
        let folder = place.path();
        git(folder, &["init", "-q"]);
        for name in ["a", "b"] {
            fs::write(folder.join(name), name).unwrap();
        }
        git(folder, &["add", "."]);
        git(folder, &["commit", "-q", "-m", "x"]);
        let blob = git(folder, &["rev-parse", "HEAD:a"]).into_bytes();
        let side = |mode: &str, id: &[u8]| (mode.as_bytes().to_vec(), id.to_vec());
        let nothing = side("000000", &[b'0'; 40]);
        let changed = BTreeMap::from([
            (b"a".to_vec(), Record::new(side("100644", &blob), side("100755", &blob))),
            (b"new".to_vec(), Record::new(nothing, side("100644", &blob))),
        ]);
        user.iter().for_each(|words| drop(git(folder, words)));
        let index = fs::read(folder.join(".git/index")).unwrap();
        has_as_before(&index, ObjectFormat::Sha1, &changed)
    }

    #[test]
    fn only_a_plain_index_with_nothing_of_the_users_goes_along_by_its_paths() {
        let plain: [&[&[&str]]; 3] =
            [&[], &[&["rm", "-q", "--cached", "b"]], &[&["update-index", "--skip-worktree", "b"]]];
        for user in plain {
            assert!(goes_along(user), "{user:?}");
        }
        let staged =
            ["update-index", "--add", "--cacheinfo", "100644,0000000000000000000000000000000000000001,new"];
        let others: [&[&[&str]]; 8] = [
            &[&["rm", "-q", "--cached", "a"]],
            &[&["update-index", "--chmod=+x", "a"]],
            &[&["update-index", "--skip-worktree", "a"]],
            &[&["update-index", "--assume-unchanged", "a"]],
            &[&staged],
            &[&["mv", "b", "new"]],
            &[&["update-index", "--index-version", "4"]],
            &[&["update-index", "--split-index"]],
        ];
        for user in others {
            assert!(!goes_along(user), "{user:?}");
        }
    }
}
