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
    /// What git that works in it may open: itself, and the objects that it borrows.
    reach: Reach,
    /// Held as long as we live: a sweep leaves alone what is held.
    _lock: Lock,
}

impl Quarantine {
    /// A new one below `state`, for objects that build on the host's.
    pub fn create(state: &Path, host: &HostRepository) -> Result<Quarantine, QuarantineError> {
        let place = place(state)?;
        // Between the directory and its lock no sweep may come.
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

    /// A call of git on it, which cannot take much of the machine's memory whatever the objects say of their size.
    pub(super) fn call(&self) -> Call {
        self.call_on(&self.directory)
    }

    /// The same on another repository of ours that holds what an agent made.
    pub(super) fn call_on(&self, directory: &Path) -> Call {
        self.git
            .on(directory)
            .reaching(self.reach.clone())
            .env("GIT_ALLOC_LIMIT", MAX_MEMORY)
            .config("core.bigFileThreshold", STREAMED)
            .config("pack.threads", "1")
    }

    /// Where index-pack puts what it took.
    pub(super) fn packs(&self) -> PathBuf {
        self.directory.join("objects/pack")
    }
}

/// A repository without refs that borrows the host's objects. Written by hand: `git init` would bring templates, and takes
/// longer.
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
    // Where the host's history ends, ours does.
    if let Ok(shallow) = fs::read(host.directory.join("shallow")) {
        write("shallow", &shallow)?;
    }
    Ok(())
}

impl Drop for Quarantine {
    fn drop(&mut self) {
        // What cannot be removed now is left to the next sweep.
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// Where all of them are.
pub(super) fn place(state: &Path) -> Result<PathBuf, QuarantineError> {
    let place = state.join("quarantine");
    match make_directory(&place) {
        Err(QuarantineError::File { source, .. }) if source.kind() == std::io::ErrorKind::AlreadyExists => {}
        made => made?,
    }
    Ok(place)
}

/// Waits until it is ours.
pub(super) fn lock(path: &Path) -> Result<Lock, QuarantineError> {
    Lock::wait(path).map_err(QuarantineError::file("lock", path))
}

/// Writes a file and sees it to the disk.
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

/// A single object in memory (git's own limit on one allocation); larger ones are only taken as they stream by.
const MAX_MEMORY: &str = "256m";
/// Files of this size are not held in memory at all.
const STREAMED: &str = "16m";
/// Held while a quarantine begins, and while others are swept.
pub(super) const PLACE_LOCK: &str = "lock";
/// Held while a quarantine lives.
pub(super) const LOCK: &str = "lock";
