//! The one lock: flock(2) on a file or a directory. The kernel releases it when its holder dies in any way, so a free lock means
//! that no process works there; process ids are reused, and a file that names its owner would be wrong after a kill.
//!
//! A lock file is never removed alone, only with the directory that it lies in. A process that waited for a lock may then hold one
//! on a deleted file: [`Lock::is_at`] tells.

use belljar_sys::rustix::fs::{FlockOperation, Mode, OFlags, flock, open};
use belljar_sys::rustix::io::{Errno, retry_on_intr};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// A lock that is held until this is dropped or the process dies.
#[derive(Debug)]
pub struct Lock {
    file: File,
    /// A program that we started may hold it as well.
    is_passed_on: AtomicBool,
}

impl Lock {
    /// Waits until no other process holds it. The file is made if it is missing, as in all functions unless documented otherwise.
    pub fn wait(path: &Path) -> io::Result<Lock> {
        Lock::waited(open_file(path, true)?, FlockOperation::LockExclusive)
    }

    /// Takes it if no other process holds it.
    pub fn try_now(path: &Path) -> io::Result<Option<Lock>> {
        Lock::tried(open_file(path, true)?)
    }

    /// The same for an existing file; if it is missing, an error of the kind `NotFound`.
    pub fn try_existing(path: &Path) -> io::Result<Option<Lock>> {
        Lock::tried(open_file(path, false)?)
    }

    /// Waits at most for the time limit.
    pub fn wait_within(path: &Path, timeout: Duration) -> io::Result<Option<Lock>> {
        Lock::tried_within(open_file(path, true)?, timeout)
    }

    /// Takes it shared, as soon as no process holds it exclusively.
    pub fn share(path: &Path) -> io::Result<Lock> {
        Lock::waited(open_file(path, true)?, FlockOperation::LockShared)
    }

    /// Waits until no other process holds a directory.
    pub fn wait_directory(path: &Path) -> io::Result<Lock> {
        Lock::waited(open_directory(path, OFlags::empty())?, FlockOperation::LockExclusive)
    }

    /// The same, with a time limit.
    pub fn wait_directory_within(path: &Path, timeout: Duration) -> io::Result<Option<Lock>> {
        Lock::tried_within(open_directory(path, OFlags::empty())?, timeout)
    }

    /// Takes a directory that others may remove and recreate, if no other process holds it. An error of the kind `NotFound` if
    /// there is no such directory.
    pub fn try_directory(path: &Path) -> io::Result<Option<Lock>> {
        loop {
            let Some(lock) = Lock::tried(open_directory(path, OFlags::NOFOLLOW)?)? else { return Ok(None) };
            // Between opening and locking it may have been removed, and recreated by a process that holds the new one.
            let (ours, found) = (lock.file.metadata()?, fs::metadata(path)?);
            if (ours.dev(), ours.ino()) == (found.dev(), found.ino()) {
                return Ok(Some(lock));
            }
        }
    }

    /// Whether a process holds it, exclusively or shared. Only reads: a missing file is not made.
    pub fn is_held(path: &Path) -> bool {
        // Never blocks on a pipe in its place.
        let flags = OFlags::NONBLOCK.bits().cast_signed();
        match OpenOptions::new().read(true).write(true).custom_flags(flags).open(path) {
            // Any error that keeps us from taking it may be another process's lock.
            Ok(file) => flock(&file, FlockOperation::NonBlockingLockExclusive).is_err(),
            Err(error) => error.kind() != io::ErrorKind::NotFound,
        }
    }

    /// Whether the locked file is still the one at this path. It may have been removed while we waited.
    pub fn is_at(&self, path: &Path) -> bool {
        let same = |a: fs::Metadata, b: fs::Metadata| (a.dev(), a.ino()) == (b.dev(), b.ino());
        self.file.metadata().ok().zip(fs::metadata(path).ok()).is_some_and(|(a, b)| same(a, b))
    }

    /// The lock as the input of a program, which holds it as long as it runs, even if we drop it or die.
    pub fn as_input(&self) -> io::Result<Stdio> {
        let input = self.file.try_clone()?;
        self.is_passed_on.store(true, Ordering::Relaxed);
        Ok(Stdio::from(input))
    }

    fn waited(file: File, operation: FlockOperation) -> io::Result<Lock> {
        retry_on_intr(|| flock(&file, operation))?;
        Ok(Lock::held(file))
    }

    fn tried(file: File) -> io::Result<Option<Lock>> {
        Ok(try_lock(&file)?.then(|| Lock::held(file)))
    }

    fn tried_within(file: File, timeout: Duration) -> io::Result<Option<Lock>> {
        Ok(lock_open_file(&file, timeout)?.then(|| Lock::held(file)))
    }

    fn held(file: File) -> Lock {
        Lock { file, is_passed_on: AtomicBool::new(false) }
    }
}

impl AsFd for Lock {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // Closing is not enough: a process that another thread starts just now has the file open too, until it executes its program.
        if !self.is_passed_on.load(Ordering::Relaxed) {
            let _ = flock(&self.file, FlockOperation::Unlock);
        }
    }
}

/// Locks a file that its owner writes to, such as a log, so that readers know that the writer lives. Waits at most for the time
/// limit; returns whether it is locked now. The lock ends when the file is closed.
pub fn lock_open_file(file: &File, timeout: Duration) -> io::Result<bool> {
    let deadline = Instant::now() + timeout;
    loop {
        match try_lock(file)? {
            true => return Ok(true),
            false if Instant::now() < deadline => sleep(LOCK_INTERVAL),
            false => return Ok(false),
        }
    }
}

