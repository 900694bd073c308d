//! Records of ours as JSON: written whole or not at all.

use belljar_state::{Survives, write_atomic};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

/// Writes a file, whole or not at all, also if the machine stops. What could not be read back is not written.
pub(super) fn write_whole(path: &Path, value: &impl Serialize) -> io::Result<()> {
    // Without blanks: a list of a million empty words, which a registry may send, would be four times as long.
    let bytes = serde_json::to_vec(value)?;
    if bytes.len() as u64 > LARGEST {
        return Err(io::Error::other(format!("it would have more than {LARGEST} bytes")));
    }
    write_atomic(path, &bytes, Survives::PowerCut)
}

/// Whether a path is that of a whole record; otherwise its writer was killed.
pub(super) fn is_record(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "json")
}

/// A word that no other process or task uses now.
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
    use std::fs;

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
