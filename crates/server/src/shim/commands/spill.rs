//! Where output goes that is too much for memory: one file without a name, for all commands of a shim. It ends with the
//! shim, however that ends. Parts that are given back are used again, and punched out of the file meanwhile.

use belljar_sys::rustix::fs::{FallocateFlags, fallocate};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The file.
#[derive(Debug)]
pub(crate) struct Spill {
    directory: PathBuf,
    most: u64,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    /// Made when something is first written.
    file: Option<Arc<File>>,
    /// Parts that belong to no command.
    free: Vec<u64>,
    /// Where the file ends.
    end: u64,
}

/// Bytes in the file that belong to one command. Dropped, they are given back.
#[derive(Debug)]
pub(crate) struct Spilled {
    spill: Arc<Spill>,
    file: Arc<File>,
    parts: Vec<u64>,
    length: u64,
}

impl Spill {
    /// In a file of this directory that never has more than `most` bytes.
    pub(crate) fn new(directory: &Path, most: u64) -> Arc<Spill> {
        Arc::new(Spill { directory: directory.to_path_buf(), most, inner: Mutex::default() })
    }

    /// Room for one command.
    pub(crate) fn begin(self: &Arc<Spill>) -> io::Result<Spilled> {
        let mut inner = self.inner();
        let file = match &inner.file {
            Some(file) => Arc::clone(file),
            None => Arc::clone(inner.file.insert(Arc::new(nameless(&self.directory)?))),
        };
        drop(inner);
        Ok(Spilled { spill: Arc::clone(self), file, parts: Vec::new(), length: 0 })
    }

    fn take(&self) -> io::Result<u64> {
        let mut inner = self.inner();
        if let Some(part) = inner.free.pop() {
            return Ok(part);
        }
        if inner.end + PART > self.most {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let part = inner.end;
        inner.end += PART;
        Ok(part)
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Spilled {
    /// Adds bytes, or none of them.
    pub(crate) fn append(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        let mut at = self.length;
        while !bytes.is_empty() {
            let (index, within) = split(at);
            if index == self.parts.len() {
                self.parts.push(self.spill.take()?);
            }
            let (piece, rest) = bytes.split_at(bytes.len().min((PART - within) as usize));
            self.file.write_all_at(piece, self.parts[index] + within)?;
            at += piece.len() as u64;
            bytes = rest;
        }
        self.length = at;
        Ok(())
    }

    /// Reads bytes that were added.
    pub(crate) fn read(&self, mut at: u64, mut into: &mut [u8]) -> io::Result<()> {
        while !into.is_empty() {
            let (index, within) = split(at);
            let part = *self.parts.get(index).ok_or(io::ErrorKind::UnexpectedEof)?;
            let length = into.len().min((PART - within) as usize);
            let (piece, rest) = into.split_at_mut(length);
            self.file.read_exact_at(piece, part + within)?;
            at += length as u64;
            into = rest;
        }
        Ok(())
    }
}

impl Drop for Spilled {
    fn drop(&mut self) {
        for part in &self.parts {
            // Where the filesystem cannot, the room is used again all the same.
            let _ =
                fallocate(&*self.file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, *part, PART);
        }
        self.spill.inner().free.append(&mut self.parts);
    }
}

fn split(at: u64) -> (usize, u64) {
    ((at / PART) as usize, at % PART)
}

fn nameless(directory: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).mode(0o600);
    let flags = belljar_sys::rustix::fs::OFlags::TMPFILE.bits().cast_signed();
    match options.clone().custom_flags(flags).open(directory) {
        Ok(file) => Ok(file),
        // A filesystem that has no such files.
        Err(_) => {
            let path = directory.join(format!("output.{}", std::process::id()));
            let file = options.create_new(true).open(&path)?;
            std::fs::remove_file(&path)?;
            Ok(file)
        }
    }
}

/// Small enough that a command that spills a little wastes little, large enough that a gigabyte is a short list.
const PART: u64 = 256 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_across_parts_is_read_again() {
        let place = tempfile::tempdir().expect("a directory");
        let spill = Spill::new(place.path(), 8 * PART);
        let mut one = spill.begin().expect("a file");
        let mut other = spill.begin().expect("a file");
        let text: Vec<u8> = (0..600_000_u32).map(|number| number as u8).collect();
        for piece in text.chunks(100_001) {
            one.append(piece).expect("room");
            other.append(&piece.iter().map(|byte| !byte).collect::<Vec<u8>>()).expect("room");
        }
        let mut read = vec![0; 300_000];
        one.read(200_000, &mut read).expect("there");
        assert_eq!(read, text[200_000..500_000]);
        assert_eq!(std::fs::read_dir(place.path()).expect("readable").count(), 0, "it has no name");
    }

    #[test]
    fn there_is_a_bound_and_what_is_given_back_is_used_again() {
        let place = tempfile::tempdir().expect("a directory");
        let spill = Spill::new(place.path(), 2 * PART);
        let mut one = spill.begin().expect("a file");
        one.append(&vec![1; 2 * PART as usize]).expect("room");
        let mut other = spill.begin().expect("a file");
        assert!(other.append(b"x").is_err(), "there is no more room");
        drop(one);
        other.append(b"x").expect("room again");
    }
}
