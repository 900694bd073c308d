//! Directories of the folder that an apply of this layer changed, or was about to. Their ctime no longer tells whether another
//! process changed them since the layer was made.

use super::journal::Journal;
use crate::error::LayerError;
use crate::path::RelPath;
use crate::record::Layer;
use belljar_state::{Survives, write_atomic};
use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::PathBuf;

/// Directories that we changed; in the journal's encoding, and empty for the folder itself.
#[derive(Debug, Default)]
pub(super) struct Touched(BTreeSet<String>);

impl Touched {
    pub(super) fn read(layer: &Layer) -> Result<Touched, LayerError> {
        let path = path(layer);
        let failed = |source| LayerError::Store { step: "read", path: path.clone(), source };
        let text = match fs::read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Touched::default()),
            text => text.map_err(failed)?,
        };
        Ok(Touched(serde_json::from_slice(&text).map_err(|error| failed(error.into()))?))
    }

    /// Whether we changed this directory (empty for the folder itself).
    pub(super) fn has(&self, directory: &[u8]) -> bool {
        self.0.contains(&encoded(directory))
    }

    /// Adds the directories that this journal is about to change. Written before the change, since an apply can be interrupted.
    pub(super) fn add(mut self, journal: &Journal, layer: &Layer) -> Result<(), LayerError> {
        // The staging directory is made and removed at the top.
        self.0.insert(String::new());
        for step in &journal.steps {
            self.0.insert(encoded(step.path().parent()));
            self.0.insert(step.path().encode());
        }
        let path = path(layer);
        let text = serde_json::to_vec(&self.0).map_err(io::Error::from);
        text.and_then(|text| write_atomic(&path, &text, Survives::PowerCut))
            .map_err(|source| LayerError::Store { step: "write", path: path.clone(), source })
    }
}

fn encoded(directory: &[u8]) -> String {
    if directory.is_empty() { String::new() } else { RelPath::child(b"", directory).encode() }
}

fn path(layer: &Layer) -> PathBuf {
    layer.directory.join("touched.json")
}
