//! Holds on what belljar keeps, and files that are written whole.

use belljar_sys::rustix::fs::{FlockOperation, flock};
use belljar_sys::rustix::io::Errno;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

/// A hold on a file of ours: others wait, or see it. It ends with the process, however that ends.
#[derive(Debug)]
pub struct Hold {
    file: File,
}

impl Hold {
    /// Waits until nobody else holds it.
    pub(crate) fn wait(path: &Path) -> io::Result<Hold> {
        let hold = Hold::open(path)?;
        loop {
            match flock(&hold.file, FlockOperation::LockExclusive) {
                Ok(()) => return Ok(hold),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Holds it alone, if nobody else does.
    pub(crate) fn alone(path: &Path) -> io::Result<Option<Hold>> {
        let hold = Hold::open(path)?;
        match flock(&hold.file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(hold)),
            Err(Errno::WOULDBLOCK) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Holds it beside others.
    pub(crate) fn together(path: &Path) -> io::Result<Hold> {
        let hold = Hold::open(path)?;
        flock(&hold.file, FlockOperation::LockShared)?;
        Ok(hold)
    }

    /// Is the file that is held the one at this path? It may have been removed while we waited.
    pub(crate) fn is_at(&self, path: &Path) -> bool {
        let same = |a: fs::Metadata, b: fs::Metadata| (a.dev(), a.ino()) == (b.dev(), b.ino());
        self.file.metadata().ok().zip(fs::metadata(path).ok()).is_some_and(|(a, b)| same(a, b))
    }

    fn open(path: &Path) -> io::Result<Hold> {
        let file = OpenOptions::new().read(true).append(true).create(true).mode(0o600).open(path)?;
        Ok(Hold { file })
    }
}

/// Writes a file of ours, whole or not at all.
pub(crate) fn write_whole(path: &Path, content: &[u8]) -> io::Result<()> {
    let unfinished = path.with_extension("new");
    fs::write(&unfinished, content)?;
    fs::rename(&unfinished, path)
}