/// Whether a writer holds a file by [`lock_open_file`], and so lives. Concurrent readers do not see each other.
pub fn is_written_to(file: &File) -> bool {
    match flock(file, FlockOperation::NonBlockingLockShared) {
        Ok(()) => {
            // If unlocking fails, the lock ends when the file is closed.
            let _ = flock(file, FlockOperation::Unlock);
            false
        }
        Err(Errno::WOULDBLOCK) => true,
        // A filesystem without locks: no process can hold one.
        Err(_) => false,
    }
}

fn try_lock(file: &File) -> io::Result<bool> {
    match retry_on_intr(|| flock(file, FlockOperation::NonBlockingLockExclusive)) {
        Ok(()) => Ok(true),
        Err(Errno::WOULDBLOCK) => Ok(false),
        Err(errno) => Err(errno.into()),
    }
}

fn open_file(path: &Path, create: bool) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(create).truncate(false).mode(0o600);
    options.custom_flags(OFlags::NOFOLLOW.bits().cast_signed()).open(path)
}

fn open_directory(path: &Path, more: OFlags) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | more;
    Ok(File::from(open(path, flags, Mode::empty())?))
}

/// Most holders need less than a millisecond.
const LOCK_INTERVAL: Duration = Duration::from_micros(200);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::write::tests::{child, is_child};
    use std::io::{BufRead, BufReader, Write};
    use std::process::Command;

    /// Takes the lock in a separate process, prints a line, and waits.
    #[test]
    fn child_holds_a_lock() {
        if let Some(path) = is_child() {
            let _lock = Lock::try_now(&path).unwrap().unwrap();
            writeln!(io::stdout(), "\nlocked").unwrap();
            sleep(Duration::from_secs(600));
        }
    }

    #[test]
    fn a_lock_excludes_other_processes_until_its_holder_is_killed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        let mut holder = child("lock::tests::child_holds_a_lock", &path);
        let stdout = BufReader::new(holder.stdout.take().unwrap());
        assert!(stdout.lines().any(|line| line.unwrap() == "locked"));
        assert!(Lock::try_now(&path).unwrap().is_none());
        assert!(Lock::try_existing(&path).unwrap().is_none());
        assert!(Lock::wait_within(&path, Duration::from_millis(20)).unwrap().is_none());
        assert!(Lock::is_held(&path));
        holder.kill().unwrap();
        holder.wait().unwrap();
        assert!(!Lock::is_held(&path));
        assert!(Lock::try_now(&path).unwrap().is_some());
    }

    #[test]
    fn a_shared_lock_excludes_only_those_who_want_it_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        let (one, two) = (Lock::share(&path).unwrap(), Lock::share(&path).unwrap());
        assert!(Lock::is_held(&path) && Lock::try_now(&path).unwrap().is_none());
        drop(one);
        assert!(Lock::try_now(&path).unwrap().is_none());
        drop(two);
        assert!(Lock::try_now(&path).unwrap().is_some());
    }

    #[test]
    fn a_lock_that_was_passed_on_is_held_by_the_program_that_has_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        let lock = Lock::wait(&path).unwrap();
        let mut program = Command::new("sleep").arg("600").stdin(lock.as_input().unwrap()).spawn().unwrap();
        drop(lock);
        assert!(Lock::is_held(&path));
        program.kill().unwrap();
        program.wait().unwrap();
        assert!(!Lock::is_held(&path));
    }

    #[test]
    fn a_file_that_is_looked_for_is_not_made_and_a_link_is_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        assert!(!Lock::is_held(&path));
        assert_eq!(Lock::try_existing(&path).unwrap_err().kind(), io::ErrorKind::NotFound);
        assert!(!path.exists());
        std::os::unix::fs::symlink(folder.path().join("elsewhere"), &path).unwrap();
        assert!(Lock::try_now(&path).is_err());
        assert!(!folder.path().join("elsewhere").exists());
    }

    #[test]
    fn a_lock_on_what_was_removed_is_told_from_one_on_what_is_there() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        let lock = Lock::wait(&path).unwrap();
        assert!(lock.is_at(&path));
        fs::remove_file(&path).unwrap();
        assert!(!lock.is_at(&path));
        let other = Lock::try_now(&path).unwrap().unwrap();
        assert!(!lock.is_at(&path) && other.is_at(&path));
    }

    #[test]
    fn a_directory_is_held_by_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("directory");
        assert_eq!(Lock::try_directory(&path).unwrap_err().kind(), io::ErrorKind::NotFound);
        fs::create_dir(&path).unwrap();
        let held = Lock::try_directory(&path).unwrap().unwrap();
        assert!(Lock::try_directory(&path).unwrap().is_none());
        assert!(Lock::wait_directory_within(&path, Duration::ZERO).unwrap().is_none());
        drop(held);
        Lock::wait_directory(&path).unwrap();
        std::os::unix::fs::symlink(&path, folder.path().join("link")).unwrap();
        assert!(Lock::try_directory(&folder.path().join("link")).is_err());
    }

    #[test]
    fn a_file_is_written_to_while_its_writer_has_it_open() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let writer = File::create(&path).unwrap();
        let reader = File::open(&path).unwrap();
        assert!(!is_written_to(&reader));
        assert!(lock_open_file(&writer, Duration::ZERO).unwrap());
        assert!(is_written_to(&reader) && is_written_to(&File::open(&path).unwrap()));
        assert!(!lock_open_file(&File::open(&path).unwrap(), Duration::ZERO).unwrap());
        drop(writer);
        assert!(!is_written_to(&reader));
    }
}
