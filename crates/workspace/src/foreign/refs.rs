//! Refs of a repository that an agent writes to, read as the files they are (gitrepository-layout(5)).

use super::{Foreign, ForeignError, object};
use belljar_git::ObjectId;
use belljar_spec::git::BranchName;
use std::collections::BTreeSet;

/// What a worktree is on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Head {
    Branch(BranchName),
    Detached(ObjectId),
}

impl Foreign {
    /// Reads a worktree's HEAD; `own` is its part of the git directory, empty for the main one.
    pub fn head(&self, own: &str) -> Result<Head, ForeignError> {
        let path = if own.is_empty() { "HEAD".to_string() } else { format!("{own}/HEAD") };
        let unclear = || ForeignError::spoiled(&path, "it names neither a branch nor a commit");
        let bytes = self.read(&path, MAX_REF_BYTES)?.ok_or_else(unclear)?;
        let text = std::str::from_utf8(&bytes).map_err(|_| unclear())?.trim_end();
        match text.strip_prefix("ref:") {
            Some(name) => BranchName::of_ref(name.trim_start()).map(Head::Branch).ok_or_else(unclear),
            None => object(text).map(Head::Detached).ok_or_else(unclear),
        }
    }

    /// A branch's commit, if the branch exists.
    pub fn branch(&self, branch: &BranchName) -> Result<Option<ObjectId>, ForeignError> {
        let name = branch.full();
        // A reftable repository's HEAD names an impossible branch, so that older gits do not take it for empty.
        if self.has("reftable") {
            return Err(ForeignError::spoiled("reftable", "refs kept as a reftable are not read"));
        }
        // A folder of other branches, or an empty one, is no branch.
        let is_folder = matches!(self.directory.below(&name), Ok(Some(_)));
        if !is_folder && let Some(bytes) = self.read(&name, MAX_REF_BYTES)? {
            let text = String::from_utf8_lossy(&bytes);
            let hash = object(text.trim_end());
            // A symbolic ref would give another ref's value under this name.
            return hash
                .map(Some)
                .ok_or_else(|| ForeignError::spoiled(&name, "it is not the name of a commit"));
        }
        let packed = self.read("packed-refs", MAX_PACKED_REFS_BYTES)?.unwrap_or_default();
        Ok(packed_ref(&packed, &name))
    }

    /// All branches, unordered; invalid names are skipped.
    pub fn branches(&self) -> Result<Vec<BranchName>, ForeignError> {
        let packed = self.read("packed-refs", MAX_PACKED_REFS_BYTES)?.unwrap_or_default();
        let packed = packed.split(|byte| *byte == b'\n').filter_map(|line| std::str::from_utf8(line).ok());
        let packed = packed.filter_map(|line| Some(line.split_once(' ')?.1.to_string()));
        let mut found: BTreeSet<BranchName> = packed.filter_map(|name| BranchName::of_ref(&name)).collect();
        let mut waiting = vec!["refs/heads".to_string()];
        let mut seen = 0;
        while let Some(path) = waiting.pop() {
            let names = match self.directory.below(&path) {
                Ok(Some(directory)) => directory.names()?,
                // Not a directory: a branch, or a link or another file that an agent put there.
                Ok(None) | Err(ForeignError::Spoiled { .. }) => {
                    found.extend(BranchName::of_ref(&path));
                    continue;
                }
                Err(error) => return Err(error),
            };
            seen += names.len();
            if seen > MAX_LOOSE_REFS {
                return Err(ForeignError::TooMuch { what: "more branches", most: MAX_LOOSE_REFS as u64 });
            }
            waiting.extend(names.into_iter().map(|name| format!("{path}/{name}")));
        }
        Ok(found.into_iter().collect())
    }

    /// Removes empty folders of deleted branches, which would block a branch of this name.
    pub(crate) fn make_room(&self, name: &str) -> Result<(), ForeignError> {
        self.directory.remove_empty(name)
    }

    /// Makes a branch. A folder of its name without any branch in it is removed.
    pub fn put_branch(&self, branch: &BranchName, commit: &ObjectId) -> Result<(), ForeignError> {
        let name = branch.full();
        self.directory.remove_empty(&name)?;
        self.put(&name, format!("{commit}\n").as_bytes())
    }

    /// A branch that this one cannot exist beside: one of the two names would be a folder of the other's.
    pub fn in_the_way_of(&self, branch: &BranchName) -> Result<Option<BranchName>, ForeignError> {
        Ok(self.branches()?.into_iter().find(|other| excludes(&other.full(), &branch.full())))
    }

    /// Removes a branch. From `packed-refs` first: the other way round, an older value would show in between.
    pub fn remove_branch(&self, branch: &BranchName) -> Result<(), ForeignError> {
        let name = branch.full();
        let packed = self.read("packed-refs", MAX_PACKED_REFS_BYTES)?.unwrap_or_default();
        if packed_ref(&packed, &name).is_some() {
            self.write("packed-refs", &without(&packed, &name))?;
        }
        self.directory.remove_file(&name)
    }
}

/// Whether git cannot have both refs at once, since it stores refs as files.
pub(crate) fn excludes(one: &str, other: &str) -> bool {
    let is_below = |one: &str, other: &str| one.strip_prefix(other).is_some_and(|rest| rest.starts_with('/'));
    is_below(one, other) || is_below(other, one)
}

/// One `HASH NAME` per line, besides comments (`#`) and peeled tags (`^`).
fn packed_ref(packed: &[u8], name: &str) -> Option<ObjectId> {
    packed.split(|byte| *byte == b'\n').find_map(|line| {
        let (hash, rest) = std::str::from_utf8(line).ok()?.split_once(' ')?;
        (rest == name).then(|| object(hash))?
    })
}

/// All lines but this ref's.
fn without(packed: &[u8], name: &str) -> Vec<u8> {
    let is_other =
        |line: &&[u8]| !line.strip_suffix(b"\n").unwrap_or(line).ends_with(format!(" {name}").as_bytes());
    packed.split_inclusive(|byte| *byte == b'\n').filter(is_other).collect::<Vec<_>>().concat()
}

pub(super) const MAX_REF_BYTES: u64 = 4096;
pub(super) const MAX_LOOSE_REFS: usize = 100_000;
/// A million refs.
pub(super) const MAX_PACKED_REFS_BYTES: u64 = 128 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packed_refs_are_lines() {
        let hash = "1234567890123456789012345678901234567890";
        let packed =
            format!("# pack-refs with: peeled\n{hash} refs/heads/a\n^{hash}\nx refs/heads/b\n\u{0}\n");
        let found = |name: &str| packed_ref(packed.as_bytes(), name).map(|hash| hash.to_string());
        assert_eq!(found("refs/heads/a").as_deref(), Some(hash));
        for name in ["refs/heads/b", "refs/heads", "", "with: peeled"] {
            assert_eq!(found(name), None, "{name}");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_read(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..300)) {
            let _ = packed_ref(&bytes, "refs/heads/a");
            let _ = object(&String::from_utf8_lossy(&bytes));
        }
    }
}
