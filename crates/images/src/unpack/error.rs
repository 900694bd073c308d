//! Why a layer is refused.

use crate::disk::Full;
use crate::tar::TarError;
use std::io;

/// Why a layer is refused.
#[derive(Debug, thiserror::Error)]
pub enum UnpackError {
    #[error("cannot read the layer")]
    Blob(#[source] io::Error),
    #[error(transparent)]
    Archive(#[from] TarError),
    #[error("the layer is larger than {0} bytes")]
    TooLarge(u64),
    #[error("the layer is more than {0} times larger than what it was packed into")]
    TooDense(u64),
    #[error("the layer has more than {0} entries")]
    TooMany(u64),
    #[error("the layer has too many directories, or too long names of them")]
    TooWide,
    #[error(transparent)]
    NoSpace(#[from] Full),
    #[error("the layer names {0}, which leads out of it")]
    Outside(String),
    #[error("the layer names {0}, which is no path")]
    NoPath(String),
    #[error("the layer has {0} below what is no directory")]
    Through(String),
    #[error("the layer links {path} to {to}, which it has not")]
    NoTarget { path: String, to: String },
    #[error("cannot {step} {path}")]
    File {
        step: &'static str,
        path: String,
        #[source]
        source: io::Error,
    },
}

/// A name of the layer's, such that it cannot speak to a terminal.
pub(super) fn quoted(path: &[u8]) -> String {
    const MAX_SHOWN_BYTES: usize = 200;
    let shown = path[..path.len().min(MAX_SHOWN_BYTES)].escape_ascii();
    if path.len() > MAX_SHOWN_BYTES { format!("`{shown}…`") } else { format!("`{shown}`") }
}
