//! A volume as it lies on this machine. Sandboxes write in it: nothing below its top is trusted to be what it was, so each step goes
//! through an open folder and follows no link.

use belljar_spec::{ErrorCode, SandboxError};
use belljar_state::{PRIVATE_FILE, Survives, create_private, state_directory, write_atomic_at};
use belljar_sys::rustix::fs::{AtFlags, FileType, Mode, OFlags, fstat, mkdirat, open, openat, unlinkat};
use belljar_sys::rustix::io::Errno;
use std::fs::{self, DirBuilder, File};
use std::io::{ErrorKind, Read};
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// A volume.
#[derive(Debug, Clone)]
pub(super) struct Volume {
    pub(super) name: String,
    /// Where it is on this machine.
    pub(super) path: PathBuf,
    /// Where it is inside.
    pub(super) inside: String,
}

/// A folder of a volume that is open.
#[derive(Debug)]
pub(super) struct Folder {
    fd: OwnedFd,
    /// For people only.
    path: PathBuf,
}

/// Where all volumes are.
pub(super) fn all() -> Result<PathBuf, SandboxError> {
    let state = state_directory().map_err(|error| {
        ErrorCode::ConfigInvalid
            .error(format!("there is no place for volumes: {error}"))
            .hint("set HOME, or XDG_STATE_HOME")
            .caused_by(error)
    })?;
    Ok(state.join("fleet/volumes"))
}

impl Volume {
    /// The one that is kept there.
    pub(super) fn at(path: PathBuf, inside: &str) -> Volume {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Volume { name, path, inside: inside.into() }
    }

    pub(super) fn exists(&self) -> bool {
        self.path.is_dir()
    }

    /// Makes it if it is not there; says whether it was made.
    pub(super) fn make(&self) -> Result<bool, SandboxError> {
        let failed = |error| broken("make", &self.path, error);
        let above = self.path.parent().unwrap_or(Path::new("/"));
        create_private(above).map_err(failed)?;
        match DirBuilder::new().mode(PRIVATE).create(&self.path) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(false),
            Err(error) => Err(failed(error)),
        }
    }

    pub(super) fn open(&self) -> Result<Folder, SandboxError> {
        let fd = open(&self.path, FOLDER, Mode::empty())
            .map_err(|errno| broken("open", &self.path, errno.into()))?;
        Ok(Folder { fd, path: self.path.clone() })
    }

    /// How many bytes its files have.
    pub(super) fn size(&self) -> u64 {
        size_below(&self.path)
    }
}

impl Folder {
    /// A folder below, made if need be.
    pub(super) fn folder(&self, name: &str) -> Result<Folder, SandboxError> {
        self.make_folder(name)?;
        let path = self.path.join(name);
        let fd = openat(&self.fd, name, FOLDER, Mode::empty())
            .map_err(|errno| broken("open", &path, errno.into()))?;
        Ok(Folder { fd, path })
    }

    /// The same. A file in its place is removed for it: a program that can write in the volume put it there.
    pub(super) fn folder_anew(&self, name: &str) -> Result<Folder, SandboxError> {
        match self.folder(name) {
            Ok(folder) => Ok(folder),
            Err(_) => {
                let path = self.path.join(name);
                unlinkat(&self.fd, name, AtFlags::empty())
                    .map_err(|errno| broken("replace", &path, errno.into()))?;
                self.folder(name)
            }
        }
    }

    /// Makes a folder below, if nothing has its name.
    pub(super) fn make_folder(&self, name: &str) -> Result<(), SandboxError> {
        match mkdirat(&self.fd, name, Mode::from_raw_mode(PRIVATE)) {
            Ok(()) | Err(Errno::EXIST) => Ok(()),
            Err(errno) => Err(broken("make", &self.path.join(name), errno.into())),
        }
    }

