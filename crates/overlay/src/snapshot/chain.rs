//! The layers below a sandbox: `chain.json` in its directory.

use super::error::SnapshotError;
use super::files::SandboxFiles;
use belljar_spec::SandboxId;
use belljar_state::damage::{read_small, understand};
use belljar_state::{Survives, write_atomic};
use serde::{Deserialize, Serialize};
use std::io::ErrorKind;

/// Layers that lie over each other, topmost first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Chain {
    pub layers: Vec<SandboxId>,
    /// The backend that wrote them. Whose files are whose is another question in each.
    pub backend: Option<String>,
}

#[derive(Serialize, Deserialize)]
struct Written {
    version: u32,
    layers: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    backend: Option<String>,
}

impl Chain {
    /// Of a sandbox, which may be running.
    pub fn of(files: &SandboxFiles) -> Result<Chain, SnapshotError> {
        let path = files.chain();
        let text = match read_small(&path, MAX_CHAIN_BYTES) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Chain::default()),
            Err(source) => return Err(SnapshotError::Store { step: "read", path, source }),
        };
        let damaged = |why: String| SnapshotError::Damaged { path: path.clone(), why };
        let Written { version: _, layers, backend } = understand(&text, &[VERSION]).map_err(damaged)?;
        Ok(Chain { layers: parse(layers).map_err(damaged)?, backend })
    }

    pub(super) fn write(&self, files: &SandboxFiles, survives: Survives) -> Result<(), SnapshotError> {
        let layers = self.layers.iter().map(SandboxId::to_string).collect();
        let written = Written { version: VERSION, layers, backend: self.backend.clone() };
        let text = serde_json::to_vec(&written).expect("plain data can be written as JSON");
        let path = files.chain();
        write_atomic(&path, &text, survives).map_err(|source| SnapshotError::Store {
            step: "write",
            path,
            source,
        })
    }
}

/// Names of layers, as they are written.
pub(super) fn parse(layers: Vec<String>) -> Result<Vec<SandboxId>, String> {
    let id = |layer: String| {
        SandboxId::parse(&layer).ok_or_else(|| format!("`{}` is no layer", layer.escape_debug()))
    };
    layers.into_iter().map(id).collect()
}

const VERSION: u32 = 1;
const MAX_CHAIN_BYTES: u64 = 64 * 1024;
