//! Which sandboxes of a service are ours, below the state directory:
//!
//! ```text
//! remote/owner                what marks them as this state directory's
//! remote/ends/<id>/lock       one that ends with its process, which holds the lock
//! remote/ends/<id>/service    where it is
//! remote/stays/<name>         the service's name for one that is kept
//! ```
//!
//! In the service a sandbox bears the owner and its id, or its key, as metadata. What a killed process left is found by both: its
//! lock is free, and the service knows a sandbox with its id.

use super::{Remote, Service};
use belljar_spec::{ErrorCode, PersistentIdentity, SandboxError, SandboxId};
use belljar_state::{Lock, Survives, create_private, new_id, remove_whole, write_atomic};
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use tracing::debug;

pub(super) type Metadata = BTreeMap<String, String>;

/// The note of a sandbox that ends with this process. Dropped, it is removed.
pub(super) struct Note {
    directory: PathBuf,
    _lock: Lock,
}

impl Note {
    /// Before the sandbox is made.
    pub(super) fn write(remote: &Remote, id: SandboxId) -> Result<Note, SandboxError> {
        let directory = ends(&remote.directory).join(id.to_string());
        let written = || {
            create_private(&directory)?;
            let lock = Lock::wait(&directory.join(LOCK))?;
            write_atomic(&directory.join(SERVICE), remote.service.name().as_bytes(), Survives::Kill)?;
            Ok(Note { directory: directory.clone(), _lock: lock })
        };
        written().map_err(|error| failed(&directory, error))
    }
}

impl Drop for Note {
    fn drop(&mut self) {
        // What stays is removed by the next start, which finds its lock free.
        let _ = remove_whole(&self.directory);
    }
}

/// The metadata of a sandbox: of one that is kept by its key, else by its id.
pub(super) fn metadata(
    remote: &Remote,
    id: SandboxId,
    identity: Option<&PersistentIdentity>,
) -> Result<Metadata, SandboxError> {
    let found_by = match identity {
        Some(identity) => (KEY.to_string(), identity.key.clone()),
        None => (ID.to_string(), id.to_string()),
    };
    Ok([(OWNER.to_string(), owner(&remote.directory)?), found_by].into())
}

/// Notes that a sandbox is kept.
pub(super) fn keep(remote: &Remote, identity: &PersistentIdentity, id: &str) -> Result<(), SandboxError> {
    let directory = remote.directory.join(STAYS);
    let path = directory.join(&identity.name);
    create_private(&directory)
        .and_then(|()| write_atomic(&path, id.as_bytes(), Survives::Kill))
        .map_err(|error| failed(&path, error))
}

/// Ends the sandbox that is kept under this name, if there is one. `directory` is a [`Remote`]'s.
pub fn forget(
    directory: &Path,
    name: &str,
    service: impl FnOnce() -> Result<Service, SandboxError>,
) -> Result<(), SandboxError> {
    let path = directory.join(STAYS).join(name);
    let id = match fs::read_to_string(&path) {
        Ok(id) => id,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(failed(&path, error)),
    };
    service()?.kill(&id)?;
    fs::remove_file(&path).map_err(|error| failed(&path, error))
}

/// Ends what killed processes left in this service. What cannot be ended now is tried again by the next start, and ends by its time to
/// live.
pub(super) fn sweep(remote: &Remote) {
    let service = remote.service.name();
    let left: Vec<(String, PathBuf, Lock)> = fs::read_dir(ends(&remote.directory))
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            let (name, path) = (entry.file_name().into_string().ok()?, entry.path());
            let lock = Lock::try_existing(&path.join(LOCK)).ok()??;
            let is_here = fs::read_to_string(path.join(SERVICE)).is_ok_and(|noted| noted == service);
            is_here.then_some((name, path, lock))
        })
        .collect();
    if left.is_empty() {
        return;
    }
    let swept = || {
        let ours = [(OWNER.to_string(), owner(&remote.directory)?)].into();
        for found in remote.service.find(&ours)? {
            if found.metadata.get(ID).is_some_and(|id| left.iter().any(|(name, ..)| name == id)) {
                remote.service.kill(&found.id)?;
            }
        }
        Ok(())
    };
    match swept() {
        Ok(()) => left.iter().for_each(|(_, path, _)| {
            let _ = remove_whole(path);
        }),
        Err::<(), SandboxError>(error) => debug!(%error, "leftovers in a remote service were not removed"),
    }
}

/// The mark of this state directory, made once.
fn owner(directory: &Path) -> Result<String, SandboxError> {
    let path = directory.join("owner");
    let made = || {
        create_private(directory)?;
        let _lock = Lock::wait(&directory.join(LOCK))?;
        match fs::read_to_string(&path) {
            Ok(owner) if !owner.is_empty() => Ok(owner),
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => {
                let owner = new_id().map_err(|error| io::Error::other(error.message))?.to_string();
                write_atomic(&path, owner.as_bytes(), Survives::Kill)?;
                Ok(owner)
            }
        }
    };
    made().map_err(|error| failed(&path, error))
}

fn ends(directory: &Path) -> PathBuf {
    directory.join("ends")
}

fn failed(path: &Path, error: io::Error) -> SandboxError {
    ErrorCode::StateFailed
        .error(format!("cannot note a remote sandbox at `{}`: {error}", path.display()))
        .caused_by(error)
}

const OWNER: &str = "belljar-owner";
const ID: &str = "belljar-id";
const KEY: &str = "belljar-key";
const LOCK: &str = "lock";
const SERVICE: &str = "service";
const STAYS: &str = "stays";
