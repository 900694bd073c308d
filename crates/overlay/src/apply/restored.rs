//! Files that an apply put there, or removed and put back. Their ctime is later than the layer, so that they would count as changed
//! on the host; their state is recorded, and while it matches they count as unchanged.

use super::plan::{JournalPath, Seen};
use crate::error::LayerError;
use crate::path::RelPath;
use crate::record::Layer;
use crate::stat::Stat;
use belljar_state::{Survives, write_atomic};
use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::PathBuf;

/// Files that we put there, in their state at that time.
#[derive(Debug, Default)]
pub(super) struct Restored(HashMap<RelPath, Seen>);

impl Restored {
    pub(super) fn read(layer: &Layer) -> Result<Restored, LayerError> {
        let path = path(layer);
        let failed = |source| LayerError::Store { step: "read", path: path.clone(), source };
        let text = match fs::read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Restored::default()),
            text => text.map_err(failed)?,
        };
        let list: Vec<(JournalPath, Seen)> =
            serde_json::from_slice(&text).map_err(|error| failed(error.into()))?;
        Ok(Restored(list.into_iter().map(|(JournalPath(path), seen)| (path, seen)).collect()))
    }

    /// Whether it is unchanged since.
    pub(super) fn knows(&self, path: &RelPath, stat: &Stat) -> bool {
        self.0.get(path).is_some_and(|seen| seen.is_untouched(stat))
    }

    /// Adds these.
    pub(super) fn add(mut self, more: Vec<(RelPath, Seen)>, layer: &Layer) -> Result<(), LayerError> {
        if more.is_empty() {
            return Ok(());
        }
        self.0.extend(more);
        let list: Vec<(JournalPath, Seen)> =
            self.0.into_iter().map(|(path, seen)| (JournalPath(path), seen)).collect();
        let path = path(layer);
        let text = serde_json::to_vec(&list).map_err(io::Error::from);
        text.and_then(|text| write_atomic(&path, &text, Survives::PowerCut))
            .map_err(|source| LayerError::Store { step: "write", path: path.clone(), source })
    }
}

fn path(layer: &Layer) -> PathBuf {
    layer.directory.join("restored.json")
}
