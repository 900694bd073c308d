//! From a layer's blob to a directory that an overlay can be made of.
//!
//! Decides what each entry becomes: files, directories and links as they are, whiteouts as overlayfs has them; devices and
//! pipes are left out. The kernel keeps all of it beneath the directory (`tree.rs`), whatever the names say. Nothing in
//! here trusts a length, and nothing gains a privilege: set-id bits and capabilities of files are dropped, and owners are
//! only set by root, whose sandboxes map them to unprivileged ids outside.

mod account;
mod attributes;
mod bounded;
mod directories;
mod error;
mod path;
mod tree;
mod whiteout;
mod work;

pub(crate) use bounded::{Bounded, Hit};
pub use error::UnpackError;

use crate::compression::decompress;
use crate::digest::Digest;
use crate::limits::Limits;
use bounded::Hashed;
use std::io::{BufReader, Read};
use std::path::Path;
use tree::Tree;

/// What a layer came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unpacked {
    /// Of the archive, without its compression.
    pub diff_id: Digest,
    /// Files, directories, links and whiteouts, also those directories that are only on the way to something.
    pub entries: u64,
    /// Of files.
    pub bytes: u64,
    /// Of the disk, about.
    pub taken: u64,
    pub skipped: Skipped,
}

/// What was in a layer and is not in its directory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Skipped {
    /// Devices and pipes.
    pub nodes: u64,
    /// Attributes but `user.*`.
    pub attributes: u64,
    /// Files that lost their set-id bits.
    pub set_id: u64,
}

/// Unpacks a blob of `size` bytes into an empty directory of ours. After an error, what is in there is of no use.
pub fn unpack(blob: impl Read, size: u64, into: &Path, limits: &Limits) -> Result<Unpacked, UnpackError> {
    let tree = Tree::open(into, limits)?;
    let archive = decompress(blob).map_err(UnpackError::Blob)?;
    let bounded = Bounded::new(Hashed::new(archive), limits.layer_bytes, size, limits);
    let mut work = work::Work::new(tree, BufReader::with_capacity(BUFFER, bounded));
    work.entries()?;
    work.finish()
}

const BUFFER: usize = 128 << 10;
