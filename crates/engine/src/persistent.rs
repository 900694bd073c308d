//! What belljar keeps for sandboxes with more than one life, below its state directory:
//!
//! ```text
//! fleet/volumes/<volume>/              what outlives sandboxes
//! fleet/sandboxes/<name>/workspace/    the folder of one, where no other was named
//! fleet/sandboxes/<name>/home/         its home
//! fleet/sandboxes/<name>/root/         what it changed of its root, where that is not the host's
//! fleet/sandboxes/<name>/chain.json    layers of snapshots that lie below these three (`belljar_overlay::snapshot`)
//! fleet/runs/<id>/workspace/           the folder of a run of an agent, where no other was named; gone with the run
//! agents/<agent>-<folder>/home/        the home of an agent in a folder, where it is kept (`belljar_agent::home`)
//! layers/<id>/, clones/<id>/           where its changes go; the id follows from its name
//! ```
//!
//! Only directories at these places can be volumes, homes and workspaces of belljar's own: everything else of the state directory is
//! out of a sandbox's reach, for every caller.

use crate::git_session::GitSession;
use crate::layers::discard_layer;
use crate::snapshots;
use belljar_backend::home_files;
use belljar_overlay::snapshot::{Chain, Part, SnapshotStore};
use belljar_overlay::{LayerId, Layers};
use belljar_spec::workspace::WorkspaceMode;
use belljar_spec::{ErrorCode, Root, SandboxError, SandboxId, SandboxSpec, Term, VolumeName, hint};
use belljar_sys::rustix::fs::{Mode, OFlags, mkdirat, open, openat};
use belljar_sys::rustix::io::Errno;
use belljar_workspace::clone::{self, CloneError};
use sha2::{Digest, Sha256};
use std::fs::{DirBuilder, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Component, Path, PathBuf};

/// Makes the directories that a sandbox keeps, where they are missing.
pub(crate) fn make(
    spec: &SandboxSpec,
    state: impl FnOnce() -> Result<PathBuf, SandboxError>,
) -> Result<(), SandboxError> {
    let own = match &spec.mode {
        WorkspaceMode::Own(folder) => Some(folder),
        _ => None,
    };
    if spec.volumes.is_empty() && spec.home.is_none() && own.is_none() {
        return Ok(());
    }
    let state = state()?;
    let sandboxes = state.join("fleet/sandboxes");
    if let Some(folder) = own {
        of_sandbox(folder, &sandboxes, "workspace")
            .or_else(|_| of_sandbox(folder, &state.join("fleet/runs"), "workspace"))?;
        made(folder)?;
    }
    let chain = snapshots::place(spec).map(|place| Chain::of(&place)).transpose()?.unwrap_or_default();
    let is_layered = !chain.layers.is_empty();
    if let Some(home) = &spec.home {
        of_sandbox(home, &sandboxes, "home").or_else(|_| of_sandbox(home, &state.join("agents"), "home"))?;
        let has_one = {
            let store = SnapshotStore::at(&state.join("fleet"));
            chain.layers.iter().any(|layer| store.part(*layer, Part::Home).is_some())
        };
        if made(home)? && !has_one {
            furnish(home).map_err(|error| failed(home, error))?;
        }
        if is_layered {
            made(&work_beside(home))?;
        }
    }
    if let Some(folder) = own.filter(|_| is_layered) {
        made(&work_beside(folder))?;
    }
    if let Some(root) = root_of(spec) {
        of_sandbox(&root, &sandboxes, "root")
            .or_else(|_| of_sandbox(&root, &state.join("agents"), "root"))?;
        for directory in ["changes", "changes/upper", "changes/work"] {
            made(&root.join(directory))?;
        }
        // What all users inside see as `/`.
        let upper = root.join("changes/upper");
        std::fs::set_permissions(&upper, PermissionsExt::from_mode(0o755))
            .map_err(|error| failed(&upper, error))?;
    }
    for volume in &spec.volumes {
        of_volume(&volume.source, &state.join("fleet/volumes"))?;
        made(&volume.source)?;
        let below =
            spec.home.as_ref().zip(Path::new(volume.target.as_str()).strip_prefix(spec.user.home()).ok());
        if let Some((home, rest)) = below {
            room_for(home, rest).map_err(|errno| {
                let message = format!("there is no place for a volume at `{}`: {errno}", volume.target);
                ErrorCode::PathRefused
                    .error(message)
                    .hint("remove what is there in the sandbox's home, or mount the volume below /volumes")
                    .caused_by(errno)
            })?;
        }
    }
    Ok(())
}

