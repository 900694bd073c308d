//! Selects the changes to apply.

use crate::beneath::Beneath;
use crate::change::{Change, Changes};
use crate::error::LayerError;
use crate::path::RelPath;
use crate::record::Layer;
use crate::rename;
use std::collections::HashSet;

/// The user's selection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Selection {
    All,
    /// These, with everything below them.
    Paths(Vec<RelPath>),
}

/// The selected changes.
pub(super) struct Chosen {
    pub(super) list: Vec<Change>,
    /// Whether it is all changes.
    pub(super) whole: bool,
}

impl Selection {
    /// Whether this path is selected.
    pub fn covers(&self, path: &RelPath) -> bool {
        match self {
            Selection::All => true,
            Selection::Paths(paths) => paths.iter().any(|named| path.is_within(named)),
        }
    }
}

/// Moved files are selected by either name; an entry of a new directory brings the directory along.
pub(super) fn choose(
    layer: &Layer,
    changes: &Changes,
    selection: &Selection,
    upper: &Beneath,
    host: &Beneath,
) -> Result<Chosen, LayerError> {
    let Selection::Paths(named) = selection else {
        return Ok(Chosen { list: changes.list.clone(), whole: true });
    };
    let mut moved = changes.list.clone();
    rename::find(&mut moved, upper, host);
    let mut chosen: HashSet<RelPath> = HashSet::new();
    let mut around: HashSet<RelPath> = HashSet::new();
    for change in &moved {
        let from = change.from.as_ref();
        if selection.covers(&change.path) || from.is_some_and(|from| selection.covers(from)) {
            chosen.insert(change.path.clone());
            chosen.extend(from.cloned());
            around.extend(change.path.ancestors());
        }
    }
    for path in named {
        if !moved.iter().any(|change| {
            change.path.is_within(path) || change.from.as_ref().is_some_and(|from| from.is_within(path))
        }) {
            return Err(LayerError::NoSuchChange { id: layer.id, path: path.clone() });
        }
    }
    let is_chosen = |change: &&Change| {
        // Of the parents of the selection, only directories that have to exist.
        let is_made = change.new.is_some_and(|new| new.is_directory())
            && change.old.is_none_or(|old| !old.is_directory());
        chosen.contains(&change.path) || (is_made && around.contains(&change.path))
    };
    let list: Vec<Change> = changes.list.iter().filter(is_chosen).cloned().collect();
    let whole = list.len() == changes.list.len();
    Ok(Chosen { list, whole })
}
