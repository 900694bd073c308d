//! The objects of a quarantine, by `git cat-file`.

use super::refusal;
use super::scratch::ScratchRepository;
use crate::inert::{Call, Git};
use belljar_git::{ObjectId, PushRefusal};
use std::collections::HashMap;

/// Reads objects.
pub(super) struct Objects<'a> {
    git: &'a Git,
    place: &'a ScratchRepository,
}

/// The objects of a quarantine.
pub(super) struct Listed {
    commits: Vec<ObjectId>,
}

/// The parts of a commit that matter here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Commit {
    pub(super) tree: ObjectId,
    pub(super) parents: Vec<ObjectId>,
}

/// One entry of a tree.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Entry {
    pub(super) mode: Vec<u8>,
    pub(super) name: Vec<u8>,
    pub(super) id: ObjectId,
}

impl<'a> Objects<'a> {
    pub(super) fn new(git: &'a Git, place: &'a ScratchRepository) -> Objects<'a> {
        Objects { git, place }
    }

    /// Lists all objects; more than this many are refused.
    pub(super) fn list(&self, most: u64) -> Result<Listed, PushRefusal> {
        let listed = self
            .call()
            .args([
                "--batch-all-objects",
                "--unordered",
                "--batch-check=%(objectname) %(objecttype) %(objectsize)",
            ])
            .output()
            .map_err(|error| refusal(&error))?;
        let mut commits = Vec::new();
        let (mut count, mut bytes) = (0, 0u64);
        for line in listed.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            count += 1;
            let mut words = line.split(|byte| *byte == b' ');
            let (id, kind, size) = (words.next(), words.next(), words.next());
            if kind == Some(b"commit") {
                let size = size.and_then(|size| std::str::from_utf8(size).ok()?.parse::<u64>().ok());
                bytes = bytes.saturating_add(size.ok_or_else(unreadable)?);
                commits.push(ObjectId::parse(id.unwrap_or_default()).map_err(|_| unreadable())?);
            }
        }
        if count > most {
            return Err(PushRefusal::Objects { most });
        }
        if bytes > MAX_COMMIT_BYTES {
            return Err(PushRefusal::Pack { detail: "its commits are too large to look at".to_string() });
        }
        Ok(Listed { commits })
    }

    /// All commits.
    pub(super) fn commits(&self, listed: &Listed) -> Result<HashMap<ObjectId, Commit>, PushRefusal> {
        let mut commits = HashMap::new();
        self.each(&listed.commits, |id, kind, content| {
            if kind == b"commit" {
                commits.insert(id.clone(), commit(content).ok_or_else(unreadable)?);
            }
            Ok(())
        })?;
        Ok(commits)
    }

    /// The trees among these that are here.
    pub(super) fn trees(&self, ids: &[ObjectId]) -> Result<HashMap<ObjectId, Vec<Entry>>, PushRefusal> {
        let mut trees = HashMap::new();
        for some in ids.chunks(AT_ONCE) {
            self.each(some, |id, kind, content| {
                if kind == b"tree" {
                    // Only entries that could ever matter are kept.
                    let mut entries = entries(content, id).ok_or_else(unreadable)?;
                    entries.retain(|entry| NAMES.iter().any(|name| entry.name.eq_ignore_ascii_case(name)));
                    trees.insert(id.clone(), entries);
                }
                Ok(())
            })?;
        }
        Ok(trees)
    }

    /// Reads these objects; missing ones are skipped.
    fn each(
        &self,
        ids: &[ObjectId],
        mut take: impl FnMut(&ObjectId, &[u8], &[u8]) -> Result<(), PushRefusal>,
    ) -> Result<(), PushRefusal> {
        let names: String = ids.iter().map(|id| format!("{id}\n")).collect();
        let answer = self
            .call()
            .args(["--batch", "--buffer"])
            .output_with(names.as_bytes())
            .map_err(|error| refusal(&error))?;
        let mut rest = &answer[..];
        for id in ids {
            let end = rest.iter().position(|byte| *byte == b'\n').ok_or_else(unreadable)?;
            let head = &rest[..end];
            rest = &rest[end + 1..];
            let words: Vec<&[u8]> = head.split(|byte| *byte == b' ').collect();
            match words[..] {
                [name, b"missing"] if name == id.as_str().as_bytes() => {}
                [name, kind, size] if name == id.as_str().as_bytes() => {
                    let size = std::str::from_utf8(size).ok().and_then(|size| size.parse::<usize>().ok());
                    let size = size.filter(|size| *size < rest.len()).ok_or_else(unreadable)?;
                    take(id, kind, &rest[..size])?;
                    rest = &rest[size + 1..];
                }
                _ => return Err(unreadable()),
            }
        }
        Ok(())
    }

    fn call(&self) -> Call {
        self.git.on(self.place.path()).arg("cat-file")
    }
}

