//! A cache of the last index that was read, and of its files. An index of 100,000 files takes some milliseconds to read, and most
//! do not change between the start of a sandbox and its end.

use super::index::Index;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The gitlinks of these files: from the cache, or else from `read`.
pub(super) fn or_else(files: Vec<PathBuf>, read: fn(&[PathBuf]) -> Index) -> Index {
    // The metadata is taken before reading: a file that changes in between is read again the next time.
    let stamps: Option<Vec<Stamp>> = files.iter().map(Stamp::of).collect();
    let Some(stamps) = stamps.filter(|stamps| !stamps.is_empty() && stamps.iter().all(Stamp::is_settled))
    else {
        return read(&files);
    };
    let known = |known: &[Known]| known.iter().find(|one| one.stamps == stamps).map(|one| one.index.clone());
    if let Some(index) = known(&KNOWN.lock().unwrap_or_else(PoisonError::into_inner)) {
        return index;
    }
    let index = read(&files);
    if index.repositories.len() <= MAX_REPOSITORIES {
        let mut all = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        let excess = (all.len() + 1).saturating_sub(MAX_KNOWN);
        all.drain(..excess);
        all.push(Known { stamps, index: index.clone() });
    }
    index
}

struct Known {
    stamps: Vec<Stamp>,
    index: Index,
}

/// Identifies the version of a file that was read.
#[derive(PartialEq, Eq)]
struct Stamp {
    path: PathBuf,
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
    /// The ctime, which no program can set back.
    changed: (i64, i64),
}

impl Stamp {
    fn of(path: &PathBuf) -> Option<Stamp> {
        let found = fs::symlink_metadata(path).ok().filter(fs::Metadata::is_file)?;
        Some(Stamp {
            path: path.clone(),
            device: found.dev(),
            inode: found.ino(),
            size: found.size(),
            modified: (found.mtime(), found.mtime_nsec()),
            changed: (found.ctime(), found.ctime_nsec()),
        })
    }

    /// Whether it changed long enough ago that a later change has another time: the clock of files is coarse.
    fn is_settled(&self) -> bool {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let changed = u64::try_from(self.changed.0).map(Duration::from_secs).unwrap_or(Duration::MAX);
        changed.saturating_add(SETTLED_AFTER) < now
    }
}

static KNOWN: Mutex<Vec<Known>> = Mutex::new(Vec::new());
/// A daemon has several folders.
const MAX_KNOWN: usize = 32;
const MAX_REPOSITORIES: usize = 1024;
/// The coarsest clocks of file systems tick every two seconds.
const SETTLED_AFTER: Duration = Duration::from_secs(3);

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;
    use std::sync::atomic::{AtomicUsize, Ordering};

    static READ: AtomicUsize = AtomicUsize::new(0);

    fn read(files: &[PathBuf]) -> Index {
        READ.fetch_add(1, Ordering::Relaxed);
        let content = fs::read(&files[0]).unwrap();
        Index { repositories: [content].into(), ..Index::default() }
    }

    #[test]
    fn what_did_not_change_is_read_once() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("index");
        let names = |file: &Path| or_else(vec![file.to_path_buf()], read).repositories;
        fs::write(&file, "one").unwrap();
        for _ in 0..2 {
            assert_eq!(names(&file), [b"one".to_vec()].into());
        }
        assert_eq!(
            READ.load(Ordering::Relaxed),
            2,
            "it changed a moment ago, and may change again in the same one"
        );
        std::thread::sleep(SETTLED_AFTER + Duration::from_secs(1));
        for _ in 0..3 {
            assert_eq!(names(&file), [b"one".to_vec()].into());
        }
        assert_eq!(READ.load(Ordering::Relaxed), 3);
        // The same length and mtime, and the same file.
        let modified = fs::metadata(&file).unwrap().modified().unwrap();
        fs::write(&file, "two").unwrap();
        fs::File::open(&file).unwrap().set_modified(modified).unwrap();
        assert_eq!(names(&file), [b"two".to_vec()].into());
    }
}
