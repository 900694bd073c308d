//! The present state of the sandbox's git directory: read as files, without git.

use super::Synced;
use super::host_state::read_head;
use crate::foreign::{Foreign, ForeignError, Head};
use belljar_git::ObjectId;
use std::collections::{BTreeMap, BTreeSet};

/// Refs and HEAD inside.
#[derive(Debug)]
pub(super) struct Inside {
    /// `None` if it is not of a form that git writes.
    pub(super) head: Option<Head>,
    pub(super) refs: BTreeMap<String, ObjectId>,
    unreadable: BTreeSet<String>,
    /// Refs that cannot keep their own name.
    pub(super) renamed: BTreeSet<String>,
    /// The unfinished operation of git inside.
    pub(super) unfinished: Option<&'static str>,
}

/// A ref inside that moved since both sides last agreed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Moved {
    pub(super) name: String,
    /// `None`: it is gone.
    pub(super) new: Option<ObjectId>,
}

/// Whether refs or HEAD inside moved since both sides last agreed.
pub fn has_moved(from: &Foreign, synced: &Synced) -> Result<bool, ForeignError> {
    let inside = Inside::read(from)?;
    Ok(!inside.moved(synced).is_empty() || inside.head_moved(synced))
}

/// Whether any object was made inside: without one nothing inside is new.
pub fn has_objects(from: &Foreign) -> bool {
    let is_object = |name: &String| name != "info" && name != "pack";
    let loose = from.names("objects").map_or(true, |names| names.iter().any(is_object));
    loose || from.names("objects/pack").map_or(true, |names| !names.is_empty())
}

impl Inside {
    pub(super) fn read(from: &Foreign) -> Result<Inside, ForeignError> {
        // HEAD first: if its branch is being created meanwhile, the branch is then found.
        let head = match from.head("") {
            Ok(head) => Some(head),
            Err(ForeignError::Spoiled { .. }) => None,
            Err(error) => return Err(error),
        };
        let all = from.refs()?;
        let unfinished = UNFINISHED.iter().find(|(file, _)| from.has(file)).map(|(_, name)| *name);
        Ok(Inside { head, refs: all.refs, unreadable: all.unreadable, renamed: all.renamed, unfinished })
    }

    /// The refs that moved, without those that were already set aside at this commit.
    pub(super) fn moved(&self, synced: &Synced) -> Vec<Moved> {
        let changed = self.refs.iter().filter(|(name, id)| {
            synced.refs.get(*name) != Some(*id) && synced.set_aside.get(*name) != Some(*id)
        });
        let mut moved: Vec<Moved> =
            changed.map(|(name, id)| Moved { name: name.clone(), new: Some(id.clone()) }).collect();
        let gone = synced
            .refs
            .keys()
            .filter(|name| !self.refs.contains_key(*name) && !self.unreadable.contains(*name));
        moved.extend(gone.map(|name| Moved { name: name.clone(), new: None }));
        moved
    }

    /// Whether there is a ref that git cannot have together with one of this name.
    pub(super) fn excludes(&self, name: &str) -> bool {
        let below = format!("{name}/");
        let is_below = |names: &mut dyn Iterator<Item = &String>| {
            names.next().is_some_and(|next| next.starts_with(&below))
        };
        let is_there = |name: &str| self.refs.contains_key(name) || self.unreadable.contains(name);
        is_below(&mut self.refs.range(below.clone()..).map(|(name, _)| name))
            || is_below(&mut self.unreadable.range(below.clone()..))
            || name.match_indices('/').any(|(end, _)| is_there(&name[..end]))
    }

    /// Whether HEAD is on this branch.
    pub(super) fn is_current(&self, name: &str) -> bool {
        matches!(&self.head, Some(Head::Branch(branch)) if branch.full() == name)
    }

    /// Whether HEAD moved; while git inside is rebasing or bisecting it keeps moving, and is ignored.
    pub(super) fn head_moved(&self, synced: &Synced) -> bool {
        let Some(head) = &self.head else { return false };
        let is_hopping = self.unfinished.is_some() && matches!(head, Head::Detached(_));
        let was = read_head(&synced.head);
        let is_aside = self.commit().is_some_and(|commit| synced.set_aside.get("HEAD") == Some(&commit));
        was.as_ref() != Some(head) && !is_hopping && !is_aside
    }

    /// The commit of HEAD, if it has one.
    pub(super) fn commit(&self) -> Option<ObjectId> {
        match self.head.as_ref()? {
            Head::Branch(branch) => self.refs.get(&branch.full()).cloned(),
            Head::Detached(commit) => Some(commit.clone()),
        }
    }
}

/// Files of git's unfinished operations (gitrepository-layout(5), wt-status.c).
pub(super) const UNFINISHED: [(&str, &str); 7] = [
    ("rebase-merge", "a rebase"),
    ("rebase-apply", "a rebase"),
    ("MERGE_HEAD", "a merge"),
    ("CHERRY_PICK_HEAD", "a cherry-pick"),
    ("REVERT_HEAD", "a revert"),
    ("sequencer", "a cherry-pick or revert"),
    ("BISECT_LOG", "a bisection"),
];
