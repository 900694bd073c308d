//! A git directory that an agent writes to, as the host may touch it: file by file, below one descriptor, following no link
//! and waiting for no pipe. git itself is never started on it.
//!
//! [`Foreign`] reads refs and writes single files; [`import`] takes commits over into a repository of ours. Called by
//! [`crate::managed`], [`crate::clone`] and [`crate::private_git`].

mod all_refs;
mod directory;
mod import;
mod objects;
mod refs;

pub use all_refs::AllRefs;
pub use directory::ForeignError;
pub(crate) use directory::{BENEATH_ONLY, Locked, make_folder};
pub use import::{Import, ImportError, import};
pub(crate) use objects::Copied;
pub use refs::Head;
pub(crate) use refs::excludes;

use belljar_git::ObjectId;
use directory::Directory;
use std::path::Path;

/// A git directory that an agent writes to.
pub struct Foreign {
    directory: Directory,
}

impl Foreign {
    /// Opens the existing one. No agent can change the path that leads to it.
    pub fn open(git_directory: &Path) -> Result<Foreign, ForeignError> {
        Ok(Foreign { directory: Directory::open(git_directory)? })
    }

    /// The content of a regular file in it, if it exists; more than `most` bytes are refused.
    pub fn read(&self, path: &str, most: u64) -> Result<Option<Vec<u8>>, ForeignError> {
        self.directory.read(path, most)
    }

    /// A regular file in it, opened, if it exists.
    pub(crate) fn file(&self, path: &str) -> Result<Option<std::fs::File>, ForeignError> {
        self.directory.file(path)
    }

    /// The names in a directory of it; none if it does not exist.
    pub(crate) fn names(&self, path: &str) -> Result<Vec<String>, ForeignError> {
        self.directory.below(path)?.map_or_else(|| Ok(Vec::new()), |directory| directory.names())
    }

    /// A subdirectory as its own [`Foreign`], if it exists.
    pub fn below(&self, path: &str) -> Result<Option<Foreign>, ForeignError> {
        Ok(self.directory.below(path)?.map(|directory| Foreign { directory }))
    }

    /// Does an entry of any kind exist?
    pub fn has(&self, path: &str) -> bool {
        self.directory.has(path)
    }

    /// Does it have this object as a loose file?
    pub(crate) fn has_loose(&self, id: &ObjectId) -> bool {
        let (folder, name) = id.as_str().split_at(2);
        self.directory.has(&format!("objects/{folder}/{name}"))
    }

    /// Writes a file atomically, the way git itself does: a git that runs inside meanwhile sees its lock.
    pub fn write(&self, path: &str, content: &[u8]) -> Result<(), ForeignError> {
        self.directory.write(path, content)
    }

    /// Takes git's own lock of a file; `None` if a git inside has it.
    pub(crate) fn lock(&self, path: &str) -> Result<Option<Locked>, ForeignError> {
        self.directory.lock(path)
    }

    /// The same for files that no sandbox can be writing: worktrees that no sandbox uses.
    pub fn put(&self, path: &str, content: &[u8]) -> Result<(), ForeignError> {
        self.directory.put(path, content)
    }

    /// Removes a directory with everything in it.
    pub fn remove_tree(&self, path: &str) -> Result<(), ForeignError> {
        self.directory.remove_tree(path)
    }

    /// Writes a file of ours under a new name, or keeps the existing one.
    pub fn take_file(&self, from: &Path, path: &str) -> Result<(), ForeignError> {
        self.directory.take_file(from, path)
    }
}

/// Parses an object's name.
pub(crate) fn object(text: &str) -> Option<ObjectId> {
    text.parse().ok()
}
