//! Errors of snapshots.

use belljar_spec::{ErrorCode, SandboxError, SnapshotName, Term, hint};
use std::io;
use std::path::PathBuf;

/// Errors of snapshots.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    #[error("cannot {step} `{}`", .path.display())]
    Store {
        step: &'static str,
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("`{}` is damaged: {why}", .path.display())]
    Damaged { path: PathBuf, why: String },
    #[error("there is no snapshot `{0}`")]
    Unknown(SnapshotName),
    #[error("there is a snapshot `{0}` already")]
    NameTaken(SnapshotName),
    #[error("the name `{0}` has the form of an id, which belljar gives")]
    NameIsId(SnapshotName),
    #[error("{0} layers lie below the sandbox, and no more than {1} can")]
    TooManyLayers(usize, usize),
    #[error(
        "nothing of the sandbox can be in a snapshot: it keeps neither a home nor a root nor a workspace"
    )]
    NothingToTake,
    #[error("`{path}` cannot be copied")]
    Copy {
        path: String,
        #[source]
        source: io::Error,
    },
    #[error("the files to copy are more than {0} bytes")]
    TooLarge(u64),
    #[error("`{}` is on a filesystem that overlays cannot write to: {why}", .path.display())]
    Filesystem { path: PathBuf, why: &'static str },
}

impl SnapshotError {
    pub(super) fn store(
        step: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(io::Error) -> SnapshotError {
        let path = path.into();
        move |source| SnapshotError::Store { step, path, source }
    }
}

/// As a user-facing error: what happened, to which snapshot or file, and what to do next.
impl From<SnapshotError> for SandboxError {
    fn from(error: SnapshotError) -> SandboxError {
        let source =
            std::error::Error::source(&error).map(|source| format!(": {source}")).unwrap_or_default();
        let message = format!("{error}{source}");
        let made = match &error {
            SnapshotError::Store { source, .. } | SnapshotError::Copy { source, .. } => match source.kind() {
                io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                    ErrorCode::DiskFull.error(message).hint("make room, and try again; nothing was changed")
                }
                _ => ErrorCode::StateFailed.error(message),
            },
            SnapshotError::Damaged { .. } => ErrorCode::StateFailed
                .error(message)
                .hint("no layer is removed until it can be read: put it right, or remove what it belongs to"),
            SnapshotError::Unknown(_) => ErrorCode::NotFound
                .error(message)
                .hint(hint!("{} lists those that there are", Term::ListSnapshots)),
            SnapshotError::NameTaken(_) => {
                ErrorCode::NameTaken.error(message).hint("use another name, or remove that snapshot first")
            }
            SnapshotError::NameIsId(_) => {
                ErrorCode::RequestValue.error(message).hint("use a name that does not begin with `snap-`")
            }
            SnapshotError::TooManyLayers(..) => ErrorCode::NotSupported.error(message).hint(
                "remove snapshots and checkpoints that are not needed, then stop the sandbox: its layers are merged",
            ),
            SnapshotError::NothingToTake => {
                ErrorCode::NotSupported.error(message).hint("make it persistent, or make it from a snapshot")
            }
            SnapshotError::Filesystem { .. } => ErrorCode::NotSupported
                .error(message)
                .hint("set XDG_STATE_HOME to a folder on ext4, XFS, btrfs or tmpfs: in a container, a volume"),
            SnapshotError::TooLarge(_) => ErrorCode::NotSupported
                .error(message)
                .hint("end what runs in the sandbox: its files then become a layer without being copied"),
        };
        made.caused_by(error)
    }
}
