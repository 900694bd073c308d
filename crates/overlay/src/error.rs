//! Errors of layers.

use super::id::LayerId;
use super::path::RelPath;
use super::quote;
use belljar_spec::{CommandLine, ErrorCode, SandboxError, hint};
use belljar_state::damage::Damaged;
use serde::Serialize;
use std::fmt;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// Errors of layers.
#[derive(Debug, thiserror::Error)]
pub enum LayerError {
    #[error("cannot {step} `{}`", quote::name(.path.as_os_str().as_bytes()))]
    Store {
        step: &'static str,
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("cannot read {path} of the layer and of its folder")]
    Read {
        path: String,
        #[source]
        source: io::Error,
    },
    #[error("the layer {0} is in use by a sandbox that is still running")]
    InUse(LayerId),
    #[error("the layer {0} is gone")]
    Gone(LayerId),
    #[error("the layer {0}")]
    Damaged(Damaged),
    #[error("`{}` is not the directory that the layer {id} was made for", quote::name(.folder.as_os_str().as_bytes()))]
    FolderChanged { id: LayerId, folder: PathBuf },
    #[error("nothing was applied: {} on this machine since the sandbox started", conflicted(.0))]
    Conflicts(Vec<Conflict>),
    #[error("nothing was applied: {path} cannot be {step}")]
    Apply {
        path: String,
        step: &'static str,
        #[source]
        source: io::Error,
    },
    #[error("the apply of layer {id} that was cut short cannot be undone: {path}")]
    Undo {
        id: LayerId,
        path: String,
        #[source]
        source: io::Error,
    },
    #[error("the layer {id} has no change at or below {path}")]
    NoSuchChange { id: LayerId, path: RelPath },
}

/// A file that differs from what the sandbox saw.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Conflict {
    pub path: RelPath,
    pub why: ConflictWhy,
}

/// The kind of conflict.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ConflictWhy {
    /// Changed, or created, on the host since the layer was made.
    Changed,
    /// The layer changed it, and it was deleted on the host.
    Gone,
    /// Changed while it was being applied.
    Meanwhile,
    /// An entry that is not a directory, or another filesystem, is in the way.
    InTheWay,
}

impl LayerError {
    pub(super) fn read(path: &[u8], source: io::Error) -> LayerError {
        let path = if path.is_empty() { "the top".to_string() } else { format!("`{}`", quote::name(path)) };
        LayerError::Read { path, source }
    }

    pub(super) fn apply(path: &RelPath, step: &'static str, source: io::Error) -> LayerError {
        LayerError::Apply { path: format!("`{path}`"), step, source }
    }
}

impl ConflictWhy {
    /// A short description.
    pub fn words(self) -> &'static str {
        match self {
            ConflictWhy::Changed => "changed on this machine since the sandbox started",
            ConflictWhy::Gone => "changed in the sandbox, and no longer there on this machine",
            ConflictWhy::Meanwhile => "changed on this machine while it was being applied",
            ConflictWhy::InTheWay => "cannot be reached: a link, a file or another filesystem is in the way",
        }
    }
}

impl fmt::Display for Conflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.why.words())
    }
}

/// As a user-facing error: what happened, to which layer or file, and what to do next.
impl From<LayerError> for SandboxError {
    fn from(error: LayerError) -> SandboxError {
        let source =
            std::error::Error::source(&error).map(|source| format!(": {source}")).unwrap_or_default();
        let message = format!("{error}{source}");
        let made = match &error {
            LayerError::Conflicts(list) => {
                let lines: String =
                    list.iter().take(SHOWN).map(|conflict| format!("\n  {conflict}")).collect();
                let more = list.len().saturating_sub(SHOWN);
                let more = if more > 0 { format!("\n  and {more} more") } else { String::new() };
                ErrorCode::WorkUnsaved.error(format!("{message}{lines}{more}")).hint(hint!(
                    "apply the other files by naming them, or merge one by hand: {}",
                    CommandLine::DiffPatch
                ))
            }
            LayerError::InUse(_) => ErrorCode::InUse
                .error(message)
                .hint(hint!("wait until its command has ended; {} shows what runs", CommandLine::Layers)),
            LayerError::Gone(_) => {
                ErrorCode::WorkNotFound.error(message).hint(hint!("see {}", CommandLine::Layers))
            }
            LayerError::NoSuchChange { .. } => ErrorCode::WorkNotFound
                .error(message)
                .hint(hint!("{} lists what there is", CommandLine::DiffNames)),
            LayerError::Damaged(damaged) => damaged.error(),
            LayerError::FolderChanged { .. } => ErrorCode::PathMoved.error(message).hint(hint!(
                "a link or another directory is in its place, or in that of one around it: put the \
                     right one back, or remove the layer with {}",
                CommandLine::Discard
            )),
            LayerError::Undo { .. } => ErrorCode::WorkspaceFailed
                .error(message)
                .hint(hint!("make it reachable and writable again, then call {}", CommandLine::Apply)),
            LayerError::Store { .. } | LayerError::Read { .. } => ErrorCode::WorkspaceFailed.error(message),
            LayerError::Apply { source, .. } => {
                let error = ErrorCode::WorkspaceFailed.error(message);
                match source.kind() {
                    io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                        error.hint("make room: everything is copied beside the folder's files before the first is replaced")
                    }
                    _ => error.hint("nothing has changed; mend the cause and call it again"),
                }
            }
        };
        made.caused_by(error)
    }
}

fn conflicted(list: &[Conflict]) -> String {
    match list.len() {
        1 => "a file changed".to_string(),
        more => format!("{more} files changed"),
    }
}

/// More lines than this do not help the user.
const SHOWN: usize = 50;
