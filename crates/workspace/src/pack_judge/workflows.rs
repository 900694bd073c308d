//! The files at `.github/workflows` in a tree.
//!
//! Only new commits are judged. Commits that the server has are accepted: a push does not show which of its branches has a commit,
//! and the branch's old commit is no measure, since merging `main` is everyday work.

use super::objects::{DOT_GITHUB, Entry, Objects, WORKFLOWS};
use belljar_git::judge::Seen;
use belljar_git::{ObjectId, PushRefusal};
use std::collections::{BTreeSet, HashMap};

/// The known workflow files of some commits' trees.
#[derive(Debug)]
pub(super) struct Workflows {
    /// The entries of a commit's tree called `.github`, in any letter case: a file system may ignore case.
    roots: HashMap<ObjectId, Vec<Entry>>,
    /// Their entries called `workflows`.
    folders: HashMap<ObjectId, Vec<Entry>>,
}

impl Workflows {
    /// Reads those of these trees that are here.
    pub(super) fn read<'t>(
        objects: &Objects<'_>,
        trees: impl Iterator<Item = &'t ObjectId>,
    ) -> Result<Workflows, PushRefusal> {
        let distinct = |ids: BTreeSet<&ObjectId>| ids.into_iter().cloned().collect::<Vec<_>>();
        let mut roots = objects.trees(&distinct(trees.collect()))?;
        keep(&mut roots, DOT_GITHUB);
        let inner = roots.values().flatten().filter(|entry| is_tree(entry)).map(|entry| &entry.id);
        let mut folders = objects.trees(&distinct(inner.collect()))?;
        keep(&mut folders, WORKFLOWS);
        Ok(Workflows { roots, folders })
    }

    /// Is it the same in both?
    pub(super) fn same(&self, one: &ObjectId, other: &ObjectId) -> Seen {
        if one == other {
            return Seen::Yes;
        }
        let (Some(roots), Some(others)) = (self.roots.get(one), self.roots.get(other)) else {
            return Seen::Unknown;
        };
        if roots == others {
            return Seen::Yes;
        }
        match (self.inside(roots), self.inside(others)) {
            (Some(one), Some(other)) if one == other => Seen::Yes,
            (Some(_), Some(_)) => Seen::No,
            (None, _) | (_, None) => Seen::Unknown,
        }
    }

    /// Is there nothing?
    pub(super) fn none(&self, tree: &ObjectId) -> Seen {
        match self.roots.get(tree).map(|roots| self.inside(roots)) {
            Some(Some(found)) if found.is_empty() => Seen::Yes,
            Some(Some(_)) => Seen::No,
            Some(None) | None => Seen::Unknown,
        }
    }

    /// Everything called `.github/workflows`, with the name of its `.github`, and a `.github` that is no folder: it may be a link
    /// to one.
    fn inside<'w>(&'w self, roots: &'w [Entry]) -> Option<Vec<(&'w [u8], &'w Entry)>> {
        let mut found = Vec::new();
        for root in roots {
            match is_tree(root) {
                true => found.extend(self.folders.get(&root.id)?.iter().map(|entry| (&root.name[..], entry))),
                false => found.push((&root.name[..], root)),
            }
        }
        Some(found)
    }
}

fn keep(trees: &mut HashMap<ObjectId, Vec<Entry>>, name: &[u8]) {
    trees.values_mut().for_each(|entries| entries.retain(|entry| entry.name.eq_ignore_ascii_case(name)));
}

/// `40000`, or as some old programs wrote it.
fn is_tree(entry: &Entry) -> bool {
    matches!(entry.mode.as_slice(), b"40000" | b"040000")
}
