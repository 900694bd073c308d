//! The label of a layer: `layer.json`.

use super::error::LayerError;
use super::id::LayerId;
use super::stat::{Identity, Moment};
use belljar_spec::workspace::ProtectedPath;
use belljar_state::damage::{self, Damaged};
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A layer, with its label.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layer {
    pub id: LayerId,
    /// The folder whose changes it holds.
    pub folder: PathBuf,
    /// The identity of that directory: another one in its place is never written to.
    pub(super) identity: Identity,
    /// Its own directory.
    pub directory: PathBuf,
    /// The upper directory, with the changes.
    pub upper: PathBuf,
    /// The work directory of overlayfs.
    pub work: PathBuf,
    /// A file of the folder that changed at or after this time differs from what the sandbox saw.
    pub stamp: Moment,
    pub created: SystemTime,
    /// The policy's protected paths, besides those that are never applied anyway.
    pub protected: Vec<ProtectedPath>,
}

impl Layer {
    pub(super) fn new(id: LayerId, directory: PathBuf, written: Written, created: SystemTime) -> Layer {
        let Written { folder, identity, stamp, protected } = written;
        let (upper, work) = (directory.join("upper"), directory.join("work"));
        Layer { id, folder, identity, directory, upper, work, stamp, created, protected }
    }

    /// As text for the file.
    pub(super) fn to_json(&self) -> String {
        let created = self.created.duration_since(UNIX_EPOCH).unwrap_or_default();
        let file = File {
            version: VERSION,
            folder: self.folder.as_os_str().as_bytes().to_vec(),
            identity: self.identity,
            stamp: self.stamp,
            created_nanos: u64::try_from(created.as_nanos()).unwrap_or(u64::MAX),
            protected: self.protected.iter().map(ProtectedPath::to_string).collect(),
        };
        serde_json::to_string(&file).expect("plain data can be written as JSON")
    }

    pub(super) fn read(id: LayerId, directory: &Path) -> Result<Layer, LayerError> {
        let damaged = |reason: String| LayerError::Damaged(Damaged::new(id.to_string(), directory, reason));
        let file: Option<File> =
            damage::read_label(&directory.join("layer.json"), &[VERSION]).map_err(damaged)?;
        let file = file.ok_or(LayerError::Gone(id))?;
        let protected: Result<Vec<ProtectedPath>, _> =
            file.protected.iter().map(|path| path.parse()).collect();
        let written = Written {
            folder: OsString::from_vec(file.folder).into(),
            identity: file.identity,
            stamp: file.stamp,
            protected: protected.map_err(|error| damaged(error.to_string()))?,
        };
        let created = UNIX_EPOCH + Duration::from_nanos(file.created_nanos);
        Ok(Layer::new(id, directory.to_path_buf(), written, created))
    }
}

/// The facts known at creation.
pub(super) struct Written {
    pub(super) folder: PathBuf,
    pub(super) identity: Identity,
    pub(super) stamp: Moment,
    pub(super) protected: Vec<ProtectedPath>,
}

/// The file.
#[derive(Serialize, Deserialize)]
struct File {
    version: u32,
    /// Bytes: a path need not be valid UTF-8.
    folder: Vec<u8>,
    identity: Identity,
    stamp: Moment,
    created_nanos: u64,
    protected: Vec<String>,
}

/// Version 1 had no identity of the folder.
const VERSION: u32 = 2;
