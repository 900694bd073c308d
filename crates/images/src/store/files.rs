//! Files of ours: written whole or not at all, and held.

use belljar_sys::rustix::fs::{FlockOperation, flock};
use belljar_sys::rustix::io::Errno;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

/// A hold on a file. It ends with the process, however that ends.
#[derive(Debug)]
pub(super) struct Hold(File);

impl Hold {
    /// Beside others.
    pub(super) fn shared(path: &Path) -> io::Result<Hold> {
        Hold::take(path, FlockOperation::LockShared)
    }

    /// Alone, as soon as nobody else has it.
    pub(super) fn alone(path: &Path) -> io::Result<Hold> {
        Hold::take(path, FlockOperation::LockExclusive)
    }

    /// Alone, if nobody else has it.
    pub(super) fn try_alone(path: &Path) -> io::Result<Option<Hold>> {
        match Hold::take(path, FlockOperation::NonBlockingLockExclusive) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            taken => taken.map(Some),
        }
    }

    fn take(path: &Path, how: FlockOperation) -> io::Result<Hold> {
        let file = OpenOptions::new().read(true).append(true).create(true).mode(0o600).open(path)?;
        loop {
            match flock(&file, how) {
                Ok(()) => return Ok(Hold(file)),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        // Closing is not enough: a process that another thread starts just now has the file open too, until it executes its
        // program.
        let _ = self.0.unlock();
    }
}

/// A directory of ours alone, with those above it.
pub(super) fn make_private(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Writes a file, whole or not at all, also if the machine stops. What could not be read back is not written.
pub(super) fn write_whole(path: &Path, value: &impl Serialize) -> io::Result<()> {
    // Without blanks: a list of a million empty words, which a registry may send, would be four times as long.
    let bytes = serde_json::to_vec(value)?;
    if bytes.len() as u64 > LARGEST {
        return Err(io::Error::other(format!("it would have more than {LARGEST} bytes")));
    }
    let unfinished = path.with_extension(format!("new-{}", unique()));
    let mut file =
        OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&unfinished)?;
    file.write_all(&bytes)?;
    file.sync_all()?;
    fs::rename(&unfinished, path)?;
    sync_directory(path.parent().unwrap_or(path))
}

/// Whether a path is that of a whole record; otherwise somebody was killed who wrote it.
pub(super) fn is_record(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "json")
}

/// A word that nobody else uses now.
pub(super) fn unique() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    format!("{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Reads one back; nothing if there is none. One that cannot be understood is [`io::ErrorKind::InvalidData`].
pub(super) fn read<T: DeserializeOwned>(path: &Path) -> io::Result<Option<T>> {
    let Some(bytes) = read_bytes(path)? else { return Ok(None) };
    let unreadable =
        |error| io::Error::new(io::ErrorKind::InvalidData, format!("it cannot be understood: {error}"));
    serde_json::from_slice(&bytes).map(Some).map_err(unreadable)
}

/// What is in one, as far as we read.
pub(super) fn read_bytes(path: &Path) -> io::Result<Option<Vec<u8>>> {
    let file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        file => file?,
    };
    let mut bytes = Vec::new();
    file.take(LARGEST).read_to_end(&mut bytes)?;
    Ok(Some(bytes))
}

/// So that a name survives the machine's stopping.
pub(super) fn sync_directory(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

/// What a record of ours can have: a configuration is bounded.
const LARGEST: u64 = 16 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_could_not_be_read_back_is_not_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("record.json");
        // With its two quotes it is one byte too long.
        let word = "x".repeat(LARGEST as usize - 1);
        assert!(write_whole(&path, &word).is_err());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
        write_whole(&path, &&word[1..]).unwrap();
        assert_eq!(read::<String>(&path).unwrap().unwrap().len(), word.len() - 1);
    }
}
