//! Space on the state disk that is given back when the disk is full, so that a sandbox that filled it can be woken once more to remove
//! what fills it. A start writes a few files of some kilobytes; everything else that a full disk hinders is no part of this.

use belljar_sys::rustix::fs::statvfs;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// A file that takes up space.
#[derive(Debug)]
pub(crate) struct Reserve {
    path: PathBuf,
}

impl Reserve {
    /// In a fleet's directory.
    pub(crate) fn at(directory: &Path) -> Reserve {
        Reserve { path: directory.join("reserve") }
    }

    /// Before a sandbox starts. One that is woken on a full disk gets the space, which is taken again where there is plenty.
    pub(crate) fn before_start(&self, is_woken: bool) {
        let directory = self.path.parent().unwrap_or(Path::new("/"));
        let Ok(disk) = statvfs(directory) else { return };
        let free = disk.f_bavail.saturating_mul(disk.f_frsize);
        if free < RESERVED_BYTES as u64 && is_woken {
            self.release();
        } else if free >= 4 * RESERVED_BYTES as u64 {
            self.fill();
        }
    }

    fn fill(&self) {
        if fs::metadata(&self.path).is_ok_and(|found| found.len() == RESERVED_BYTES as u64) {
            return;
        }
        let file = OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(&self.path);
        if file.and_then(|mut file| file.write_all(&vec![0; RESERVED_BYTES])).is_err() {
            // A part of it would be useless, and may be the space that another write needs.
            self.release();
        }
    }

    /// Gives the space back; whether there was any.
    fn release(&self) -> bool {
        fs::remove_file(&self.path).is_ok()
    }
}

/// Many times what a start writes.
const RESERVED_BYTES: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn space_is_taken_once_and_given_back_once() {
        let folder = tempfile::tempdir().unwrap();
        let reserve = Reserve::at(folder.path());
        reserve.fill();
        reserve.fill();
        assert_eq!(fs::metadata(folder.path().join("reserve")).unwrap().len(), RESERVED_BYTES as u64);
        assert!(reserve.release() && !reserve.release());
    }
}
