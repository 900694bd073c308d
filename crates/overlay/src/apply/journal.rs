//! The journal of an apply on disk: `apply.staging`, then `apply.swapping`, then `apply.committed`.

use super::plan::{JournalPath, Step};
use crate::error::LayerError;
use crate::record::Layer;
use belljar_state::{Survives, write_atomic};
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io;
use std::path::PathBuf;

/// The planned steps of an apply.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Journal {
    /// The name of the staging directory, at the top of the folder.
    pub(super) staging: String,
    /// Whether the whole layer is applied.
    pub(super) whole: bool,
    pub(super) later: Later,
    pub(super) steps: Vec<Step>,
}

/// Entries that the layer need not hold afterwards.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Later {
    /// Applied.
    pub(super) drop: Vec<JournalPath>,
    /// Judged once: they no longer count as copies.
    pub(super) unmark: Vec<JournalPath>,
}

/// The state of an apply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// The folder is untouched.
    Staging,
    /// Each file of the folder is old or new.
    Swapping,
    /// All files are new.
    Committed,
}

impl Journal {
    pub(super) fn new(layer: &Layer, whole: bool, later: Later) -> Journal {
        Journal { staging: format!(".belljar-apply-{}", layer.id), whole, later, steps: Vec::new() }
    }

    /// Records this state. On disk when it returns.
    pub(super) fn write(&self, layer: &Layer, state: State) -> Result<(), LayerError> {
        let path = state.path(layer);
        let text = serde_json::to_vec(self).map_err(io::Error::from);
        text.and_then(|text| write_atomic(&path, &text, Survives::PowerCut))
            .map_err(|source| LayerError::Store { step: "write", path, source })
    }

    /// From here on an interrupted apply is finished, not undone.
    pub(super) fn commit(&self, layer: &Layer) -> Result<(), LayerError> {
        let (from, to) = (State::Swapping.path(layer), State::Committed.path(layer));
        let renamed = fs::rename(from, &to).and_then(|()| File::open(&layer.directory)?.sync_all());
        renamed.map_err(|source| LayerError::Store { step: "write", path: to, source })
    }

    pub(super) fn read(layer: &Layer, state: State) -> Result<Journal, LayerError> {
        let path = state.path(layer);
        let failed = |source| LayerError::Store { step: "read", path: path.clone(), source };
        let text = fs::read(&path).map_err(failed)?;
        serde_json::from_slice(&text).map_err(|error| failed(error.into()))
    }
}

/// The state of an apply, if there was one.
pub(super) fn find(layer: &Layer) -> Option<State> {
    [State::Committed, State::Swapping, State::Staging].into_iter().find(|state| state.path(layer).exists())
}

/// Removes the journal. The furthest state goes last: without it, an earlier one would count.
pub(super) fn remove(layer: &Layer) -> Result<(), LayerError> {
    for state in [State::Staging, State::Swapping, State::Committed] {
        let path = state.path(layer);
        match fs::remove_file(&path) {
            Err(source) if source.kind() != io::ErrorKind::NotFound => {
                return Err(LayerError::Store { step: "remove", path, source });
            }
            _ => {}
        }
    }
    Ok(())
}

impl State {
    fn path(self, layer: &Layer) -> PathBuf {
        layer.directory.join(match self {
            State::Staging => "apply.staging",
            State::Swapping => "apply.swapping",
            State::Committed => "apply.committed",
        })
    }
}
