//! The words about files.

use super::words::{conflict, each, optional, refused};
use crate::Place;
use belljar_api::WorkspaceRequest;
use belljar_spec::git::RefPattern;
use belljar_spec::workspace::{CloneSpec, GitAccess, ProtectedPath, WorkspaceMode};
use belljar_spec::{Permission, SandboxError, SharedPath, WorkspacePath};
use std::path::PathBuf;

/// What was said of files.
pub(super) struct Files {
    pub(super) folder: Option<PathBuf>,
    pub(super) mode: WorkspaceMode,
    pub(super) git: GitAccess,
    pub(super) protect: Vec<ProtectedPath>,
    pub(super) push: Vec<RefPattern>,
    pub(super) path: WorkspacePath,
    pub(super) shared: Vec<SharedPath>,
    pub(super) agent_context: Vec<PathBuf>,
}

pub(super) fn understand(request: &WorkspaceRequest, place: &Place) -> Result<Files, SandboxError> {
    let WorkspaceRequest {
        folder,
        overlay,
        branch,
        clone,
        depth,
        same_path,
        ro,
        rw,
        protect,
        push,
        share_git,
        agent_context,
    } = request;
    let folder = folder.as_deref().map(|folder| absolute("workspace.folder", folder)).transpose()?;
    if *same_path && folder.is_none() {
        let why = "only a folder of the host has a path there: name one with `folder`";
        return Err(conflict("workspace.same_path", why));
    }
    let shared = |field: &'static str, permission| {
        move |path: &String| Ok(SharedPath { path: absolute(field, path)?, permission })
    };
    let read = ro.iter().map(shared("workspace.ro", Permission::Read));
    let written = rw.iter().map(shared("workspace.rw", Permission::Write));
    Ok(Files {
        mode: mode(folder.is_some(), *overlay, branch, clone, *depth, place)?,
        git: if *share_git { GitAccess::Share } else { GitAccess::Private },
        folder,
        protect: each("workspace.protect", protect)?,
        push: each("workspace.push", push)?,
        path: if *same_path { WorkspacePath::SameAsHost } else { WorkspacePath::Standard },
        shared: read.chain(written).collect::<Result<_, SandboxError>>()?,
        agent_context: agent_context
            .iter()
            .map(|path| absolute("workspace.agent_context", path))
            .collect::<Result<_, _>>()?,
    })
}

fn mode(
    has_folder: bool,
    overlay: bool,
    branch: &Option<String>,
    clone: &Option<String>,
    depth: Option<u32>,
    place: &Place,
) -> Result<WorkspaceMode, SandboxError> {
    let branch_name = optional("workspace.branch", branch)?;
    if overlay && (branch.is_some() || clone.is_some()) {
        return Err(conflict(
            "workspace.overlay",
            "a layer lies over a folder, and neither over a branch nor a clone",
        ));
    }
    if depth.is_some() && clone.is_none() {
        return Err(conflict("workspace.depth", "it says how much to clone: it needs `clone`"));
    }
    if depth == Some(0) {
        return Err(refused("workspace.depth", "a clone has one commit at least"));
    }
    match (clone, branch_name) {
        (Some(_), _) if has_folder => {
            Err(conflict("workspace.clone", "a clone is worked on instead of a folder: leave `folder` away"))
        }
        (Some(url), branch) => Ok(WorkspaceMode::Clone(CloneSpec { url: url.clone(), branch, depth })),
        (None, Some(_)) if !has_folder => {
            Err(conflict("workspace.branch", "a branch is one of a folder's repository: it needs `folder`"))
        }
        (None, Some(branch)) => Ok(WorkspaceMode::Shelf { branch: Some(branch) }),
        (None, None) if overlay && !has_folder => {
            Err(conflict("workspace.overlay", "a layer lies over a folder: it needs `folder`"))
        }
        (None, None) if overlay => Ok(WorkspaceMode::Overlay { layer: None }),
        (None, None) if has_folder => Ok(WorkspaceMode::Bind),
        (None, None) => Ok(WorkspaceMode::Own(place.workspace())),
    }
}

/// Whoever asks is somewhere else: a path that begins there means nothing here.
fn absolute(field: &str, text: &str) -> Result<PathBuf, SandboxError> {
    let path = PathBuf::from(text);
    match path.is_absolute() && !text.contains('\0') {
        true => Ok(path),
        false => Err(refused(
            field,
            format!("`{}` is not an absolute path: write it from the root", text.escape_debug()),
        )),
    }
}
