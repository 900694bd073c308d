//! Removes what the caller made, in a folder that others write to, only while it is as it was made and no process needs it.
//!
//! A process that needs something that it did not make holds a shared lock on it (flock(2)): the one thing that two users,
//! with nothing in common but that folder, both see.

use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::{
    AtFlags, FileType, FlockOperation, Mode, OFlags, ResolveFlags, chmod, flock, fstat, openat, openat2,
    unlinkat,
};
use rustix::io::{Errno, fcntl_dupfd_cloexec, pread, retry_on_intr};
use std::thread;
use std::time::Duration;

/// What became of something that was to be removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Removal {
    /// It is gone, or has been changed since and belongs to another user or program.
    Done,
    /// It is there as it was made, and may be removed another time.
    Left,
    /// The same, and a process needs it.
    Held,
}

/// Removes the directory at `path` in `folder`, if it is empty. No link leads anywhere on the way.
pub fn remove_empty_directory(folder: impl AsFd, path: &str) -> Removal {
    outcome(in_parent(folder.as_fd(), path, |parent, name| {
        let flags = READABLE | OFlags::DIRECTORY;
        let _alone = match openat(&parent, name, flags, Mode::empty()) {
            // An owner who made it unreadable may remove it all the same.
            Err(Errno::ACCESS) => None,
            opened => Some(alone(opened?)?),
        };
        unlinkat(parent, name, AtFlags::REMOVEDIR)
    }))
}

/// Removes the file at `path` in `folder`, if it is one with exactly this content and no other name; or with none at all,
/// since its maker may have been killed before it was written.
pub fn remove_file_with(folder: impl AsFd, path: &str, content: &[u8]) -> Removal {
    outcome(in_parent(folder.as_fd(), path, |parent, name| {
        let file = alone(openat(&parent, name, READABLE, Mode::empty())?)?;
        let found = fstat(&file)?;
        let is_file = FileType::from_raw_mode(found.st_mode) == FileType::RegularFile && found.st_nlink == 1;
        let is_as_made =
            found.st_size == 0 || read_whole(&file, content.len()).is_ok_and(|found| found == content);
        if !is_file || !is_as_made {
            return Err(Errno::NOTEMPTY);
        }
        unlinkat(parent, name, AtFlags::empty())
    }))
}

/// Waits until no process needs what is at `path` in `folder`, or it is gone.
pub fn wait_until_free(folder: impl AsFd, path: &str) -> Result<(), Errno> {
    let opened =
        in_parent(folder.as_fd(), path, |parent, name| openat(parent, name, READABLE, Mode::empty()));
    match opened {
        Ok(thing) => retry_on_intr(|| flock(&thing, FlockOperation::LockExclusive)),
        Err(Errno::NOENT) => Ok(()),
        Err(errno) => Err(errno),
    }
}

/// The opened thing, if no other process holds a lock on it; on a filesystem without locks none does.
fn alone(thing: OwnedFd) -> Result<OwnedFd, Errno> {
    for _ in 0..TRIES {
        match flock(&thing, FlockOperation::NonBlockingLockExclusive) {
            // Held by another process that removes it too, or by copies of a lock in a process that is just being started.
            Err(Errno::WOULDBLOCK) => thread::sleep(STEP),
            _ => return Ok(thing),
        }
    }
    Err(Errno::WOULDBLOCK)
}

fn outcome(removed: Result<(), Errno>) -> Removal {
    match removed {
        Err(Errno::WOULDBLOCK) => Removal::Held,
        Err(Errno::ACCESS | Errno::PERM | Errno::ROFS | Errno::BUSY | Errno::IO | Errno::MFILE) => {
            Removal::Left
        }
        _ => Removal::Done,
    }
}

