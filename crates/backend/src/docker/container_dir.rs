//! Where a container is put together, and how it is known which state directory it belongs to.
//!
//! ```text
//! S/docker/owner      a random word: the label of every container of this state directory
//! S/docker/started/   a note of each container that was started, until it is known that nothing of it was forgotten
//! S/docker/ID/        locked by the process that launched the sandbox, as long as that lives
//! S/docker/ID/root    the stage: what the container will be shown; empty again when it runs
//! S/docker/ID/private the private filesystem, while it is taken apart
//! S/docker/ID/door    the control socket that the guest connects to; gone when it has
//! ```
//!
//! The kernel releases the lock when its holder dies, however it dies. So a container is swept if it has the label of this
//! state directory and no process holds its directory, and never a neighbour's.

use super::strays;
use belljar_docker::Daemon;
use belljar_docker::bollard::query_parameters::ListContainersOptionsBuilder;
use belljar_spec::{ErrorCode, SandboxError, SandboxId};
use belljar_state::Lock;
use belljar_sys::mount::{UnmountFlags, unmount};
use std::collections::{HashMap, HashSet};
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

/// The directory of one container that is being made, or lives. Dropped, it is gone.
pub(super) struct ContainerDir {
    directory: PathBuf,
    owner: String,
    is_needed: bool,
    /// None of one that is only talked about.
    lock: Option<Lock>,
}

impl ContainerDir {
    /// Makes and locks it.
    pub(super) fn make(containers: &Path, id: SandboxId) -> Result<ContainerDir, SandboxError> {
        ContainerDir::make_within(SWEEP_TIMEOUT, containers, id)
    }

    fn make_within(
        time_limit: Duration,
        containers: &Path,
        id: SandboxId,
    ) -> Result<ContainerDir, SandboxError> {
        let failed = |error: io::Error| {
            let message =
                format!("cannot make a place for the container in `{}`: {error}", containers.display());
            ErrorCode::StateFailed
                .error(message)
                .hint("set XDG_STATE_HOME to a folder that you can write to")
                .caused_by(error)
        };
        make_directory(containers, 0o700).map_err(failed)?;
        let containers = &containers.canonicalize().map_err(failed)?;
        let owner = owner(containers).map_err(failed)?;
        let directory = containers.join(id.to_string());
        let started = Instant::now();
        loop {
            make_directory(&directory, 0o700).map_err(failed)?;
            // A sweep may take a directory that is not locked yet: then it is made again when the sweep is done with it.
            match Lock::try_directory(&directory) {
                Ok(Some(lock)) => {
                    let place = ContainerDir { directory, owner, is_needed: false, lock: Some(lock) };
                    for (name, mode) in [(ROOT, 0o755), (PRIVATE, 0o755), (CONTROL_SOCKET, 0o755)] {
                        make_directory(&place.directory.join(name), mode).map_err(failed)?;
                    }
                    return Ok(place);
                }
                Ok(None) if started.elapsed() < time_limit => thread::sleep(STEP),
                Ok(None) => return Err(failed(io::ErrorKind::AlreadyExists.into())),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(failed(error)),
            }
        }
    }

    /// Where it would be, for a description.
    pub(super) fn imagined(containers: &Path, id: SandboxId) -> ContainerDir {
        let owner =
            fs::read_to_string(containers.join(OWNER)).unwrap_or_else(|_| "made-with-the-first".into());
        let directory = containers.join(id.to_string());
        ContainerDir { directory, owner: owner.trim().to_string(), is_needed: false, lock: None }
    }

    /// Where the stage is.
    pub(super) fn root(&self) -> PathBuf {
        self.directory.join(ROOT)
    }

    /// Where the private filesystem is made.
    pub(super) fn private(&self) -> PathBuf {
        self.directory.join(PRIVATE)
    }

    /// The directory of the control socket.
    pub(super) fn control_socket(&self) -> PathBuf {
        self.directory.join(CONTROL_SOCKET)
    }

    /// The word that all containers of this state directory are labelled with.
    pub(super) fn owner(&self) -> &str {
        &self.owner
    }

    /// Notes that a container is about to be started.
    pub(super) fn note(&self, container: &str) {
        if let (Some(containers), Some(id)) = (self.directory.parent(), self.directory.file_name()) {
            strays::note(containers, container, &id.to_string_lossy());
        }
    }

