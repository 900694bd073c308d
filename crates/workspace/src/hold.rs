//! Holds on what belljar keeps, and files that are written whole.

use crate::remove::remove;
use belljar_sys::rustix::fs::{FlockOperation, OFlags, flock};
use belljar_sys::rustix::io::Errno;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::process::Stdio;

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

    /// Whether somebody holds it. Only looks: a file that is not there is not made.
    pub(crate) fn is_held(path: &Path) -> bool {
        let opened = OpenOptions::new().read(true).custom_flags(NO_WAIT).open(path);
        let Ok(file) = opened else { return false };
        flock(&file, FlockOperation::NonBlockingLockExclusive) == Err(Errno::WOULDBLOCK)
    }

    /// The hold as the input of a program, which then keeps it as long as it runs, even if we die.
    pub(crate) fn as_input(&self) -> io::Result<Stdio> {
        Ok(Stdio::from(self.file.try_clone()?))
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

/// Removes a directory of ours: for everybody else at once, whole, and under another name until it is gone. A kill leaves
/// only that, for [`sweep_gone`].
pub(crate) fn remove_whole(directory: &Path) -> io::Result<()> {
    let name = directory.file_name().unwrap_or_default().to_string_lossy();
    let gone = directory.with_file_name(format!("{GONE}{}-{name}", std::process::id()));
    fs::rename(directory, &gone)?;
    remove(&gone)
}

/// Goes on with what a killed [`remove_whole`] left in a directory. Another one may be at it: both come to the same end.
pub(crate) fn sweep_gone(parent: &Path) {
    let entries = fs::read_dir(parent).into_iter().flatten().flatten();
    for entry in entries.filter(|entry| entry.file_name().as_encoded_bytes().starts_with(GONE.as_bytes())) {
        let _ = remove(&entry.path());
    }
}

const GONE: &str = ".gone-";
/// What is no file is not waited for.
const NO_WAIT: i32 = OFlags::NONBLOCK.bits().cast_signed();
