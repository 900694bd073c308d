//! Uncommitted work on a branch as a change set of the folder, so that it is shown and applied like one.

use belljar_config::EgressFlags;
use belljar_overlay::beneath::Beneath;
use belljar_overlay::{Commits, Kind, Layer, Layers, NewEntry, RelPath};
use belljar_spec::workspace::ProtectedPath;
use belljar_spec::{ErrorCode, SandboxError};
use belljar_workspace::managed::ManagedWorktree;
use belljar_workspace::protect::{self, Policy};
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// The change set, which the caller removes.
pub struct PendingLayer {
    pub layer: Layer,
    /// Files that the folder has in another state than the branch's last commit.
    pub conflicts: Vec<RelPath>,
    /// What is not a file or a link, and is not in it.
    pub left_out: Vec<RelPath>,
}

/// Makes a change set over `folder` of the files of a worktree that are not committed there.
pub fn layer_of_worktree(
    state: &Path,
    worktree: &ManagedWorktree,
    folder: &Path,
) -> Result<PendingLayer, SandboxError> {
    let pending = worktree.pending(state)?;
    let unreadable = |path: &Path, error: io::Error| {
        ErrorCode::WorkspaceFailed
            .error(format!("`{}` cannot be read: {error}", path.display()))
            .caused_by(error)
    };
    let host = Beneath::open(folder).map_err(|error| unreadable(folder, error))?;
    let layers = Layers::at(state);
    // On landlock nothing is protected in a managed clone: what a sandbox in the folder could not change is not applied to it either.
    let held = layers.create(folder, &protected(folder)?)?;
    let (mut conflicts, mut left_out) = (Vec::new(), Vec::new());
    for path in pending.paths() {
        let of_host = Content::read(&host, path).map_err(|error| unreadable(folder, error))?;
        let new = Content::read(pending.work(), path).map_err(|error| unreadable(&worktree.folder, error))?;
        let before = match pending.committed(path)? {
            Some(bytes) if bytes.len() as u64 > MAX_COMPARED_BYTES => Content::Other,
            Some(bytes) => Content::File { bytes, executable: false },
            None => Content::Absent,
        };
        if matches!(new, Content::Other) {
            left_out.push(path.clone());
            continue;
        }
        if !of_host.is_like(&before) && !of_host.is_like(&new) {
            conflicts.push(path.clone());
        }
        match &new {
            Content::File { bytes, executable } => {
                held.put(path, NewEntry::File { content: &mut &bytes[..], executable: *executable })?;
            }
            Content::Link(target) => held.put(path, NewEntry::Link(target))?,
            Content::Absent => held.put(path, NewEntry::Deleted)?,
            Content::Other => {}
        }
    }
    // Kept also if it is empty: the caller removes it.
    let id = held.id;
    held.finish(Commits::Some)?;
    let gone = || ErrorCode::WorkNotFound.error(format!("the layer {id} is gone"));
    let layer = layers.beginning(&id.to_string())?.pop().ok_or_else(gone)?;
    Ok(PendingLayer { layer, conflicts, left_out })
}

/// The paths of the folder that no sandbox changes, by the configuration of now.
fn protected(folder: &Path) -> Result<Vec<ProtectedPath>, SandboxError> {
    let loaded = belljar_config::load(Some(folder), EgressFlags::default())?;
    let protect: Vec<_> = loaded.protected().into_iter().map(|path| path.value).collect();
    let unprotect: Vec<_> = loaded.unprotected().into_iter().map(|path| path.value).collect();
    let view = protect::view(folder, Policy { protect: &protect, unprotect: &unprotect })?;
    Ok(protect::held_paths(&view))
}

/// What is at a path.
enum Content {
    Absent,
    File {
        bytes: Vec<u8>,
        executable: bool,
    },
    Link(Vec<u8>),
    /// A folder, a pipe, or a file that is too large.
    Other,
}

impl Content {
    fn read(folder: &Beneath, path: &RelPath) -> io::Result<Content> {
        let Some(stat) = folder.stat(path)? else { return Ok(Content::Absent) };
        match stat.kind {
            Kind::File => {
                let executable = stat.mode & 0o100 != 0;
                let file: File = folder.file(path)?;
                let mut bytes = Vec::new();
                file.take(MAX_COMPARED_BYTES + 1).read_to_end(&mut bytes)?;
                Ok(match bytes.len() as u64 > MAX_COMPARED_BYTES {
                    true => Content::Other,
                    false => Content::File { bytes, executable },
                })
            }
            Kind::Link => Ok(Content::Link(folder.link(path)?)),
            Kind::Directory | Kind::Fifo | Kind::Socket | Kind::Device => Ok(Content::Other),
        }
    }

    /// The same to git, whose blobs are contents and targets alike.
    fn is_like(&self, other: &Content) -> bool {
        match (self.bytes(), other.bytes()) {
            (Some(one), Some(other)) => one == other,
            (None, None) => matches!((self, other), (Content::Absent, Content::Absent)),
            (Some(_), None) | (None, Some(_)) => false,
        }
    }

    fn bytes(&self) -> Option<&[u8]> {
        match self {
            Content::File { bytes, .. } | Content::Link(bytes) => Some(bytes),
            Content::Absent | Content::Other => None,
        }
    }
}

/// A larger file is left out: it is read into memory.
const MAX_COMPARED_BYTES: u64 = 64 << 20;
