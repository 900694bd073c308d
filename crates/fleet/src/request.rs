//! From a request to a sandbox that the fleet holds: where its files are kept, and what only the fleet refuses. The rest is the engine's.
//! Called by the daemon before anything is made, and by the process that holds the sandbox.

use crate::SandboxDir;
use belljar_config::{self as config, EgressFlags, Note, SandboxSettings, UsersNetwork};
use belljar_spec::request::wrong_value;
use belljar_spec::secret::SecretRef;
use belljar_spec::{
    ErrorCode, ForwardedPort, PersistentIdentity, SandboxError, SandboxId, SandboxRequest, SandboxSpec,
    Volume, VolumeName, VolumePath,
};
use data_encoding::HEXLOWER;
use sha2::{Digest, Sha256};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Whose request it is, and where that sandbox is kept.
#[derive(Debug, Clone)]
pub struct Surroundings {
    pub name: String,
    pub key: String,
    /// The name of this life; without one a new one is made.
    pub id: Option<SandboxId>,
    /// It outlives its leases, and so does its home.
    pub persistent: bool,
    /// Where it is kept.
    pub place: SandboxDir,
    /// Where volumes are kept.
    pub volumes: PathBuf,
    /// The owner of this machine made it, and not the holder of a grant.
    pub is_owners: bool,
}

/// A request that makes sense.
#[derive(Debug)]
pub struct ResolvedRequest {
    pub spec: SandboxSpec,
    /// Ports inside that can be reached from outside: those that were asked for, and those of a trusted repository's file.
    pub ports: Vec<u16>,
    /// Those that the host's loopback device leads to because a trusted repository's file names them.
    pub forwarded: Vec<ForwardedPort>,
    /// What a person should know.
    pub notes: Vec<Note>,
}

/// Refuses a request that makes no sense, before anything is made for it.
pub fn check(request: &SandboxRequest) -> Result<(), SandboxError> {
    // A variable or a file of the daemon is nothing that a caller could name: it would be sent wherever `url` says.
    if let Some(SecretRef::Env(_) | SecretRef::File(_)) =
        request.llm.as_ref().and_then(|llm| llm.key.as_ref())
    {
        return Err(wrong_value(
            "llm.key",
            "only what is kept in the vault opens a model: write `secret:NAME`",
        ));
    }
    if request.limits.ready.is_some_and(|ready| ready > MAX_READY) {
        return Err(wrong_value("limits.ready", "the daemon waits no longer than 10 minutes for a sandbox"));
    }
    if request.workspace.same_path && request.workspace.folder.is_none() {
        let message =
            "`workspace.same_path`: only a folder of the host has a path there: name one with `folder`";
        return Err(ErrorCode::RequestConflict.error(message).hint("correct `sandbox.workspace.same_path`"));
    }
    request.check()
}

/// The sandbox that a request means. Nothing is made: what it needs below `surroundings` is made when it starts.
pub fn understand(
    request: &SandboxRequest,
    surroundings: &Surroundings,
) -> Result<ResolvedRequest, SandboxError> {
    check(request)?;
    let Surroundings { name, key, id, persistent, place, volumes, is_owners } = surroundings;
    let mut ports = request.ports.clone();
    let (mut more_volumes, mut forwarded) = (Vec::new(), Vec::new());
    if let Some(folder) = &request.workspace.folder {
        // What is wrong with a file is said when all of it is read.
        let written = config::load(Some(folder), EgressFlags::default()).map(|loaded| loaded.sandbox());
        let written: SandboxSettings = written.unwrap_or_default();
        if *is_owners {
            let is_requested =
                |port: &u16| request.forward_ports.iter().any(|requested| requested.inside == *port);
            let written = written.ports.iter().copied().filter(|port| !is_requested(port));
            forwarded.extend(written.map(ForwardedPort::same));
        }
        ports.extend(written.ports);
        let unsaid =
            |(_, target): &(VolumeName, VolumePath)| request.volumes.values().all(|other| other != target);
        // What other sandboxes can write is not where an administrator works.
        let own = written.volumes.into_iter().filter(|volume| !request.admin && unsaid(volume));
        more_volumes =
            own.map(|(name, target)| Volume { source: of_folder(volumes, &name, folder), target }).collect();
    }
    ports.extend(request.forward_ports.iter().map(|port| port.inside));
    ports.sort_unstable();
    ports.dedup();
    let surroundings = belljar_config::Surroundings {
        id: *id,
        persistent: Some(PersistentIdentity { name: name.clone(), key: key.clone() }),
        // The files of a snapshot are on the disk, and so is what is changed of them.
        home: (*persistent || request.snapshot.is_some()).then(|| place.home()),
        workspace: place.workspace(),
        volumes: volumes.clone(),
        more_volumes,
        users_network: match is_owners {
            true => UsersNetwork::Applied,
            false => UsersNetwork::Ignored,
        },
        ..belljar_config::Surroundings::default()
    };
    let (spec, notes) = belljar_config::resolve(request.clone(), surroundings)?;
    Ok(ResolvedRequest { spec, ports, forwarded, notes })
}

/// Where a volume of a repository's own is kept. Another repository's of the same name is another one: what one agent puts
/// there, no other should find.
pub fn of_folder(volumes: &Path, name: &VolumeName, folder: &Path) -> PathBuf {
    let real = folder.canonicalize().unwrap_or_else(|_| folder.to_path_buf());
    let hash = Sha256::digest(real.as_os_str().as_bytes());
    volumes.join(format!("{name}.{}", HEXLOWER.encode(&hash[..6])))
}

/// Longer than any image takes to start, and not so long that the daemon waits for a client that has gone.
const MAX_READY: Duration = Duration::from_secs(600);

#[cfg(test)]
#[path = "request/tests.rs"]
mod tests;
