//! Which folder a sandbox works on. A path can come to mean another folder while a sandbox lives, which continues to work on the
//! old one: a clone that is made anew, a folder that is moved elsewhere.

use belljar_spec::request::HostPath;
use belljar_spec::{ErrorCode, SandboxError, Term, hint};
use serde::{Deserialize, Serialize};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// A folder, whatever its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FolderId {
    pub device: u64,
    pub inode: u64,
}

impl FolderId {
    /// Of the folder that is at this path now.
    pub fn of(path: impl AsRef<Path>) -> Option<FolderId> {
        let found = path.as_ref().metadata().ok()?;
        Some(FolderId { device: found.dev(), inode: found.ino() })
    }

    /// Refuses if the folder at this path is no longer this one.
    pub(crate) fn must_be_at(self, path: &HostPath) -> Result<(), SandboxError> {
        let message = match FolderId::of(&**path) {
            Some(now) if now == self => return Ok(()),
            Some(_) => {
                format!(
                    "`{path}` is another folder than when its sandbox started, which works on the old one"
                )
            }
            None => format!("`{path}` is not there any more, and its sandbox works on what it was"),
        };
        Err(ErrorCode::PathMoved.error(message).hint(hint!(
            "stop the sandbox ({}), then try again: it starts with the folder that is there",
            Term::StopSandbox
        )))
    }
}