/// The directories of a sandbox that is only described. Dropped, they are gone, if they were not there before: what is left would look
/// like a sandbox whose record was lost.
pub(crate) struct Sketch(Option<PathBuf>);

impl Sketch {
    /// To be called before [`make`].
    pub(crate) fn of(spec: &SandboxSpec) -> Sketch {
        let own = match &spec.mode {
            WorkspaceMode::Own(folder) => Some(folder),
            _ => None,
        };
        let directory = spec.home.as_ref().or(own).and_then(|persistent| persistent.parent());
        Sketch(directory.filter(|directory| !directory.exists()).map(Path::to_path_buf))
    }
}

impl Drop for Sketch {
    fn drop(&mut self) {
        if let Some(directory) = &self.0 {
            let _ = belljar_sys::remove_tree::remove(directory);
        }
    }
}

/// Where a sandbox keeps what it changes of its root: beside its home, where it keeps that, and gone with it.
pub(crate) fn root_of(spec: &SandboxSpec) -> Option<PathBuf> {
    let home = spec.home.as_ref().filter(|_| spec.root != Root::Host)?;
    Some(home.with_file_name(ROOT))
}

/// Where overlayfs works beside a directory that lies over layers.
fn work_beside(directory: &Path) -> PathBuf {
    let name = directory.file_name().unwrap_or_default().to_string_lossy();
    directory.with_file_name(format!("{name}.work"))
}

/// The name of what a kept sandbox works on beside a folder, in all its lives.
pub(crate) fn work_of(spec: &SandboxSpec) -> Option<SandboxId> {
    spec.persistent.as_ref().map(|persistent| id_of(&persistent.name))
}

/// The same, as that of a layer.
pub(crate) fn layer_of(work: SandboxId) -> LayerId {
    LayerId::parse(&work.to_string()).expect("sixteen digits name a layer")
}

/// Removes the layer and the clone of a sandbox that is deleted.
pub(crate) fn forget(state: &Path, name: &str) -> Result<(), SandboxError> {
    let id = id_of(name);
    for layer in Layers::at(state).beginning(&id.to_string())? {
        discard_layer(state, &layer)?;
    }
    GitSession::release(state, id)?;
    match clone::remove(state, id) {
        Ok(()) | Err(CloneError::Unknown(_)) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// What the layer or the clone of a kept sandbox of this name is called.
pub fn id_of(name: &str) -> SandboxId {
    let hash = Sha256::digest(name.as_bytes());
    let mut first = [0; 8];
    first.copy_from_slice(&hash[..8]);
    SandboxId::from_random(first)
}

/// `<sandboxes>/<name>/<what>`, and nothing else.
fn of_sandbox(path: &Path, sandboxes: &Path, what: &str) -> Result<(), SandboxError> {
    let below: Option<Vec<Component<'_>>> = below(path, sandboxes).map(|below| below.components().collect());
    match below.as_deref() {
        Some([Component::Normal(_), Component::Normal(last)]) if *last == what => Ok(()),
        _ => Err(not_kept(path)),
    }
}

/// `<volumes>/<volume>`, and nothing else.
fn of_volume(path: &Path, volumes: &Path) -> Result<(), SandboxError> {
    let name = below(path, volumes).and_then(Path::to_str);
    match name.is_some_and(|name| name.parse::<VolumeName>().is_ok()) {
        true => Ok(()),
        false => Err(not_kept(path)),
    }
}

/// However the way to the state directory is spelled.
fn below<'p>(path: &'p Path, root: &Path) -> Option<&'p Path> {
    let real = root.canonicalize();
    path.strip_prefix(root).ok().or_else(|| path.strip_prefix(real.ok()?).ok())
}

fn not_kept(path: &Path) -> SandboxError {
    let message = format!("`{}` is nothing that belljar keeps for sandboxes", path.display());
    ErrorCode::PathRefused
        .error(message)
        .hint(hint!("a folder of the host is shared with {}", Term::Rw.to("PATH")))
}

/// Makes a directory that only we can enter; says whether it was missing.
fn made(path: &Path) -> Result<bool, SandboxError> {
    let private = |recursive: bool| {
        let mut builder = DirBuilder::new();
        builder.mode(0o700).recursive(recursive);
        builder
    };
    let parent = path.parent().unwrap_or(Path::new("/"));
    private(true).create(parent).map_err(|error| failed(parent, error))?;
    match private(false).create(path) {
        Ok(()) => Ok(true),
        // A link would lead somewhere else.
        Err(error) if error.kind() == ErrorKind::AlreadyExists => match path.symlink_metadata() {
            Ok(found) if found.is_dir() => Ok(false),
            Ok(_) => Err(failed(path, ErrorKind::NotADirectory.into())),
            Err(error) => Err(failed(path, error)),
        },
        Err(error) => Err(failed(path, error)),
    }
}