    /// That it was ready: nothing of it was forgotten.
    pub(super) fn forget(&self, container: &str) {
        if let Some(containers) = self.directory.parent() {
            strays::forget(containers, container);
        }
    }

    /// Leaves the directory for the next sweep: it is not known whether the container is gone.
    pub(super) fn leave_a_trace(&mut self) {
        self.is_needed = true;
    }

    /// Removes the stage from the host's view; a container keeps what it was shown.
    pub(super) fn strike(&self) {
        strike(&self.directory);
    }
}

impl Drop for ContainerDir {
    fn drop(&mut self) {
        if self.lock.is_none() {
            return;
        }
        if self.is_needed {
            self.strike();
        } else {
            clear(&self.directory);
        }
    }
}

/// Removes what is left of containers that no process holds any more. Where `thorough`, the daemon is asked for ours even
/// if no directory is left of them: one that was still being made when its maker died.
pub(crate) fn sweep_containers(containers: &Path, thorough: bool) {
    let Ok(containers) = containers.canonicalize() else { return };
    let abandoned: Vec<(PathBuf, Lock)> = directories(&containers)
        .filter_map(|directory| Lock::try_directory(&directory).ok().flatten().map(|lock| (directory, lock)))
        .collect();
    if abandoned.is_empty() && !thorough {
        return;
    }
    abandoned.iter().for_each(|(directory, _)| strike(directory));
    // A daemon that hangs is no reason for a sandbox to wait: with the docker backend for a moment, with another one not at all.
    let (done, receiver) = channel();
    thread::spawn(move || {
        remove(&containers, &abandoned);
        let _ = done.send(());
    });
    if thorough {
        let _ = receiver.recv_timeout(SWEEP_TIMEOUT);
    }
}

fn remove(containers: &Path, abandoned: &[(PathBuf, Lock)]) {
    let daemon = Daemon::connect();
    for (directory, _lock) in abandoned {
        let name = directory.file_name().map(|id| container_name(&id.to_string_lossy())).unwrap_or_default();
        // Without the daemon it is not known whether the container is gone: the next sweep tries again.
        if daemon.as_ref().is_ok_and(|daemon| daemon.remove_container(&name).is_ok()) {
            clear(directory);
        }
    }
    if let (Ok(daemon), Ok(owner)) = (&daemon, fs::read_to_string(containers.join(OWNER))) {
        sweep_labelled(daemon, containers, owner.trim());
    }
}

fn sweep_labelled(daemon: &Daemon, containers: &Path, owner: &str) {
    // First: what is noted later than the list is made may be of one that it does not have yet.
    let noted = strays::noted(containers);
    let filters = HashMap::from([("label", vec![format!("{OWNER_LABEL}={owner}")])]);
    let options = ListContainersOptionsBuilder::default().all(true).filters(&filters).build();
    let listed =
        daemon.run("list its containers", async |client| client.list_containers(Some(options)).await);
    let Ok(listed) = listed else { return };
    let known: HashSet<String> = listed.iter().filter_map(|container| container.id.clone()).collect();
    for container in listed {
        let id = container.labels.as_ref().and_then(|labels| labels.get(ID_LABEL));
        let (Some(id), Some(name)) = (id.filter(|id| is_id(id)), container.id) else { continue };
        // An image that was made of a sandbox has its labels too, and so has every container that a user runs from it.
        let is_named = |known: &String| known.trim_start_matches('/') == container_name(id);
        if !container.names.iter().flatten().any(is_named) {
            continue;
        }
        // The process that makes it locked its directory before it asked for the container.
        if is_free(&containers.join(id)) {
            let _ = daemon.remove_container(&name);
        }
    }
    // One that is held lives: another daemon than this one has it.
    let is_forgotten = |(container, id): &(String, String)| {
        !known.contains(container) && is_id(id) && is_free(&containers.join(id))
    };
    let forgotten = noted.into_iter().filter(is_forgotten).map(|(container, _)| container);
    strays::end_noted(containers, &forgotten.collect::<Vec<_>>());
}

/// How long a start waits for the removal of what earlier ones left.
const SWEEP_TIMEOUT: Duration = Duration::from_secs(5);
/// Between two looks.
const STEP: Duration = Duration::from_millis(10);

