//! What of a sandbox a snapshot holds, and how the layers of earlier snapshots come below its files. The layers themselves are the overlay
//! crate's business, and who may take a snapshot is the fleet's.

use crate::golden::Golden;
use crate::persistent;
use belljar_backend::SealedLayers;
use belljar_images::Store;
use belljar_overlay::snapshot::{Chain, Part, SandboxFiles, SnapshotStore};
use belljar_spec::workspace::WorkspaceMode;
use belljar_spec::{BackendName, ErrorCode, Root, SandboxError, SandboxSpec, Term, hint};
use belljar_state::create_private;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// What a sandbox keeps from one life to the next, as far as a snapshot of it goes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Keeps {
    /// `root`, `home`, `workspace`.
    pub parts: Vec<String>,
    /// What else there is, and why a snapshot does not have it.
    pub left_out: Vec<String>,
    /// What its `/` is made of.
    pub rootfs: String,
    /// Something is counted for as long as it lives: the budget of a model, the bytes that may leave. Started again, it would count anew.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub counts: bool,
}

impl Keeps {
    /// Of a sandbox, as it was resolved.
    pub fn of(spec: &SandboxSpec) -> Keeps {
        let mut parts = Vec::new();
        let mut left_out = Vec::new();
        if spec.home.is_some() {
            parts.push(Part::Home);
            if spec.root != Root::Host {
                parts.push(Part::Root);
            }
        }
        match &spec.mode {
            WorkspaceMode::Own(_) if spec.home.is_none() => {}
            WorkspaceMode::Own(_) if !spec.covers_paths() => {
                parts.push(Part::Workspace);
            }
            WorkspaceMode::Own(_) => {
                left_out.push(
                    "the workspace: paths in it are protected, hidden or shown with placeholders".into(),
                );
            }
            WorkspaceMode::Bind => {
                left_out.push("the workspace: it is a folder of the host itself".into());
            }
            WorkspaceMode::Overlay { .. } => {
                left_out.push("the workspace: its changes lie beside a folder of the host".into());
            }
            WorkspaceMode::ManagedClone { .. } => {
                left_out.push("the workspace: it is a managed clone".into())
            }
            WorkspaceMode::Clone(_) => left_out.push("the workspace: it is a clone".into()),
        }
        left_out.extend(spec.volumes.iter().map(|volume| format!("the volume at {}", volume.target)));
        parts.sort();
        let parts = parts.into_iter().map(|part| part.as_str().to_string()).collect();
        let limits = spec.egress.as_ref().map(|policy| &policy.limits);
        let counts = spec.llm.is_some() || limits.is_some_and(|limits| limits.bytes.is_some());
        Keeps { parts, left_out, rootfs: spec.root.to_string(), counts }
    }

    /// The parts, as the store knows them.
    pub fn parts(&self) -> Vec<Part> {
        Part::ALL.into_iter().filter(|part| self.parts.iter().any(|name| name == part.as_str())).collect()
    }
}

/// Whether a sandbox of this backend can lie over layers.
pub fn must_have_layers(backend: BackendName) -> Result<(), SandboxError> {
    match backend {
        BackendName::Native | BackendName::Bwrap => Ok(()),
        BackendName::Landlock
        | BackendName::Docker(_)
        | BackendName::E2b
        | BackendName::Container
        | BackendName::Host => {
            let message = format!("the backend {backend} takes no snapshots, and makes no sandbox from one");
            Err(ErrorCode::NotSupported.error(message).hint(hint!("use {}", Term::Backend.to("native"))))
        }
    }
}

/// What lies below the files of a sandbox.
pub(crate) fn sealed(
    spec: &SandboxSpec,
    backend: BackendName,
    state: &Path,
) -> Result<SealedLayers, SandboxError> {
    let Some(place) = place(spec) else { return Ok(SealedLayers::default()) };
    let chain = Chain::of(&place)?;
    if chain.layers.is_empty() {
        return Ok(SealedLayers::default());
    }
    must_have_layers(backend)?;
    if let Some(made) = chain.backend.as_ref().filter(|made| **made != backend.to_string()) {
        let message = format!(
            "the files of this sandbox are from a snapshot that was taken with the backend {made}, and it has {backend}"
        );
        return Err(ErrorCode::RequestConflict.error(message).hint(hint!("use {}", Term::Backend.to(made))));
    }
    let store = SnapshotStore::at(&state.join("fleet"));
    let holder = store.layers();
    let below = |part: Part| -> Vec<String> {
        let has_it = chain.layers.iter().filter(|layer| store.part(**layer, part).is_some());
        has_it.map(|layer| format!("{layer}/{}", part.as_str())).collect()
    };
    for layer in &chain.layers {
        let directory = holder.join(layer.to_string());
        if !directory.is_dir() {
            let message = format!("the layer `{}` below this sandbox is gone", directory.display());
            return Err(ErrorCode::StateFailed.error(message).hint("delete the sandbox and make it anew"));
        }
    }
    let is_own = matches!(&spec.mode, WorkspaceMode::Own(_));
    let workspace = if is_own { below(Part::Workspace) } else { Vec::new() };
    if !workspace.is_empty() && spec.covers_paths() {
        let message = "the workspace is from a snapshot, and no path in it can be protected, hidden or shown with placeholders";
        return Err(ErrorCode::RequestConflict
            .error(message)
            .hint(hint!("omit {}, also in belljar.toml", Term::Hide)));
    }
    let root = if spec.root == Root::Host { Vec::new() } else { below(Part::Root) };
    Ok(SealedLayers { root, home: below(Part::Home), workspace, holder })
}

/// The directory of a sandbox that keeps its home.
pub(crate) fn place(spec: &SandboxSpec) -> Option<SandboxFiles> {
    spec.home.as_ref().and_then(|home| home.parent()).map(SandboxFiles::new)
}

/// Writes beside the changes of a root which image or golden root lies below them, as it is written beside those of another one. Both
/// directories are `root`: of a sandbox, or of a snapshot.
pub fn pin_like(state: &Path, root: &Root, from: &Path, to: &Path) -> Result<(), SandboxError> {
    let unknown = || {
        ErrorCode::ImageFailed
            .error(format!("it is not known which `{root}` lies below these files"))
            .hint("start the sandbox once, and take the snapshot again")
    };
    match root {
        Root::Host | Root::Directory(_) => Ok(()),
        Root::Golden => {
            make(to)?;
            Golden::new(state)?.pin_like(from, to)?.then_some(()).ok_or_else(unknown)
        }
        Root::Image(_) => {
            make(to)?;
            let store = Store::open(&state.join("images"))?;
            let image = store.pinned(from)?.ok_or_else(unknown)?;
            Ok(image.pin(to)?)
        }
    }
}

/// Where a sandbox's changes of its root are.
pub fn root_directory_of(place: &Path) -> PathBuf {
    place.join(persistent::ROOT)
}

fn make(directory: &Path) -> Result<(), SandboxError> {
    create_private(directory).map_err(|error| {
        let message = format!("`{}` cannot be made: {error}", directory.display());
        ErrorCode::StateFailed.error(message).caused_by(error)
    })
}
