//! The vault's folder, and replacing a file in it: atomically, by one process at a time.

use super::VaultError;
use belljar_state::{Lock, Survives, create_private, state_directory, write_atomic};
use belljar_sys::rustix::fs::{Mode, OFlags, open};
use belljar_sys::rustix::io::Errno;
use belljar_sys::rustix::process::geteuid;
use std::fs::{self, File, Metadata};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use zeroize::Zeroizing;

/// The vault's folder.
#[derive(Debug, Clone)]
pub(super) struct VaultDir {
    pub(super) folder: PathBuf,
}

impl VaultDir {
    /// In belljar's state directory.
    pub(super) fn real() -> Result<VaultDir, VaultError> {
        let state = state_directory().map_err(|_| VaultError::NoHome)?;
        Ok(VaultDir { folder: state.join("vault") })
    }

    pub(super) fn secrets(&self) -> PathBuf {
        self.folder.join("secrets.json")
    }

    pub(super) fn key(&self) -> PathBuf {
        self.folder.join("key")
    }

    /// Does the folder exist, owned by us and closed to other users?
    pub(super) fn is_there(&self) -> Result<bool, VaultError> {
        match fs::metadata(&self.folder) {
            Ok(found) => only_ours(&self.folder, &found).map(|()| true),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            Err(source) => Err(VaultError::Read { path: self.folder.clone(), source }),
        }
    }

    /// Makes the folder if needed, and locks the vault for this process. Other processes hold the lock for some milliseconds,
    /// unless they were stopped just then: so the wait has a time limit.
    pub(super) fn hold(&self) -> Result<Held, VaultError> {
        let failed = |source| VaultError::Write { path: self.folder.clone(), source };
        if !self.is_there()? {
            create_private(&self.folder).map_err(failed)?;
            self.is_there()?;
        }
        let path = self.folder.join("lock");
        match Lock::wait_within(&path, LOCK_TIMEOUT) {
            Ok(Some(lock)) => Ok(Held(lock)),
            Ok(None) => Err(VaultError::Held { path, seconds: LOCK_TIMEOUT.as_secs() }),
            Err(source) => Err(VaultError::Write { path, source }),
        }
    }

    /// Replaces a file. After a kill or on a full disk, the old one stays.
    pub(super) fn replace(&self, path: &Path, bytes: &[u8], _: &Held) -> Result<(), VaultError> {
        write_atomic(path, bytes, Survives::PowerCut)
            .map_err(|source| VaultError::Write { path: path.into(), source })
    }
}

/// The vault's lock: while it is held, no other process changes the vault.
pub(super) struct Held(#[expect(dead_code, reason = "dropping it releases the lock")] Lock);

/// Reads a file that only our user can read or write; `None` if there is no such file.
pub(super) fn read_private(path: &Path, most: usize) -> Result<Option<Zeroizing<Vec<u8>>>, VaultError> {
    let failed = |source| VaultError::Read { path: path.into(), source };
    let Some((file, found)) = open_file(path).map_err(failed)? else { return Ok(None) };
    only_ours(path, &found)?;
    read_at_most(file, &found, most).map_err(failed).map(Some)
}

/// Opens a regular file. A pipe in its place does not make us wait.
pub(super) fn open_file(path: &Path) -> io::Result<Option<(File, Metadata)>> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = match open(path, flags, Mode::empty()) {
        Ok(file) => File::from(file),
        Err(Errno::NOENT) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let found = file.metadata()?;
    if !found.is_file() {
        return Err(io::Error::other("it is not a file"));
    }
    Ok(Some((file, found)))
}

/// A file's whole content, in memory that is cleared and never reallocated.
pub(super) fn read_at_most(file: File, found: &Metadata, most: usize) -> io::Result<Zeroizing<Vec<u8>>> {
    let room = usize::try_from(found.len()).unwrap_or(most).min(most) + 1;
    let mut bytes = Zeroizing::new(Vec::with_capacity(room));
    file.take(room as u64).read_to_end(&mut bytes)?;
    if bytes.len() == room {
        return Err(io::Error::other(format!("it is longer than {most} bytes, or grows")));
    }
    Ok(bytes)
}

/// Another user who can write here chooses our secrets, and one who can read the key has them.
pub(super) fn only_ours(path: &Path, found: &Metadata) -> Result<(), VaultError> {
    if found.uid() != geteuid().as_raw() {
        return Err(VaultError::NotOurs { path: path.into(), owner: found.uid() });
    }
    if found.mode() & OTHERS != 0 {
        let right = if found.is_dir() { 0o700 } else { 0o600 };
        return Err(VaultError::OpenToOthers { path: path.into(), mode: found.mode() & 0o777, right });
    }
    Ok(())
}

const OTHERS: u32 = 0o077;
const LOCK_TIMEOUT: Duration = Duration::from_secs(10);
