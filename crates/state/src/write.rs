//! The one function that replaces a file: a reader sees the old content or the new one, and so does one that comes after a kill.
//!
//! ```text
//! .NAME.new   created (O_EXCL, O_NOFOLLOW), locked, written, synced    a kill leaves the old NAME, and a draft
//! NAME        renamed over                                             a kill leaves the new NAME
//! directory   synced                                                   a power cut leaves the new NAME
//! ```
//!
//! The draft has one name for each file, so a killed writer leaves at most one, and the next writer removes it. It is locked while it
//! is written: two writers of one file take turns instead of renaming each other's half.

use belljar_sys::rustix::fs::{
    AtFlags, CWD, FlockOperation, Mode, OFlags, flock, fstat, fsync, openat, renameat, statat, unlinkat,
};
use belljar_sys::rustix::io::{Errno, retry_on_intr};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// What a written file survives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Survives {
    /// A power cut: content and name are on disk when the call returns. Costs two syncs, some milliseconds.
    PowerCut,
    /// A power cut, as far as order goes: then the file is the old one or the new one, whole, and the new one if anything that was
    /// done later on the same filesystem is on its disk. Filesystems with a journal keep that order. Costs one sync.
    InOrder,
    /// The death of any process, and nothing more: there is no sync. After a power cut the file may be the old one, the new one, or
    /// empty. For files that the next start makes again, and if a start would have to wait.
    Kill,
}

/// Replaces one of our files atomically, by one that only its owner can read.
pub fn write_atomic(path: &Path, content: &[u8], survives: Survives) -> io::Result<()> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
    let access = match survives {
        Survives::PowerCut => OFlags::RDONLY,
        Survives::InOrder | Survives::Kill => OFlags::PATH,
    };
    let directory = openat(CWD, parent, access | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    write_atomic_at(&directory, name, content, PRIVATE_FILE, survives)
}

/// The same, in an open directory, which a sandbox may write to as well: no link is followed, and any other entry with the name of
/// the file or of its draft is replaced, not written through. For [`Survives::PowerCut`] the directory must be open for reading.
pub fn write_atomic_at(
    directory: impl AsFd,
    name: impl AsRef<OsStr>,
    content: &[u8],
    mode: Mode,
    survives: Survives,
) -> io::Result<()> {
    let (directory, name) = (directory.as_fd(), name.as_ref());
    let (mut file, draft) = create_draft(directory, name, mode)?;
    let mut replace = || -> io::Result<()> {
        file.write_all(content)?;
        if survives != Survives::Kill {
            file.sync_all()?;
        }
        Ok(renameat(directory, &draft, directory, name)?)
    };
    // The first error is the one to report.
    replace().inspect_err(|_| {
        let _ = unlinkat(directory, &draft, AtFlags::empty());
    })?;
    match survives {
        Survives::PowerCut => Ok(fsync(directory)?),
        Survives::InOrder | Survives::Kill => Ok(()),
    }
}

fn draft_of(name: &OsStr) -> OsString {
    let mut draft = OsString::from(".");
    draft.push(name);
    draft.push(".new");
    draft
}

/// A draft for this file, locked by us, and its name. A sandbox that can write to the directory may block the usual name of a draft
/// with a lock or a folder: after a short while the draft gets a unique name.
fn create_draft(directory: BorrowedFd<'_>, name: &OsStr, mode: Mode) -> io::Result<(File, OsString)> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let deadline = Instant::now() + DRAFT_TIMEOUT;
    let draft = draft_of(name);
    while Instant::now() < deadline {
        match openat(directory, &draft, flags, mode) {
            // Another writer that saw it before it was locked may have taken it for a dead writer's draft, and removed it.
            Ok(file) if is_locked_by_us(&file) && fstat(&file)?.st_nlink > 0 => {
                return Ok((File::from(file), draft));
            }
            Ok(_) => {}
            Err(Errno::EXIST) => match remove_abandoned(directory, &draft) {
                Ok(true) => {}
                Ok(false) => sleep(DRAFT_INTERVAL),
                Err(_) => break,
            },
            Err(errno) => return Err(errno.into()),
        }
    }
    let mut draft = draft;
    draft.push(format!(".{:016x}", RandomState::new().hash_one(std::process::id())));
    let file = openat(directory, &draft, flags, mode)?;
    Ok((File::from(file), draft))
}

/// Removes the draft of a killed writer, or another entry of that name; `false` if its writer lives.
fn remove_abandoned(directory: BorrowedFd<'_>, draft: &OsStr) -> io::Result<bool> {
    // Opened for writing: some filesystems lock only such files.
    let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    match openat(directory, draft, flags, Mode::empty()) {
        Ok(file) if !is_locked_by_us(&file) => return Ok(false),
        Ok(file) => {
            // Its writer may have renamed it since. From here on the name is ours to remove: any other process needs the lock.
            let (ours, found) = (fstat(&file)?, statat(directory, draft, AtFlags::SYMLINK_NOFOLLOW));
            if found.is_ok_and(|found| (found.st_dev, found.st_ino) == (ours.st_dev, ours.st_ino)) {
                removed(unlinkat(directory, draft, AtFlags::empty()))?;
            }
        }
        // A link, a socket, or a file without permissions: no writer made that.
        Err(Errno::LOOP | Errno::NXIO | Errno::NODEV | Errno::ACCESS) => {
            removed(unlinkat(directory, draft, AtFlags::empty()))?;
        }
        Err(Errno::NOENT) => {}
        Err(errno) => return Err(errno.into()),
    }
    Ok(true)
}

