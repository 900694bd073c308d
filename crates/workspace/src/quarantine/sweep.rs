//! Cleans up after killed processes.

use super::journal::{FILE, GitLock, Journal, MOVED, Moving, keep_content};
use super::store::{LOCK, PLACE_LOCK, lock, place};
use super::{QuarantineError, orphan};
use belljar_state::Lock;
use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

/// Removes every quarantine below `state` whose process is gone, and undoes its half-made changes to a host repository. Returns how
/// many there were. Live ones are not touched.
pub fn sweep(state: &Path) -> Result<usize, QuarantineError> {
    let place = place(state)?;
    let _whole = lock(&place.join(PLACE_LOCK))?;
    let mut swept = 0;
    let entries = fs::read_dir(&place).map_err(QuarantineError::file("list", &place))?;
    for entry in entries.flatten().filter(|entry| entry.path().is_dir()) {
        let directory = entry.path();
        if !Lock::is_held(&directory.join(LOCK)) {
            let id = entry.file_name().to_string_lossy().into_owned();
            let _ = orphan::end(&directory);
            undo(&directory, &id);
            // If it cannot be removed now, the next sweep does it.
            swept += usize::from(fs::remove_dir_all(&directory).is_ok());
        }
    }
    Ok(swept)
}

/// Changes that cannot be undone now stay as git itself would leave them: the host's repository is correct without this cleanup.
fn undo(directory: &Path, id: &str) {
    let Some(journal) = Journal::read(directory) else { return };
    if let Some(pack) = &journal.pack {
        undo_move(pack, id);
    }
    if let Some(loose) = &journal.loose {
        let _ = fs::remove_file(loose);
    }
    if let Some(index) = &journal.index {
        index.clear();
    }
    clear_locks(directory, &journal);
}

/// Removes locks that one of our git processes left when it died.
pub(super) fn clear_locks(directory: &Path, journal: &Journal) {
    let Ok(began) = fs::metadata(directory.join(FILE)) else { return };
    let stuck =
        journal.locks.iter().filter_map(|lock| Some((lock, stuck(lock, &began)?))).collect::<Vec<_>>();
    if stuck.is_empty() {
        return;
    }
    // git holds a lock for milliseconds: if the same lock is still there, its process is gone.
    std::thread::sleep(LONGER_THAN_A_LOCK);
    for (lock, before) in stuck {
        if self::stuck(lock, &began).is_some_and(|now| now.ino() == before.ino()) {
            let _ = fs::remove_file(&lock.path);
        }
    }
}

fn undo_move(pack: &Moving, id: &str) {
    for extension in MOVED {
        let _ = fs::remove_file(pack.passing(id, extension));
    }
    let keep = pack.file("keep");
    // The pack is ours only with our `.keep` beside it: the host may have had it before.
    if fs::read_to_string(&keep).is_ok_and(|content| content == keep_content(id)) {
        // Without its index a pack is only a stray file for git.
        if !pack.file("idx").exists() {
            let _ = fs::remove_file(pack.file("rev"));
            let _ = fs::remove_file(pack.file("pack"));
        }
        let _ = fs::remove_file(keep);
    }
}

/// A lock that git took for us: made after the journal, and empty or with the content that we would have written.
fn stuck(lock: &GitLock, began: &Metadata) -> Option<Metadata> {
    let about = fs::symlink_metadata(&lock.path).ok().filter(Metadata::is_file)?;
    let is_later = (about.ctime(), about.ctime_nsec()) >= (began.mtime(), began.mtime_nsec());
    let content = fs::read_to_string(&lock.path).ok()?;
    (is_later && (content.is_empty() || content == lock.content)).then_some(about)
}

const LONGER_THAN_A_LOCK: Duration = Duration::from_secs(1);