/// The name of a sandbox's container.
pub(super) fn container_name(id: &str) -> String {
    format!("belljar-{id}")
}

fn directories(containers: &Path) -> impl Iterator<Item = PathBuf> {
    let entries = fs::read_dir(containers).into_iter().flatten().flatten();
    entries.filter(|entry| is_id(&entry.file_name().to_string_lossy())).map(|entry| entry.path())
}

fn is_id(name: &str) -> bool {
    SandboxId::parse(name).is_some()
}

fn strike(directory: &Path) {
    for name in [ROOT, PRIVATE] {
        // More than one only if something went wrong in between.
        while unmount(directory.join(name), UnmountFlags::DETACH | UnmountFlags::NOFOLLOW).is_ok() {}
    }
}

/// Removes a directory of which nothing is mounted any more: never what is below a mount.
fn clear(directory: &Path) {
    strike(directory);
    let control_socket = directory.join(CONTROL_SOCKET);
    let _ = fs::remove_file(control_socket.join(SOCKET));
    for name in [ROOT, PRIVATE, CONTROL_SOCKET] {
        let _ = fs::remove_dir(directory.join(name));
    }
    let _ = fs::remove_dir(directory);
}

/// The random word of a state directory, made once.
fn owner(containers: &Path) -> io::Result<String> {
    let file = containers.join(OWNER);
    if let Ok(owner) = fs::read_to_string(&file) {
        return Ok(owner.trim().to_string());
    }
    let word = belljar_state::new_id().map_err(|error| io::Error::other(error.message))?.to_string();
    let unfinished = containers.join(format!("{OWNER}.{word}"));
    fs::write(&unfinished, &word)?;
    // The first process to link it has named it.
    let linked = fs::hard_link(&unfinished, &file);
    let _ = fs::remove_file(&unfinished);
    match linked {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => fs::read_to_string(&file).map(|owner| owner.trim().to_string()),
    }
}

fn make_directory(path: &Path, mode: u32) -> io::Result<()> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(path);
    made.and_then(|()| fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(mode)))
}

/// Whether it is certain that no process holds it.
fn is_free(path: &Path) -> bool {
    match Lock::try_directory(path) {
        Ok(lock) => lock.is_some(),
        Err(error) => error.kind() == io::ErrorKind::NotFound,
    }
}

const ROOT: &str = "root";
const PRIVATE: &str = "private";
const CONTROL_SOCKET: &str = "door";
const OWNER: &str = "owner";
/// The control socket in that directory.
pub(super) const SOCKET: &str = "knock";
/// Which sandbox a container is.
pub(super) const ID_LABEL: &str = "belljar.sandbox";
/// The state directory that it belongs to.
pub(super) const OWNER_LABEL: &str = "belljar.owner";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_held_by_one_and_leaves_nothing() {
        let state = tempfile::tempdir().expect("a folder");
        let containers = state.path().join("docker");
        let id = SandboxId::from_random([3; 8]);
        let place = ContainerDir::make(&containers, id).expect("a place");
        assert!(ContainerDir::make_within(Duration::ZERO, &containers, id).is_err(), "it is held");
        let owner = place.owner().to_string();
        drop(place);
        let left: Vec<_> =
            fs::read_dir(&containers).expect("there").flatten().map(|e| e.file_name()).collect();
        assert_eq!(left, [OWNER]);
        assert_eq!(
            ContainerDir::make(&containers, id).expect("free again").owner(),
            owner,
            "one word for all"
        );
    }

    #[test]
    fn a_directory_that_a_sweep_is_about_to_remove_is_made_again() {
        let state = tempfile::tempdir().expect("a folder");
        let containers = state.path().join("docker");
        let id = SandboxId::from_random([4; 8]);
        let directory = containers.join(id.to_string());
        make_directory(&directory, 0o700).expect("made");
        let swept = Lock::try_directory(&directory).expect("there").expect("free");
        let making = thread::spawn(move || {
            ContainerDir::make_within(Duration::from_secs(60), &containers, id).map(drop)
        });
        thread::sleep(10 * STEP);
        clear(&directory);
        drop(swept);
        making.join().expect("no panic").expect("a place");
    }
}
