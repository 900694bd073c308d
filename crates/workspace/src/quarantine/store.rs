//! A quarantine's own files.

use super::{HostRepository, QuarantineError, alternates};
use crate::inert::{Call, Git, Reach};
use belljar_git::ObjectFormat;
use belljar_state::{Lock, Survives, write_atomic};
use belljar_sys::rustix::rand::{GetRandomFlags, getrandom};
use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// Our repository for objects that were not checked yet. Removed on drop.
#[derive(Debug)]
pub struct Quarantine {
    pub(super) git: Git,
    pub(super) id: String,
    pub(super) directory: PathBuf,
    pub(super) format: ObjectFormat,
    /// The directories that git may open for it: the quarantine, and the objects that it borrows.
    reach: Reach,
    /// Locked while we live: a sweep skips locked quarantines.
    _lock: Lock,
}

impl Quarantine {
    /// A new quarantine below `state`, for objects that build on the host's.
    pub fn create(state: &Path, host: &HostRepository) -> Result<Quarantine, QuarantineError> {
        let place = place(state)?;
        // No sweep may happen between making the directory and locking it.
        let _whole = lock(&place.join(PLACE_LOCK))?;
        let id = random_name().map_err(QuarantineError::file("name", &place))?;
        let directory = place.join(&id);
        make_directory(&directory)?;
        let lock = lock(&directory.join(LOCK))?;
        let directory = fs::canonicalize(&directory).map_err(QuarantineError::file("look at", &directory))?;
        let borrowed = alternates::all(&host.objects);
        let reach = borrowed.iter().fold(Reach::default().write(&directory), |reach, one| reach.read(one));
        let quarantine =
            Quarantine { git: host.git.clone(), id, directory, format: host.format, reach, _lock: lock };
        lay_out(&quarantine.directory, host)?;
        Ok(quarantine)
    }

    /// A call of git on it, which cannot use much memory even if objects claim a large size.
    pub(super) fn call(&self) -> Call {
        self.call_on(&self.directory)
    }

    /// The same on another repository of ours with an agent's objects.
    pub(super) fn call_on(&self, directory: &Path) -> Call {
        self.git
            .on(directory)
            .reaching(self.reach.clone())
            .env("GIT_ALLOC_LIMIT", MAX_MEMORY)
            .config("core.bigFileThreshold", STREAMED)
            .config("pack.threads", "1")
    }

    /// Where index-pack stores packs.
    pub(super) fn packs(&self) -> PathBuf {
        self.directory.join("objects/pack")
    }
}

/// A repository without refs that borrows the host's objects. Written by hand: `git init` would copy templates, and takes longer.
pub(super) fn lay_out(directory: &Path, host: &HostRepository) -> Result<(), QuarantineError> {
    let write = |name: &str, content: &[u8]| {
        let path = directory.join(name);
        fs::write(&path, content).map_err(QuarantineError::file("write", &path))
    };
    for name in ["refs", "objects", "objects/info", "objects/pack"] {
        make_directory(&directory.join(name))?;
    }
    let config = match host.format {
        ObjectFormat::Sha1 => "[core]\nrepositoryformatversion = 0\nbare = true\n",
        ObjectFormat::Sha256 => {
            "[core]\nrepositoryformatversion = 1\nbare = true\n[extensions]\nobjectFormat = sha256\n"
        }
    };
    let mut borrowed = Vec::new();
    for path in alternates::all(&host.objects) {
        let path = path.into_os_string().into_encoded_bytes();
        if path.contains(&b'\n') {
            return Err(QuarantineError::Unusable(
                "the repository's path has more than one line".to_string(),
            ));
        }
        borrowed.extend([path, b"\n".to_vec()].concat());
    }
    write("HEAD", b"ref: refs/heads/none\n")?;
    write("config", config.as_bytes())?;
    write("objects/info/alternates", &borrowed)?;
    // Our history ends where the host's does.
    if let Ok(shallow) = fs::read(host.directory.join("shallow")) {
        write("shallow", &shallow)?;
    }
    Ok(())
}

impl Drop for Quarantine {
    fn drop(&mut self) {
        // If it cannot be removed now, the next sweep does it.
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// The directory of all quarantines.
pub(super) fn place(state: &Path) -> Result<PathBuf, QuarantineError> {
    let place = state.join("quarantine");
    match make_directory(&place) {
        Err(QuarantineError::File { source, .. }) if source.kind() == std::io::ErrorKind::AlreadyExists => {}
        made => made?,
    }
    Ok(place)
}

/// Waits for the lock.
pub(super) fn lock(path: &Path) -> Result<Lock, QuarantineError> {
    Lock::wait(path).map_err(QuarantineError::file("lock", path))
}

/// Writes a file and syncs it to disk.
pub(super) fn write_durably(path: &Path, content: &[u8]) -> Result<(), QuarantineError> {
    write_atomic(path, content, Survives::PowerCut).map_err(QuarantineError::file("write", path))
}

fn random_name() -> std::io::Result<String> {
    let mut bytes = [0; 8];
    getrandom(&mut bytes, GetRandomFlags::empty())?;
    Ok(format!("{:016x}", u64::from_be_bytes(bytes)))
}

pub(super) fn make_directory(path: &Path) -> Result<(), QuarantineError> {
    DirBuilder::new().mode(0o700).create(path).map_err(QuarantineError::file("make", path))
}

/// The size limit of an object in memory (git's own limit on one allocation); larger ones are only streamed.
const MAX_MEMORY: &str = "256m";
/// Blobs of this size are never held in memory.
const STREAMED: &str = "16m";
/// Locked while a quarantine is created, and while others are swept.
pub(super) const PLACE_LOCK: &str = "lock";
/// Locked while a quarantine lives.
pub(super) const LOCK: &str = "lock";
