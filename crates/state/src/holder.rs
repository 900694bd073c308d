//! The process that holds a lock, from the kernel: a file that names its owner would be wrong after a kill.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The process that holds the lock on this file or directory ([`crate::Lock`]); `None` if it is free, or held in another process
/// namespace.
pub fn lock_holder(path: &Path) -> io::Result<Option<u32>> {
    let inode = fs::metadata(path)?.ino();
    Ok(holder(&fs::read_to_string("/proc/locks")?, inode))
}

/// The process that holds a lock of flock(2) on this inode, of lines `1: FLOCK  ADVISORY  WRITE 4711 fe:01:1234 0 EOF`
/// (proc_locks(5)). One in another process namespace is 0, or less.
fn holder(locks: &str, inode: u64) -> Option<u32> {
    let of_line = |line: &str| {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        match words[..] {
            [_, "FLOCK", _, _, process, file, ..] if file.rsplit(':').next()?.parse() == Ok(inode) => {
                process.parse().ok().filter(|id| *id > 0)
            }
            _ => None,
        }
    };
    locks.lines().find_map(of_line)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Lock;

    #[test]
    fn the_process_that_holds_a_lock_is_known() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        let lock = Lock::wait(&path).unwrap();
        assert_eq!(lock_holder(&path).unwrap(), Some(std::process::id()));
        drop(lock);
        assert_eq!(lock_holder(&path).unwrap(), None);
        assert!(lock_holder(&folder.path().join("none")).is_err());
    }

    #[test]
    fn a_holder_is_found_among_all_locks() {
        let locks = "1: POSIX  ADVISORY  WRITE 7 fe:01:42 0 EOF\n1: -> FLOCK  ADVISORY  WRITE 8 fe:01:42 0 EOF\n\
                     2: FLOCK  ADVISORY  WRITE 9 fe:01:142 0 EOF\n3: FLOCK  ADVISORY  WRITE 10 fe:01:42 0 EOF\n";
        assert_eq!(holder(locks, 42), Some(10));
        assert_eq!(holder(locks, 1), None);
        assert_eq!(holder("1: FLOCK  ADVISORY  WRITE 0 fe:01:42 0 EOF\n", 42), None);
    }
}
