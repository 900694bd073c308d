//! Remembers the repositories that were found below a folder, from one sandbox to the next. The search is short, and an agent that
//! makes a thousand folders would push the user's repositories out of it; so known ones come first.

use crate::settings::{contents, path_of};
use belljar_state::{Survives, create_private, write_atomic};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A directory of the host with a file for every folder that has such repositories.
#[derive(Debug, Clone)]
pub struct Memory {
    directory: PathBuf,
}

impl Memory {
    /// Below a state directory, which no sandbox can write to.
    pub fn at(state: &Path) -> Memory {
        Memory { directory: state.join("repositories") }
    }

    /// The repositories that were found below a folder and still exist, in the order in which they were found.
    pub(super) fn recall(&self, folder: &Path) -> Vec<PathBuf> {
        let Some(bytes) = self.file(folder).and_then(|file| contents(&file)) else { return Vec::new() };
        let mut lines = bytes.split(|byte| *byte == b'\n');
        // Another folder may have the same inode by now.
        if lines.next() != Some(folder.as_os_str().as_bytes()) {
            return Vec::new();
        }
        let tops = lines.filter(|line| !line.is_empty()).map(|line| folder.join(path_of(line)));
        let is_there = |top: &PathBuf| {
            let is_below = !top.components().any(|part| part.as_os_str() == "..");
            is_below && top.join(".git").symlink_metadata().is_ok_and(|git| !git.is_symlink())
        };
        tops.filter(is_there).take(MAX_REPOSITORIES).collect()
    }

    /// Stores them. If that fails, they are searched for the next time.
    pub(super) fn remember(&self, folder: &Path, found: &[PathBuf]) {
        let mut bytes = folder.as_os_str().as_bytes().to_vec();
        for top in found.iter().take(MAX_REPOSITORIES).filter_map(|top| top.strip_prefix(folder).ok()) {
            let name = top.as_os_str().as_bytes();
            if !name.contains(&b'\n') {
                bytes.push(b'\n');
                bytes.extend_from_slice(name);
            }
        }
        let Some(file) = self.file(folder) else { return };
        self.forget_folders_that_are_gone();
        let _ = create_private(&self.directory).and_then(|()| write_atomic(&file, &bytes, Survives::Kill));
    }

    fn forget_folders_that_are_gone(&self) {
        let files: Vec<PathBuf> =
            fs::read_dir(&self.directory).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
        if files.len() < MAX_FOLDERS {
            return;
        }
        for file in files {
            let folder =
                contents(&file).and_then(|bytes| bytes.split(|byte| *byte == b'\n').next().map(path_of));
            if folder.is_none_or(|folder| !folder.is_dir()) {
                let _ = fs::remove_file(file);
            }
        }
    }

    fn file(&self, folder: &Path) -> Option<PathBuf> {
        let found = folder.metadata().ok()?;
        Some(self.directory.join(format!("{:x}-{:x}", found.dev(), found.ino())))
    }
}

/// Limit of repositories of one folder. The first ones stay: an agent can add some, but push none out.
const MAX_REPOSITORIES: usize = 1024;
/// From here on, files of folders that are gone are removed.
const MAX_FOLDERS: usize = 256;