/// What is in a file from its beginning; one that is longer than `most` is an error.
pub fn read_whole(file: impl AsFd, most: usize) -> Result<Vec<u8>, Errno> {
    let mut bytes = Vec::new();
    let mut buffer = [0; 4096];
    while bytes.len() <= most {
        match pread(&file, &mut buffer, bytes.len() as u64) {
            Ok(0) => return Ok(bytes),
            Ok(length) => bytes.extend_from_slice(&buffer[..length]),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Err(Errno::FBIG)
}

/// Does something in the folder that `path` is in. Where a right is missing that an owner can give themselves, it is given
/// for as long as this takes: a process inside the sandbox may have removed it to prevent the cleanup.
fn in_parent<T>(
    folder: BorrowedFd<'_>,
    path: &str,
    act: impl Fn(OwnedFd, &str) -> Result<T, Errno>,
) -> Result<T, Errno> {
    let (way, name) = path.rsplit_once('/').unwrap_or((".", path));
    let once = || {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        act(openat2(folder, way, flags, Mode::empty(), NO_LINKS)?, name)
    };
    match once() {
        Err(Errno::ACCESS) => {
            let _rights = Rights::along(folder, way)?;
            once()
        }
        other => other,
    }
}

/// Folders that their owner may read, write and search now, each with the mode that it had and gets back.
struct Rights(Vec<(OwnedFd, Mode)>);

impl Rights {
    fn along(folder: BorrowedFd<'_>, way: &str) -> Result<Rights, Errno> {
        let mut rights = Rights(Vec::new());
        let mut next = fcntl_dupfd_cloexec(folder, 0)?;
        let mut names = way.split('/').filter(|name| *name != ".");
        loop {
            let mode = Mode::from_raw_mode(fstat(&next)?.st_mode & 0o7777);
            chmod_open(&next, mode | Mode::RWXU)?;
            let name = names.next();
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let below = name.map(|name| openat(&next, name, flags, Mode::empty()));
            rights.0.push((next, mode));
            match below {
                Some(below) => next = below?,
                None => return Ok(rights),
            }
        }
    }
}

impl Drop for Rights {
    fn drop(&mut self) {
        for (folder, mode) in self.0.iter().rev() {
            let _ = chmod_open(folder, *mode);
        }
    }
}

/// Changes the mode of what is open, be it for nothing but its place: `fchmod` refuses those.
fn chmod_open(file: &OwnedFd, mode: Mode) -> Result<(), Errno> {
    let found = Mode::from_raw_mode(fstat(file)?.st_mode & 0o7777);
    if found == mode { Ok(()) } else { chmod(format!("/proc/self/fd/{}", file.as_raw_fd()), mode) }
}

const TRIES: u32 = 10;
const STEP: Duration = Duration::from_millis(1);
/// Whatever it is, nothing happens when it is opened.
const READABLE: OFlags =
    OFlags::RDONLY.union(OFlags::NOFOLLOW).union(OFlags::NONBLOCK).union(OFlags::CLOEXEC);
const NO_LINKS: ResolveFlags = ResolveFlags::BENEATH.union(ResolveFlags::NO_SYMLINKS);

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn rights_are_given_along_the_way_and_taken_back() {
        let folder = std::env::temp_dir().join(format!("belljar-rights-{}", std::process::id()));
        fs::create_dir_all(folder.join("a/b")).unwrap();
        let mode = |path: &str| fs::metadata(folder.join(path)).unwrap().permissions().mode() & 0o7777;
        let set = |path: &str, mode: u32| {
            fs::set_permissions(folder.join(path), fs::Permissions::from_mode(mode)).unwrap();
        };
        set("a/b", 0o2050);
        set("a", 0o555);
        let opened = fs::File::open(&folder).unwrap();
        let rights = Rights::along(opened.as_fd(), "a/b").unwrap();
        assert_eq!([mode("a"), mode("a/b")], [0o755, 0o2750]);
        drop(rights);
        assert_eq!(mode("a"), 0o555);
        set("a", 0o755);
        assert_eq!(mode("a/b"), 0o2050);
        set("a/b", 0o555);
        set("a", 0);
        assert_eq!(remove_empty_directory(&opened, "a/b"), Removal::Done);
        assert_eq!(mode("a"), 0);
        set("a", 0o755);
        assert!(!folder.join("a/b").exists());
        fs::remove_dir_all(&folder).unwrap();
        let outcomes = [Err(Errno::ACCESS), Err(Errno::NOTEMPTY), Ok(())].map(outcome);
        assert_eq!(outcomes, [Removal::Left, Removal::Done, Removal::Done]);
    }

    #[test]
    fn what_a_process_holds_stays() {
        let folder = std::env::temp_dir().join(format!("belljar-held-{}", std::process::id()));
        fs::create_dir_all(folder.join("directory")).unwrap();
        fs::write(folder.join("file"), "content").unwrap();
        let opened = fs::File::open(&folder).unwrap();
        let remove =
            || [remove_empty_directory(&opened, "directory"), remove_file_with(&opened, "file", b"content")];
        let held = ["directory", "file"].map(|name| {
            let thing = fs::File::open(folder.join(name)).unwrap();
            flock(&thing, FlockOperation::LockShared).unwrap();
            thing
        });
        assert_eq!(remove(), [Removal::Held; 2]);
        assert!(folder.join("directory").exists() && folder.join("file").exists());
        drop(held);
        wait_until_free(&opened, "file").unwrap();
        assert_eq!(remove(), [Removal::Done; 2]);
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);
        fs::remove_dir_all(&folder).unwrap();
    }
}