/// On a filesystem without locks, only the caller ensures that there is one writer.
fn is_locked_by_us(file: &OwnedFd) -> bool {
    retry_on_intr(|| flock(file, FlockOperation::NonBlockingLockExclusive)) != Err(Errno::WOULDBLOCK)
}

fn removed(outcome: Result<(), Errno>) -> Result<(), Errno> {
    if outcome == Err(Errno::NOENT) { Ok(()) } else { outcome }
}

/// Accessible to its owner only.
pub const PRIVATE_FILE: Mode = Mode::RUSR.union(Mode::WUSR);
/// A writer that lives needs some milliseconds, unless it was stopped.
const DRAFT_TIMEOUT: Duration = Duration::from_secs(2);
const DRAFT_INTERVAL: Duration = Duration::from_millis(1);

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::path::PathBuf;
    use std::process::{Child, Command, Stdio};

    const CHILD: &str = "BELLJAR_STATE_TEST_CHILD";

    /// Runs a test of this program in a separate process, with a path to work on.
    pub(crate) fn child(test: &str, path: &Path) -> Child {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", test, "--nocapture"]).env(CHILD, path).stdout(Stdio::piped());
        command.spawn().unwrap()
    }

    pub(crate) fn is_child() -> Option<PathBuf> {
        std::env::var_os(CHILD).map(PathBuf::from)
    }

    fn contents() -> [Vec<u8>; 2] {
        [vec![b'a'; 300_000], vec![b'b'; 200_000]]
    }

    #[test]
    fn child_writes_for_ever() {
        if let Some(path) = is_child() {
            for content in contents().iter().cycle() {
                write_atomic(&path, content, Survives::Kill).unwrap();
            }
        }
    }

    #[test]
    fn a_kill_at_any_moment_leaves_the_old_content_or_the_new() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        write_atomic(&path, &contents()[0], Survives::PowerCut).unwrap();
        for round in 0..20 {
            let mut writer = child("write::tests::child_writes_for_ever", &path);
            for _ in 0..20 {
                assert!(contents().contains(&fs::read(&path).unwrap()), "while it is written");
                sleep(Duration::from_micros(700 + 131 * round));
            }
            writer.kill().unwrap();
            writer.wait().unwrap();
            assert!(contents().contains(&fs::read(&path).unwrap()), "after a kill");
            assert!(fs::read_dir(folder.path()).unwrap().count() <= 2, "one draft at most");
        }
        write_atomic(&path, b"last", Survives::PowerCut).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"last");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "the next writer removes the draft");
    }

    #[test]
    fn writers_of_one_file_take_turns() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        write_atomic(&path, &contents()[0], Survives::Kill).unwrap();
        std::thread::scope(|scope| {
            for number in 0..4 {
                let (path, content) = (&path, &contents()[number % 2]);
                let content = content.clone();
                scope.spawn(move || {
                    for _ in 0..50 {
                        write_atomic(path, &content, Survives::Kill).unwrap();
                        assert!(contents().contains(&fs::read(path).unwrap()));
                    }
                });
            }
        });
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_file_is_its_owners_alone_whatever_it_replaces() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, "open to all").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
        write_atomic(&path, b"new", Survives::Kill).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn links_are_replaced_and_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let (path, other) = (folder.path().join("file"), folder.path().join("other"));
        fs::write(&other, "other").unwrap();
        symlink(&other, &path).unwrap();
        symlink(&other, folder.path().join(".file.new")).unwrap();
        write_atomic(&path, b"new", Survives::PowerCut).unwrap();
        assert_eq!(fs::read_to_string(&other).unwrap(), "other");
        assert!(fs::symlink_metadata(&path).unwrap().is_file());
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
    }

    #[test]
    fn what_cannot_be_written_leaves_the_old_content_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("directory");
        fs::create_dir_all(path.join("below")).unwrap();
        assert!(write_atomic(&path, b"new", Survives::Kill).is_err());
        assert!(path.join("below").exists());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        // An entry that blocks the draft, as a sandbox can make one, does not keep us from writing.
        fs::create_dir(folder.path().join(".file.new")).unwrap();
        write_atomic(&folder.path().join("file"), b"new", Survives::Kill).unwrap();
        let locked = fs::File::create(folder.path().join(".other.new")).unwrap();
        locked.lock().unwrap();
        write_atomic(&folder.path().join("other"), b"new", Survives::Kill).unwrap();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 5);
        assert!(write_atomic(Path::new("/"), b"", Survives::Kill).is_err());
        assert!(write_atomic(&folder.path().join("missing/file"), b"", Survives::Kill).is_err());
    }
}
