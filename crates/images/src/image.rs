//! An image that is here, and stays here for as long as a process or a pin holds it.

use crate::digest::Digest;
use crate::error::ImageError;
use crate::store::pins;
use belljar_spec::ImageName;
use belljar_state::Lock;
use std::path::{Path, PathBuf};

/// An image that is here.
#[derive(Debug)]
pub struct Image {
    /// As it was asked for.
    pub name: ImageName,
    /// Of its manifest, or of its configuration if it was imported without one.
    pub digest: Digest,
    /// Directories for an overlay, topmost first; at least one, none twice. Whiteouts are devices 0:0 or marked in
    /// `user.overlay.*`, as an overlay with `userxattr` has them.
    pub lowers: Vec<PathBuf>,
    /// Its variables, in its order.
    pub environment: Vec<(String, String)>,
    /// `name`, `name:group`, `uid` or `uid:gid`, as it was written; not resolved.
    pub user: Option<String>,
    pub working_dir: Option<String>,
    /// What it would run: its entry point and then its command.
    pub command: Vec<String>,
    /// While this lives, no layer of it is removed.
    pub lease: Lease,
    pub(crate) layers: Vec<Digest>,
    pub(crate) store: PathBuf,
}

impl Image {
    /// Keeps its layers for as long as the directory `owner` exists, whether or not a process has them: a stopped sandbox
    /// still needs what lies beneath its changes. [`Store::pinned`](crate::Store::pinned) finds it again.
    pub fn pin(&self, owner: &Path) -> Result<(), ImageError> {
        pins::write(&self.store, owner, self)
    }
}

/// A hold on layers. It ends with the process, however that ends.
#[derive(Debug)]
pub struct Lease {
    pub(crate) _locks: Vec<Lock>,
}
