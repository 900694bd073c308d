//! Whether two files have the same content, found by reading as little as possible: common holes are skipped, and one walk reads no
//! more than its budget. A sparse file of terabytes costs an agent nothing to make.

use belljar_sys::rustix::fs::{SeekFrom, seek};
use belljar_sys::rustix::io::Errno;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// The result of a comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Same {
    Yes,
    No,
    /// The budget was used up before the end of the files.
    Unknown,
}

/// How much may still be read.
#[derive(Debug)]
pub(super) struct Budget {
    left: u64,
}

impl Default for Budget {
    fn default() -> Budget {
        Budget { left: MAX_READ }
    }
}

impl Budget {
    #[cfg(test)]
    pub(super) fn of(bytes: u64) -> Budget {
        Budget { left: bytes }
    }

    /// `false` if it is used up.
    pub(super) fn take(&mut self, bytes: u64) -> bool {
        // Each step has a minimum cost, even if it reads little: holes and data can alternate.
        let cost = bytes.max(LEAST_COST);
        let enough = self.left >= cost;
        self.left = self.left.saturating_sub(cost);
        enough
    }
}

/// Whether two files of the same size have the same content.
pub(super) fn same_content(one: &File, other: &File, size: u64, budget: &mut Budget) -> io::Result<Same> {
    let (mut left, mut right) = (Vec::new(), Vec::new());
    let mut at = 0;
    while at < size {
        // Both have a hole up to here.
        let next = data_from(one, at)?.unwrap_or(size).min(data_from(other, at)?.unwrap_or(size));
        if next >= size {
            return Ok(Same::Yes);
        }
        let length = usize::try_from(size - next).unwrap_or(CHUNK).min(CHUNK);
        if !budget.take(length as u64) {
            return Ok(Same::Unknown);
        }
        left.resize(length, 0);
        right.resize(length, 0);
        let read = |file: &File, room: &mut [u8]| match file.read_exact_at(room, next) {
            Ok(()) => Ok(true),
            // It became shorter meanwhile.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
            Err(error) => Err(error),
        };
        if !read(one, &mut left)? || !read(other, &mut right)? || left != right {
            return Ok(Same::No);
        }
        at = next + length as u64;
    }
    Ok(Same::Yes)
}

/// The next data from here on; `None` if there is only a hole up to the end.
fn data_from(file: &File, at: u64) -> io::Result<Option<u64>> {
    match seek(file, SeekFrom::Data(at)) {
        Ok(found) => Ok(Some(found)),
        Err(Errno::NXIO) => Ok(None),
        // A filesystem without holes.
        Err(Errno::INVAL | Errno::OPNOTSUPP) => Ok(Some(at)),
        Err(error) => Err(error.into()),
    }
}

const CHUNK: usize = 128 * 1024;
const LEAST_COST: u64 = 16 * 1024;
/// Takes a few seconds to read on both sides; more than the changed files of a project.
const MAX_READ: u64 = 8 << 30;

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn file(write: impl Fn(&mut File)) -> File {
        let mut file = tempfile::tempfile().unwrap();
        write(&mut file);
        file
    }

    #[test]
    fn holes_are_not_read() {
        let size = 1 << 40;
        let sparse = || file(|file| file.set_len(size).unwrap());
        let mut budget = Budget::of(LEAST_COST);
        assert_eq!(same_content(&sparse(), &sparse(), size, &mut budget).unwrap(), Same::Yes);
        assert_eq!(budget.left, LEAST_COST);
        let other = file(|file| {
            file.set_len(size).unwrap();
            file.write_all_at(b"x", size / 2).unwrap();
        });
        assert_eq!(same_content(&sparse(), &other, size, &mut Budget::default()).unwrap(), Same::No);
        assert_eq!(same_content(&other, &other, size, &mut Budget::default()).unwrap(), Same::Yes);
    }

    #[test]
    fn what_is_beyond_the_budget_is_not_compared() {
        let full = |end: u8| {
            file(|file| {
                file.write_all(&vec![1; 3 * CHUNK]).unwrap();
                file.write_all(&[end]).unwrap();
            })
        };
        let size = 3 * CHUNK as u64 + 1;
        assert_eq!(same_content(&full(1), &full(2), size, &mut Budget::default()).unwrap(), Same::No);
        assert_eq!(same_content(&full(1), &full(1), size, &mut Budget::default()).unwrap(), Same::Yes);
        let few = &mut Budget::of(2 * CHUNK as u64);
        assert_eq!(same_content(&full(1), &full(1), size, few).unwrap(), Same::Unknown);
    }
}
