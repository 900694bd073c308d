//! The place where a pack is inspected: an empty repository of ours, removed afterwards.

use belljar_git::ObjectFormat;
use belljar_state::{Lock, create_private};
use std::fs::{self, DirBuilder, File};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicU64, Ordering};

/// An empty repository. Removed when it is dropped; after a kill, by the next [`sweep`].
#[derive(Debug)]
pub(super) struct ScratchRepository {
    path: PathBuf,
    /// Held while the repository is in use.
    _lock: Lock,
}

impl ScratchRepository {
    pub(super) fn make(directory: &Path, format: ObjectFormat) -> io::Result<ScratchRepository> {
        create_private(directory)?;
        let _not_swept = Lock::wait(&directory.join(LOCK))?;
        let path = directory.join(name());
        // The number of a process that was killed may be ours by now.
        let _ = fs::remove_dir_all(&path);
        DirBuilder::new().mode(0o700).create(&path)?;
        let place = ScratchRepository { _lock: Lock::wait(&path.join(LOCK))?, path };
        place.fill(format)?;
        Ok(place)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    fn fill(&self, format: ObjectFormat) -> io::Result<()> {
        create_private(&self.path.join("objects/pack"))?;
        create_private(&self.path.join("refs"))?;
        let config = match format {
            ObjectFormat::Sha1 => "[core]\n\trepositoryformatversion = 0\n\tbare = true\n",
            ObjectFormat::Sha256 => {
                "[core]\n\trepositoryformatversion = 1\n\tbare = true\n[extensions]\n\tobjectformat = sha256\n"
            }
        };
        File::create(self.path.join("config"))?.write_all(config.as_bytes())?;
        File::create(self.path.join("HEAD"))?.write_all(b"ref: refs/heads/none\n")
    }
}

impl Drop for ScratchRepository {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// An empty, unlinked file.
pub(super) fn nameless(directory: &Path) -> io::Result<File> {
    create_private(directory)?;
    let path = directory.join(format!("{}.push", name()));
    // The number of a process that was killed may be ours by now.
    let _ = fs::remove_file(&path);
    let file = File::options().read(true).write(true).create_new(true).mode(0o600).open(&path)?;
    // Another process's sweep may have been faster.
    let _ = fs::remove_file(&path);
    Ok(file)
}

/// Removes repositories that no process uses any more.
pub(super) fn sweep(directory: &Path) {
    let Ok(entries) = fs::read_dir(directory) else { return };
    let Ok(_not_made) = Lock::wait(&directory.join(LOCK)) else { return };
    for entry in entries.flatten() {
        let path = entry.path();
        match path.is_dir() {
            true if !Lock::is_held(&path.join(LOCK)) => drop(fs::remove_dir_all(&path)),
            false if path.file_name() != Some(LOCK.as_ref()) => drop(fs::remove_file(&path)),
            true | false => {}
        }
    }
}

/// A name that this process did not use yet.
fn name() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    format!("{}-{}", process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

const LOCK: &str = "lock";
