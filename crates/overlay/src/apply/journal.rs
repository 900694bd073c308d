//! What an apply is about to do, on disk: `apply.staging`, then `apply.swapping`, then `apply.committed`.

use super::plan::{JournalPath, Step};
use crate::error::LayerError;
use crate::record::Layer;
use belljar_state::{Survives, write_atomic};
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io;
use std::path::PathBuf;

/// What an apply is about to do.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Journal {
    /// The name of the staging place, at the top of the folder.
    pub(super) staging: String,
    /// Whether all of the layer is applied.
    pub(super) whole: bool,
    pub(super) later: Later,
    pub(super) steps: Vec<Step>,
}

/// What the layer need not hold any longer, afterwards.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Later {
    /// Applied.
    pub(super) drop: Vec<JournalPath>,
    /// Judged once: no copy any longer.
    pub(super) unmark: Vec<JournalPath>,
}

/// How far it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// The folder is untouched.
    Staging,
    /// Files of the folder are old or new.
    Swapping,
    /// All of them are new.
    Committed,
}

impl Journal {
    pub(super) fn new(layer: &Layer, whole: bool, later: Later) -> Journal {
        Journal { staging: format!(".belljar-apply-{}", layer.id), whole, later, steps: Vec::new() }
    }

    /// Says that this is the state now. On disk when it returns.
    pub(super) fn write(&self, layer: &Layer, state: State) -> Result<(), LayerError> {
        let path = state.path(layer);
        let text = serde_json::to_vec(self).map_err(io::Error::from);
        text.and_then(|text| write_atomic(&path, &text, Survives::PowerCut))
            .map_err(|source| LayerError::Store { step: "write", path, source })
    }

    /// From here on it is finished, not undone.
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

/// How far an apply was, if there was one.
pub(super) fn find(layer: &Layer) -> Option<State> {
    [State::Committed, State::Swapping, State::Staging].into_iter().find(|state| state.path(layer).exists())
}

/// It is over. The state that says the most goes last: without it, another one would count.
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