    /// Whether something has this name, whatever it is.
    pub(super) fn has(&self, name: &str) -> bool {
        belljar_sys::rustix::fs::statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW).is_ok()
    }

    /// A file's text, if it is a file of text and not a large one.
    pub(super) fn read(&self, name: &str) -> Option<String> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let fd = openat(&self.fd, name, flags, Mode::empty()).ok()?;
        let stat = fstat(&fd).ok()?;
        if !FileType::from_raw_mode(stat.st_mode).is_file() || stat.st_size as u64 > MAX_SETTINGS_BYTES {
            return None;
        }
        let mut text = String::new();
        File::from(fd).take(MAX_SETTINGS_BYTES).read_to_string(&mut text).ok()?;
        Some(text)
    }

    /// Writes a file: all of it or nothing. Whatever had the name before is replaced, and nothing behind it is touched.
    pub(super) fn write(&self, name: &str, content: &[u8]) -> Result<(), SandboxError> {
        let path = self.path.join(name);
        write_atomic_at(&self.fd, name, content, PRIVATE_FILE, Survives::Kill)
            .map_err(|error| broken("write", &path, error))
    }
}

fn size_below(folder: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(folder) else { return 0 };
    entries
        .flatten()
        // What it says of itself, and not of what a link leads to.
        .filter_map(|entry| Some((entry.path(), entry.metadata().ok()?)))
        .map(|(path, found)| if found.is_dir() { size_below(&path) } else { found.len() })
        .sum()
}

fn broken(what: &str, path: &Path, error: std::io::Error) -> SandboxError {
    let hint = match error.kind() {
        ErrorKind::ReadOnlyFilesystem => {
            "the state directory is on a read-only disk; `XDG_STATE_HOME` names another"
        }
        ErrorKind::PermissionDenied => {
            "its mode, or that of a folder above it, does not allow that to you; `XDG_STATE_HOME` names another place"
        }
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => "the disk is full: free some space",
        _ => "a sandbox may have put something else there: look, and remove it",
    };
    ErrorCode::WorkspaceFailed.error(format!("cannot {what} `{}`: {error}", path.display())).hint(hint)
}

const FOLDER: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
const PRIVATE: u32 = 0o700;
/// No settings of an agent are longer.
const MAX_SETTINGS_BYTES: u64 = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_that_cannot_be_written_is_no_fault_of_a_sandbox() {
        for (kind, expected) in [
            (ErrorKind::ReadOnlyFilesystem, "read-only disk"),
            (ErrorKind::PermissionDenied, "does not allow that to you"),
            (ErrorKind::StorageFull, "the disk is full"),
            (ErrorKind::NotADirectory, "a sandbox may have put something else there"),
        ] {
            let hint = broken("make", Path::new("/x"), kind.into()).hint.unwrap().to_string();
            assert!(hint.contains(expected), "{kind}: {hint}");
        }
    }

    fn volume() -> (tempfile::TempDir, Volume) {
        let directory = tempfile::tempdir().unwrap();
        let volume = Volume::at(directory.path().join("volumes/v"), "/volumes/v");
        assert!(volume.make().unwrap() && !volume.make().unwrap());
        (directory, volume)
    }

    #[test]
    fn a_link_in_a_volume_leads_nowhere() {
        let (directory, volume) = volume();
        let outside = directory.path().join("outside");
        fs::create_dir(&outside).unwrap();
        fs::write(directory.path().join("secret"), "secret").unwrap();
        std::os::unix::fs::symlink(&outside, volume.path.join("codex")).unwrap();
        std::os::unix::fs::symlink(directory.path().join("secret"), volume.path.join("file")).unwrap();
        std::os::unix::fs::symlink(directory.path().join("secret"), volume.path.join(".file.new")).unwrap();
        let folder = volume.open().unwrap();
        assert_eq!(folder.folder("codex").unwrap_err().code, ErrorCode::WorkspaceFailed);
        assert_eq!(folder.read("file"), None);
        folder.write("file", b"new").unwrap();
        assert_eq!(folder.read("file").as_deref(), Some("new"));
        assert_eq!(fs::read_to_string(directory.path().join("secret")).unwrap(), "secret");
        assert_eq!(fs::read_dir(&outside).unwrap().count(), 0);
    }

    #[test]
    fn what_is_no_file_of_text_is_not_read() {
        let (_place, volume) = volume();
        fs::write(volume.path.join("bytes"), [0xff]).unwrap();
        fs::create_dir(volume.path.join("folder")).unwrap();
        let folder = volume.open().unwrap();
        for name in ["bytes", "folder", "missing"] {
            assert_eq!(folder.read(name), None, "{name}");
        }
        assert!(folder.has("bytes") && folder.has("folder") && !folder.has("missing"));
        assert_eq!(volume.size(), 1);
    }
}
