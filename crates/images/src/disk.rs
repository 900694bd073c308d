//! Room on the disk: other programs need some too.

use belljar_sys::rustix::fs::fstatvfs;
use std::io;
use std::os::fd::AsFd;

/// Why nothing more is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Full {
    #[error("less than {0} bytes would be left on the disk")]
    Bytes(u64),
    #[error("fewer than {0} files could be made on the disk")]
    Files(u64),
    #[error("the disk is full")]
    Now,
}

/// What a filesystem has left.
#[derive(Debug, Clone, Copy)]
struct Room {
    bytes: u64,
    /// Nothing, where files are not counted.
    files: Option<Files>,
}

#[derive(Debug, Clone, Copy)]
struct Files {
    all: u64,
    free: u64,
}

/// Whether so much more can be written and `reserve` is left.
pub(crate) fn look(file: impl AsFd, more: u64, reserve: u64) -> Result<(), io::Error> {
    let found = fstatvfs(file)?;
    let files = (found.f_files > 0).then_some(Files { all: found.f_files, free: found.f_favail });
    let room = Room { bytes: found.f_bavail.saturating_mul(found.f_frsize), files };
    // So that it passes through whatever writes.
    room.take(more, reserve).map_err(|full| io::Error::new(io::ErrorKind::StorageFull, full))
}

/// What an error says of the disk, if that is its reason.
pub(crate) fn full(error: &io::Error) -> Option<Full> {
    match error.get_ref().and_then(|inner| inner.downcast_ref::<Full>()) {
        Some(full) => Some(*full),
        None => {
            let is_full = matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded);
            is_full.then_some(Full::Now)
        }
    }
}

impl Room {
    fn take(self, more: u64, reserve: u64) -> Result<(), Full> {
        if self.bytes < reserve.saturating_add(more) {
            return Err(Full::Bytes(reserve));
        }
        let Some(Files { all, free }) = self.files else { return Ok(()) };
        // A small filesystem has few of them, and is not refused for that.
        let kept = FILES.min(all / 20);
        if free < kept { Err(Full::Files(kept)) } else { Ok(()) }
    }
}

/// What a file, a directory or a link takes beside its content, about.
pub(crate) const INODE: u64 = 4 << 10;
/// How much is written between two looks.
pub(crate) const LOOK: u64 = 64 << 20;
/// How many files others can still make. More than can be made between two looks.
const FILES: u64 = 32 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_is_full_by_bytes_and_by_files() {
        let room = |bytes, free| Room { bytes, files: Some(Files { all: 10_000_000, free }) };
        assert_eq!(room(1000, 1_000_000).take(500, 500), Ok(()));
        assert_eq!(room(1000, 1_000_000).take(501, 500), Err(Full::Bytes(500)));
        assert_eq!(room(1000, FILES - 1).take(1, 0), Err(Full::Files(FILES)));
        assert_eq!(Room { bytes: 1000, files: None }.take(1, 0), Ok(()), "they are not counted everywhere");
        let small = Room { bytes: 1000, files: Some(Files { all: 1000, free: 900 }) };
        assert_eq!(small.take(1, 0), Ok(()));
        assert!(full(&io::Error::from_raw_os_error(28)).is_some(), "ENOSPC");
        assert!(full(&io::Error::from_raw_os_error(13)).is_none());
    }
}
