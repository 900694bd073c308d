//! The state of the folder's files that the layer changes, taken at the end of a run, as the user saw it when reviewing the
//! changes. A file's own ctime shows neither that its directory was moved there, nor that a file is gone; this does.

use super::plan::{JournalPath, Seen};
use crate::change::{Change, Changes};
use crate::error::{ConflictWhy, LayerError};
use crate::path::RelPath;
use crate::record::Layer;
use crate::stat::{Kind, Stat};
use belljar_state::{Survives, write_atomic};
use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::PathBuf;

/// The recorded files, or their absence.
#[derive(Debug)]
pub(super) struct Found(HashMap<RelPath, Option<Seen>>);

impl Found {
    /// `None` if no run has ended since one began in the layer.
    pub(super) fn read(layer: &Layer) -> Result<Option<Found>, LayerError> {
        let path = path(layer);
        let failed = |source| LayerError::Store { step: "read", path: path.clone(), source };
        let text = match fs::read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            text => text.map_err(failed)?,
        };
        // Truncated by a power cut: without it an apply is more careful.
        let Ok(list) = serde_json::from_slice::<Vec<(JournalPath, Option<Seen>)>>(&text) else {
            return Ok(None);
        };
        Ok(Some(Found(list.into_iter().map(|(JournalPath(path), seen)| (path, seen)).collect())))
    }

    /// How the path has changed on the host since.
    pub(super) fn conflict(&self, change: &Change) -> Option<ConflictWhy> {
        match (self.0.get(&change.path), &change.old) {
            (Some(Some(found)), Some(now)) => (!is_as_found(found, now)).then_some(ConflictWhy::Changed),
            (Some(Some(_)), None) => Some(ConflictWhy::Gone),
            (Some(None) | None, Some(_)) => Some(ConflictWhy::Changed),
            (Some(None) | None, None) => None,
        }
    }
}

/// Writes it to disk.
pub(crate) fn write(layer: &Layer, changes: &Changes) -> Result<(), LayerError> {
    let seen = |change: &Change| (JournalPath(change.path.clone()), change.old.as_ref().map(Seen::of));
    let list: Vec<(JournalPath, Option<Seen>)> = changes.list.iter().map(seen).collect();
    let path = path(layer);
    let text = serde_json::to_vec(&list).map_err(io::Error::from);
    text.and_then(|text| write_atomic(&path, &text, Survives::Kill)).map_err(|source| LayerError::Store {
        step: "write",
        path,
        source,
    })
}

/// Discards it: the changes of the layer are about to change.
pub(crate) fn forget(layer: &Layer) -> Result<(), LayerError> {
    let path = path(layer);
    match fs::remove_file(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed.map_err(|source| LayerError::Store { step: "remove", path, source }),
    }
}

/// A directory's times change with its entries; if they are unchanged, so are its permissions and attributes.
fn is_as_found(found: &Seen, now: &Stat) -> bool {
    let has_its_attributes = found.kind != Kind::Directory
        || (found.mode == now.mode && (found.changed == now.changed || found.modified != now.modified));
    found.is_untouched(now) && has_its_attributes
}

fn path(layer: &Layer) -> PathBuf {
    layer.directory.join("found.json")
}