/// What a home starts with.
fn furnish(home: &Path) -> io::Result<()> {
    for (name, content) in home_files() {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o644).open(home.join(name))?;
        file.write_all(content.as_bytes())?;
    }
    Ok(())
}

/// Makes a place for a mount in a home. What is there is an agent's: no link is followed.
fn room_for(home: &Path, rest: &Path) -> Result<(), Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut at = open(home, flags, Mode::empty())?;
    for part in rest.components() {
        match mkdirat(&at, part.as_os_str(), Mode::from_raw_mode(0o755)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(errno),
        }
        at = openat(&at, part.as_os_str(), flags, Mode::empty())?;
    }
    Ok(())
}

fn failed(path: &Path, error: io::Error) -> SandboxError {
    ErrorCode::StateFailed.error(format!("`{}` cannot be made: {error}", path.display())).caused_by(error)
}

/// What a sandbox changed of its root, in its directory.
pub(crate) const ROOT: &str = "root";

#[cfg(test)]
mod tests {
    use super::*;
    use belljar_spec::{PersistentIdentity, Volume};

    fn spec(state: &Path, volume: &str, target: &str) -> SandboxSpec {
        SandboxSpec {
            home: Some(state.join("fleet/sandboxes/bj-a/home")),
            volumes: vec![Volume { source: state.join(volume), target: target.parse().unwrap() }],
            ..SandboxSpec::default()
        }
    }

    #[test]
    fn only_what_is_kept_for_sandboxes_can_be_a_volume_or_a_home() {
        let state = tempfile::tempdir().unwrap();
        let state = state.path();
        let make = |spec: &SandboxSpec| make(spec, || Ok(state.to_path_buf()));
        make(&spec(state, "fleet/volumes/cache", "/volumes/cache")).unwrap();
        assert!(state.join("fleet/volumes/cache").is_dir());
        assert!(state.join("fleet/sandboxes/bj-a/home/.bashrc").is_file());
        for volume in
            ["", "fleet", "fleet/volumes", "fleet/volumes/a/b", "fleet/volumes/../../vault", "vault", "/etc"]
        {
            let error = make(&spec(state, volume, "/volumes/cache")).unwrap_err();
            assert_eq!(error.code, ErrorCode::PathRefused, "{volume}");
        }
        for home in [
            "",
            "fleet/sandboxes",
            "fleet/sandboxes/bj-a",
            "fleet/sandboxes/bj-a/workspace",
            "fleet/sandboxes/../home",
        ] {
            let spec = SandboxSpec { home: Some(state.join(home)), ..SandboxSpec::default() };
            assert_eq!(make(&spec).unwrap_err().code, ErrorCode::PathRefused, "{home}");
        }
        let own = WorkspaceMode::Own(state.join("fleet/sandboxes/bj-a/home"));
        let error = make(&SandboxSpec { mode: own, ..SandboxSpec::default() }).unwrap_err();
        assert_eq!(error.code, ErrorCode::PathRefused);
    }

    #[test]
    fn a_link_in_a_home_is_no_place_for_a_volume() {
        let state = tempfile::tempdir().unwrap();
        let state = state.path();
        let spec_of = spec(state, "fleet/volumes/cache", "/home/agent/.cache/npm");
        make(&spec_of, || Ok(state.to_path_buf())).unwrap();
        let cache = state.join("fleet/sandboxes/bj-a/home/.cache");
        assert!(cache.join("npm").is_dir());
        std::fs::remove_dir_all(&cache).unwrap();
        std::os::unix::fs::symlink(state, &cache).unwrap();
        let error = make(&spec_of, || Ok(state.to_path_buf())).unwrap_err();
        assert_eq!(error.code, ErrorCode::PathRefused);
        assert!(!state.join("npm").exists());
    }

    #[test]
    fn work_has_the_same_name_in_every_life() {
        let spec = |name: &str| SandboxSpec {
            persistent: Some(PersistentIdentity { name: name.into(), key: "a".into() }),
            ..SandboxSpec::default()
        };
        assert_eq!(work_of(&SandboxSpec::default()), None);
        assert_eq!(work_of(&spec("bj-a-1")), work_of(&spec("bj-a-1")));
        assert_ne!(work_of(&spec("bj-a-1")), work_of(&spec("bj-a-2")));
    }
}
