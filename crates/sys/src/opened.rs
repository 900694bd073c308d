//! A file or folder of the host that is opened once. What is judged and what is mounted is the descriptor: a path that is
//! resolved a second time may lead elsewhere by then, since a program that can write to a folder above can put a link there.

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags, fstat, openat, openat2, readlinkat};
use rustix::io::Errno;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// What the kernel knows a file by, however it is spelled. As long as a descriptor of it is open, no other file gets the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FileIdentity {
    pub device: u64,
    pub inode: u64,
}

impl FileIdentity {
    /// That of an open file.
    pub fn of(file: impl AsFd) -> Result<FileIdentity, Errno> {
        let found = fstat(file)?;
        Ok(FileIdentity { device: found.st_dev, inode: found.st_ino })
    }
}

/// A file or folder, open, with the path that it had at that moment.
#[derive(Debug)]
pub struct OpenedPath {
    descriptor: OwnedFd,
    path: PathBuf,
    identity: FileIdentity,
    kind: FileType,
    owner: (u32, u32),
}

impl OpenedPath {
    /// Opens `path`, which is absolute and leads over no link. `ELOOP`: there is one now. `ESTALE`: the file moved meanwhile.
    pub fn open(path: &Path) -> Result<OpenedPath, Errno> {
        let descriptor = open_real(path)?;
        // Folders on the way may have been moved while the kernel followed it.
        let named = readlinkat(CWD, by_descriptor(&descriptor), Vec::new())?;
        if named.to_bytes() != path.as_os_str().as_bytes() {
            return Err(Errno::STALE);
        }
        let found = fstat(&descriptor)?;
        Ok(OpenedPath {
            descriptor,
            path: path.to_path_buf(),
            identity: FileIdentity { device: found.st_dev, inode: found.st_ino },
            kind: FileType::from_raw_mode(found.st_mode),
            owner: (found.st_uid, found.st_gid),
        })
    }

    /// The path under which it was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn identity(&self) -> FileIdentity {
        self.identity
    }

    pub fn kind(&self) -> FileType {
        self.kind
    }

    pub fn is_directory(&self) -> bool {
        self.kind == FileType::Directory
    }

    /// The user and the group that own it.
    pub fn owner(&self) -> (u32, u32) {
        self.owner
    }

    /// A path to this very file, whatever has its name by now. Good as long as `self` lives, in this process.
    pub fn by_descriptor(&self) -> PathBuf {
        by_descriptor(&self.descriptor)
    }

    /// The same file, for reading; nothing waits, whatever it is.
    pub fn for_reading(&self) -> Result<OwnedFd, Errno> {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        if self.is_directory() {
            return openat(&self.descriptor, ".", flags | OFlags::DIRECTORY, Mode::empty());
        }
        openat(CWD, self.by_descriptor(), flags, Mode::empty())
    }

    /// The folders that it lies in, up to `/`, by the descriptor: a folder itself comes first.
    pub fn holders(&self) -> Vec<FileIdentity> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let mut holders = Vec::new();
        let mut opened = match self.is_directory() {
            true => openat(&self.descriptor, ".", flags, Mode::empty()),
            false => openat(CWD, self.path.parent().unwrap_or(Path::new("/")), flags, Mode::empty()),
        };
        while let Ok(holder) = opened {
            let Ok(identity) = FileIdentity::of(&holder) else { break };
            // `/` is its own parent.
            if holders.last() == Some(&identity) || holders.len() > DEEPEST {
                break;
            }
            holders.push(identity);
            opened = openat(&holder, "..", flags, Mode::empty());
        }
        holders
    }
}