/// As git reads it: the tree, then all parents, then the rest.
fn commit(content: &[u8]) -> Option<Commit> {
    let mut lines = content.split(|byte| *byte == b'\n');
    let tree = ObjectId::parse(lines.next()?.strip_prefix(b"tree ")?).ok()?;
    let parents = lines.map_while(|line| line.strip_prefix(b"parent "));
    Some(Commit { tree, parents: parents.map(ObjectId::parse).collect::<Result<_, _>>().ok()? })
}

/// A sequence of `mode name\0id`.
fn entries(content: &[u8], of: &ObjectId) -> Option<Vec<Entry>> {
    let length = of.format().digits() / 2;
    let mut entries = Vec::new();
    let mut rest = content;
    while !rest.is_empty() {
        let space = rest.iter().position(|byte| *byte == b' ')?;
        let end = rest.iter().position(|byte| *byte == 0)?;
        let id = rest.get(end + 1..end + 1 + length)?;
        let hex: String = id.iter().map(|byte| format!("{byte:02x}")).collect();
        let (mode, name) = (rest[..space].to_vec(), rest.get(space + 1..end)?.to_vec());
        entries.push(Entry { mode, name, id: hex.parse().ok()? });
        rest = &rest[end + 1 + length..];
    }
    Some(entries)
}

fn unreadable() -> PushRefusal {
    PushRefusal::Pack { detail: "an object in it cannot be read".to_string() }
}

/// The entries on the way to workflow files.
pub(super) const DOT_GITHUB: &[u8] = b".github";
pub(super) const WORKFLOWS: &[u8] = b"workflows";
const NAMES: [&[u8]; 2] = [DOT_GITHUB, WORKFLOWS];
/// As much as the whole history of Linux; one push has less.
const MAX_COMMIT_BYTES: u64 = 128 << 20;
/// Trees held in memory at once.
const AT_ONCE: usize = 500;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parents_stand_right_behind_the_tree() {
        let (a, b) = ("a".repeat(40), "b".repeat(40));
        let text = format!("tree {a}\nparent {b}\nparent {a}\nauthor x\nparent {b}\n\nparent {b}\n");
        let commit = commit(text.as_bytes()).unwrap();
        assert_eq!(commit.parents.len(), 2, "what follows the author is no parent to git");
        assert_eq!(super::commit(b"author x\n"), None);
        assert_eq!(super::commit(format!("tree {a}\nparent zz\n").as_bytes()), None);
    }

    #[test]
    fn trees_are_read_to_the_last_byte() {
        let id: ObjectId = "a".repeat(40).parse().unwrap();
        let mut content = b"40000 .github\0".to_vec();
        content.extend([0xab; 20]);
        assert_eq!(entries(&content, &id).unwrap()[0].name, b".github");
        assert_eq!(entries(&content[..content.len() - 1], &id), None);
        assert_eq!(entries(b"x", &id), None);
        assert_eq!(entries(b"\0a b", &id), None);
    }
}
