//! What of a folder nobody inside may change, because the host's git, or the host itself, runs it or believes it.
//!
//! Decided here from a few looks at the folder, never by a whole walk; carried out by a backend as mounts. Nothing is started
//! and nothing is written. Called by the engine for every sandbox with a workspace.

mod below;
mod enclosing;
mod git_dir;
mod index;
mod left;
mod linked;
mod named;
mod shields;

pub use left::{Left, LeftKind, left, left_since};

use crate::settings::{HostFiles, MOST_BYTES_TOGETHER};
use belljar_spec::SandboxError;
use belljar_spec::workspace::{LinkedGit, ProtectedPath, View};
use enclosing::{Enclosing, refuse_hooks};
use linked::Linked;
use shields::{Missing, Shields};
use std::path::Path;

/// A folder with everything in it that has to be held; `more` is what policy adds. The caller adds a layer.
pub fn view(folder: &Path, more: &[ProtectedPath]) -> Result<View, SandboxError> {
    view_with(folder, more, &HostFiles::real())
}

/// The same for a folder that is worked on itself: what is done to a repository further down is done to yours.
pub fn view_of_itself(folder: &Path, more: &[ProtectedPath]) -> Result<View, SandboxError> {
    let host = HostFiles::real();
    let mut view = view_with(folder, more, &host)?;
    below::hold(&mut view, &host);
    Ok(view)
}

/// The same for a worktree of a repository of ours: its git directory is known, and `.git` is not asked. `own` is the
/// worktree's part of `common`: `worktrees/NAME`.
pub fn view_of_worktree(
    folder: &Path,
    common: &Path,
    own: &str,
    more: &[ProtectedPath],
) -> Result<View, SandboxError> {
    let folder = real(folder)?;
    let linked = Linked { common: real(common)?, own: own.to_string() };
    decide(&folder, Some(linked), more, &HostFiles::real())
}

/// The same as [`view`], with the config files of somebody else.
pub fn view_with(folder: &Path, more: &[ProtectedPath], host: &HostFiles) -> Result<View, SandboxError> {
    let folder = real(folder)?;
    enclosing::refuse_protected(&folder)?;
    let is_file = Shields::below(&folder).look(".git")?.is_some_and(|kind| !kind.is_dir());
    let linked = if is_file { Some(linked::follow(&folder)?) } else { None };
    decide(&folder, linked, more, host)
}

fn decide(
    folder: &Path,
    linked: Option<Linked>,
    more: &[ProtectedPath],
    host: &HostFiles,
) -> Result<View, SandboxError> {
    let mut shields = Shields::below(folder);
    let mut elsewhere = linked.as_ref().map(|linked| Shields::below(&linked.common));
    let git_dir = match (&linked, &mut elsewhere) {
        (Some(Linked { common, own }), Some(elsewhere)) => {
            git_dir::protect(elsewhere, "", own.strip_prefix("worktrees/"))?;
            if !own.is_empty() {
                // The main worktree's, which is somebody else's folder.
                for name in MAIN_WORKTREE {
                    elsewhere.protect(name, Missing::Nothing)?;
                }
            }
            common.clone()
        }
        _ => {
            in_folder(&mut shields)?;
            let own = folder.join(".git");
            if !own.exists() && git_dir::is_one(folder) { folder.to_path_buf() } else { own }
        }
    };
    for path in ALWAYS {
        shields.protect(path, Missing::Directory)?;
    }
    let own = linked.as_ref().map(|linked| linked.own.as_str()).unwrap_or_default();
    let mut named = named::paths(host, folder, &git_dir, own, MOST_BYTES_TOGETHER)?;
    named.iter().try_for_each(|(path, missing)| refuse_hooks(folder, path, *missing, folder))?;
    let mut files = git_dir::worktree_files(&git_dir);
    for Enclosing { root, common, own } in enclosing::around(folder) {
        let around = named::paths(host, &root, &common, &own, MOST_BYTES_TOGETHER)?;
        around.iter().try_for_each(|(path, missing)| refuse_hooks(folder, path, *missing, &root))?;
        named.extend(around);
        files.extend(git_dir::worktree_files(&common));
    }
    // The folder's own is shown as another file.
    files.retain(|file| *file != folder.join(".git"));
    named.extend(files.into_iter().map(|file| (file, Missing::Nothing)));
    for (path, missing) in named {
        let inside = [Some(&mut shields), elsewhere.as_mut()].into_iter().flatten();
        for shields in inside {
            let Ok(below) = path.strip_prefix(shields.root()) else { continue };
            let below = below.to_str().ok_or_else(|| git_dir::no_text(&path))?.to_string();
            if !below.is_empty() {
                shields.protect(&below, missing)?;
            }
        }
    }
    for path in more {
        let is_git_file = linked.is_some() && (path.as_str() == ".git" || path.as_str().starts_with(".git/"));
        if !is_git_file {
            shields.protect(path.as_str(), Missing::Directory)?;
        }
    }
    let git = linked.zip(elsewhere).map(|(Linked { common, own }, shields)| LinkedGit {
        common,
        own,
        shields: shields.finish(),
    });
    Ok(View { folder: folder.to_path_buf(), layer: None, git, shields: shields.finish() })
}

/// The git directory where it usually is, or the folder itself if that is one, or the place where one would be.
fn in_folder(shields: &mut Shields) -> Result<(), SandboxError> {
    if shields.look(".git")?.is_some() {
        return git_dir::protect(shields, ".git", None);
    }
    if git_dir::is_one(shields.root()) {
        git_dir::protect(shields, "", None)?;
    }
    shields.protect(".git", Missing::Directory)
}

fn real(path: &Path) -> Result<std::path::PathBuf, SandboxError> {
    path.canonicalize().map_err(|error| {
        let message = format!("the folder `{}` cannot be used: {error}", path.display());
        SandboxError::policy("path_unusable", message).hint("check the spelling, or make it first")
    })
}

/// Held in every folder: hooks that husky's `core.hooksPath` leads to, and what belljar itself believes of a repository.
const ALWAYS: [&str; 2] = [".husky", ".belljar"];
/// What git keeps for each worktree apart, and for the main one in the common directory. Not `logs/HEAD`, which `git gc`
/// replaces from every worktree; a link in its place is reported.
const MAIN_WORKTREE: [&str; 12] = [
    "HEAD",
    "index",
    "CHERRY_PICK_HEAD",
    "COMMIT_EDITMSG",
    "FETCH_HEAD",
    "MERGE_HEAD",
    "MERGE_MSG",
    "ORIG_HEAD",
    "REVERT_HEAD",
    "rebase-apply",
    "rebase-merge",
    "sequencer",
];

#[cfg(test)]
mod tests;