impl AsFd for OpenedPath {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

/// Opens `path` if it leads, over no link, to the file that was opened before and is open still. `ESTALE`: it does not.
pub fn open_same(path: &Path, identity: FileIdentity) -> Result<OwnedFd, Errno> {
    let opened = match open_real(path) {
        Err(Errno::LOOP | Errno::NOENT | Errno::NOTDIR) => return Err(Errno::STALE),
        other => other?,
    };
    if FileIdentity::of(&opened)? == identity { Ok(opened) } else { Err(Errno::STALE) }
}

/// A path that leads over no link. A folder that is mounted on demand is mounted by the first try.
fn open_real(path: &Path) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    match openat2(CWD, path, flags | OFlags::DIRECTORY, Mode::empty(), resolve) {
        Err(Errno::NOTDIR) => {
            let opened = openat2(CWD, path, flags | OFlags::NOFOLLOW, Mode::empty(), resolve)?;
            match FileType::from_raw_mode(fstat(&opened)?.st_mode) {
                FileType::Symlink => Err(Errno::LOOP),
                _ => Ok(opened),
            }
        }
        other => other,
    }
}

fn by_descriptor(descriptor: &OwnedFd) -> PathBuf {
    format!("/proc/self/fd/{}", descriptor.as_raw_fd()).into()
}

/// More than a path has parts (PATH_MAX).
const DEEPEST: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{MetadataExt, symlink};

    struct Folder(PathBuf);

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn folder(name: &str) -> (Folder, PathBuf) {
        let place = std::env::temp_dir().join(format!("belljar-opened-{name}-{}", std::process::id()));
        fs::create_dir(&place).unwrap();
        let real = place.canonicalize().unwrap();
        (Folder(place), real)
    }

    #[test]
    fn a_link_is_never_followed_wherever_it_stands() {
        let (_place, real) = folder("links");
        fs::create_dir_all(real.join("a/b")).unwrap();
        fs::write(real.join("a/file"), "x").unwrap();
        symlink("a", real.join("middle")).unwrap();
        symlink("b", real.join("a/end")).unwrap();
        symlink("file", real.join("a/name")).unwrap();
        for path in ["middle/b", "a/end", "a/name"] {
            assert_eq!(OpenedPath::open(&real.join(path)).map(drop), Err(Errno::LOOP), "{path}");
        }
        let file = OpenedPath::open(&real.join("a/file")).unwrap();
        assert!(!file.is_directory() && OpenedPath::open(&real.join("a/b")).unwrap().is_directory());
        assert_eq!(file.identity().inode, real.join("a/file").metadata().unwrap().ino());
    }

    #[test]
    fn only_the_file_that_was_opened_is_the_same() {
        let (_place, real) = folder("same");
        for name in ["judged", "other"] {
            fs::create_dir(real.join(name)).unwrap();
        }
        let path = real.join("judged");
        let judged = OpenedPath::open(&path).unwrap();
        assert!(open_same(&path, judged.identity()).is_ok());
        fs::rename(&path, real.join("moved")).unwrap();
        assert_eq!(open_same(&path, judged.identity()).map(drop), Err(Errno::STALE), "gone");
        symlink("moved", &path).unwrap();
        assert_eq!(open_same(&path, judged.identity()).map(drop), Err(Errno::STALE), "a link to it");
        fs::remove_file(&path).unwrap();
        fs::rename(real.join("other"), &path).unwrap();
        assert_eq!(open_same(&path, judged.identity()).map(drop), Err(Errno::STALE), "another folder");
        let inside = fs::metadata(judged.by_descriptor()).unwrap();
        assert_eq!(inside.ino(), judged.identity().inode, "the descriptor stays with what was opened");
    }

    #[test]
    fn what_a_file_lies_in_is_found_from_the_file() {
        let (_place, real) = folder("holders");
        fs::create_dir_all(real.join("a/b")).unwrap();
        fs::write(real.join("a/file"), "x").unwrap();
        let identity = |path: &Path| OpenedPath::open(path).unwrap().identity();
        let holders = OpenedPath::open(&real.join("a/b")).unwrap().holders();
        let expected = [real.join("a/b"), real.join("a"), real.clone()].map(|path| identity(&path));
        assert_eq!(holders[..3], expected);
        assert_eq!(holders.last(), Some(&identity(Path::new("/"))));
        assert_eq!(OpenedPath::open(&real.join("a/file")).unwrap().holders()[0], expected[1]);
    }
}
