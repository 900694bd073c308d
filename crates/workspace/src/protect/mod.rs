//! Paths of a folder that the sandbox must not change, because the host's git, or the host itself, runs or trusts them.
//!
//! Decided here from a few lookups in the folder, never by a full walk; carried out by a backend as mounts. Nothing is started and
//! nothing is written. Called by the engine for every sandbox with a workspace.

mod baseline;
mod below;
mod enclosing;
mod executed;
mod fingerprint;
pub(crate) mod git_dir;
mod gitlink_paths;
mod glob;
mod hooks;
mod index;
mod known_index;
mod left;
mod linked;
mod memory;
mod named;
mod names;
mod replaced;
mod settings_table;
mod shields;
mod survey;
mod words;

pub use baseline::{Baseline, Findings};
pub use below::Nested;
pub use executed::{Executed, runs_on_host};
pub use gitlink_paths::hold_gitlinks_of_branches;
pub use index::{Gitlinks, Unread, gitlinks};
pub use left::{Left, LeftKind, left};
pub use memory::Memory;
pub use replaced::{is_repository, local_repository, without_git};
use settings_table::IfMissing;
pub use settings_table::{SettingsPath, settings_paths};

use crate::settings::{HostFiles, MAX_BYTES_TOGETHER};
use belljar_spec::workspace::{LinkedGit, ProtectedPath, Shielded, View};
use belljar_spec::{ErrorCode, SandboxError};
use enclosing::{Enclosing, refuse_hooks};
use hooks::{How, Reached};
use linked::Linked;
use shields::{Missing, Shields};
use std::path::{Path, PathBuf};

/// The policy of a folder.
#[derive(Debug, Clone, Copy, Default)]
pub struct Policy<'p> {
    /// More paths that the sandbox may not change.
    pub protect: &'p [ProtectedPath],
    /// Settings that may be changed, though they are protected by default.
    pub unprotect: &'p [ProtectedPath],
}

/// A folder with all its paths that have to be protected. The caller adds a layer.
pub fn view(folder: &Path, policy: Policy<'_>) -> Result<View, SandboxError> {
    view_with(folder, policy, &HostFiles::real())
}

/// The same for a folder in mode `bind`: changes to a repository further down are changes to the user's. `memory` has those that
/// were found earlier.
pub fn view_of_itself(
    folder: &Path,
    policy: Policy<'_>,
    memory: Option<&Memory>,
    nested: Nested,
) -> Result<View, SandboxError> {
    let host = HostFiles::real();
    let mut view = view_with(folder, policy, &host)?;
    index::while_read(&own(&view), || below::hold(&mut view, &host, memory, nested))?;
    Ok(view)
}

/// The git directory of a view's folder, if it has one: a linked worktree's own.
fn own(view: &View) -> PathBuf {
    match &view.git {
        Some(git) => git.common.join(&git.own),
        None => view.folder.join(".git"),
    }
}

/// The same for a worktree of a repository of ours: its git directory is known, and `.git` is not read. `own` is the worktree's
/// part of `common`: `worktrees/NAME`.
pub fn view_of_worktree(
    folder: &Path,
    common: &Path,
    own: &str,
    policy: Policy<'_>,
) -> Result<View, SandboxError> {
    let shields = Shields::below(&real(folder)?);
    let linked = Linked { common: real(common)?, own: own.to_string() };
    decide(shields, Some(linked), policy, &HostFiles::real())
}

/// The same as [`view`], with another user's config files.
pub fn view_with(folder: &Path, policy: Policy<'_>, host: &HostFiles) -> Result<View, SandboxError> {
    let folder = real(folder)?;
    enclosing::refuse_protected(&folder)?;
    enclosing::refuse_settings(&folder, policy.unprotect)?;
    let shields = Shields::below(&folder);
    let is_file = shields.look(".git")?.is_some_and(|kind| !kind.is_dir());
    let linked = if is_file { Some(linked::follow(&folder)?) } else { None };
    decide(shields, linked, policy, host)
}

/// Paths of a view that are missing in the folder and read-only placeholders inside, except those of a git directory.
pub fn placeholders(view: &View) -> Vec<String> {
    let is_missing = |what: &Shielded| matches!(what, Shielded::MissingDirectory | Shielded::MissingFile(_));
    let missing = view.shields.iter().filter(|shield| is_missing(&shield.what));
    missing.map(|shield| shield.path.clone()).filter(|path| !path.ends_with(".git")).collect()
}

/// The paths of a view that the sandbox may not change, except those of a git directory: an overlay of it must not change them
/// either.
pub fn held_paths(view: &View) -> Vec<ProtectedPath> {
    let is_held = |what: &Shielded| !matches!(what, Shielded::Anchored | Shielded::Watched);
    let is_of_git = |path: &str| Path::new(path).components().any(|part| part.as_os_str() == ".git");
    let held = view.shields.iter().filter(|shield| is_held(&shield.what) && !is_of_git(&shield.path));
    held.filter_map(|shield| shield.path.parse().ok()).collect()
}

fn decide(
    mut shields: Shields,
    linked: Option<Linked>,
    policy: Policy<'_>,
    host: &HostFiles,
) -> Result<View, SandboxError> {
    let folder = &shields.root().to_path_buf();
    let mut elsewhere = linked.as_ref().map(|linked| Shields::below(&linked.common));
    let git_dir = match (&linked, &mut elsewhere) {
        (Some(Linked { common, own }), Some(elsewhere)) => {
            git_dir::protect(elsewhere, "", own.strip_prefix("worktrees/"))?;
            if !own.is_empty() {
                // Those of the main worktree, which is another folder.
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
    let mut named = named::paths(host, folder, &git_dir, own, MAX_BYTES_TOGETHER)?;
    named.iter().try_for_each(|(path, missing)| refuse_hooks(folder, path, *missing, folder))?;
    let mut reached = reached_by_hooks(&git_dir, folder, &named, host);
    let mut files = git_dir::worktree_files(&git_dir);
    for Enclosing { root, common, own } in enclosing::around(folder) {
        let around = named::paths(host, &root, &common, &own, MAX_BYTES_TOGETHER)?;
        around.iter().try_for_each(|(path, missing)| refuse_hooks(folder, path, *missing, &root))?;
        reached.extend(reached_by_hooks(&common, &root, &around, host));
        named.extend(around);
        files.extend(git_dir::worktree_files(&common));
    }
    // The folder's own `.git` is mounted as another file.
    files.retain(|file| *file != folder.join(".git"));
    named.extend(files.into_iter().map(|file| (file, Missing::Nothing)));
    for (path, missing) in named {
        each_root(&mut shields, elsewhere.as_mut(), &path, |shields, below| shields.protect(below, missing))?;
    }
    for Reached { path, how } in reached {
        each_root(&mut shields, elsewhere.as_mut(), &path, |shields, below| match how {
            How::Link => shields.protect(below, Missing::Directory),
            // A word of a script, which is a guess: if it cannot be protected, that is no reason to refuse the folder.
            How::Run => {
                if shields.protect(below, Missing::Nothing).is_err() {
                    shields.watch(below);
                }
                Ok(())
            }
            How::Named => {
                shields.watch(below);
                Ok(())
            }
        })?;
    }
    let is_taken_out = |path: &str| policy.unprotect.iter().any(|one| one.as_str() == path);
    let is_empty = linked.is_none() && is_empty(&shields);
    for known in settings_paths().iter().filter(|known| !is_taken_out(known.path)) {
        shields.settings(known.path, if is_empty { IfMissing::Tell } else { known.if_missing })?;
    }
    for path in policy.protect {
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
    let (folder, shields) = (folder.to_path_buf(), shields.finish());
    Ok(View { folder, layer: None, git, private_git: Vec::new(), shields, host_folder: None })
}

/// Files that the hooks of a git directory lead to, and hooks in other places that config names, which run at `top`.
fn reached_by_hooks(
    git_dir: &Path,
    top: &Path,
    named: &[(PathBuf, Missing)],
    host: &HostFiles,
) -> Vec<Reached> {
    let is_directory = |(path, missing): &&(PathBuf, Missing)| {
        matches!(missing, Missing::Directory) && path.is_dir() && path != top
    };
    let mut directories: Vec<PathBuf> =
        named.iter().filter(is_directory).map(|(path, _)| path.clone()).collect();
    let husky = top.join(".husky");
    directories.extend([git_dir.join("hooks"), husky.join("_"), husky]);
    let modules = git_dir::git_dirs_below(&git_dir.join("modules"), MAX_MODULES).unwrap_or_default();
    directories.extend(modules.iter().map(|module| module.join("hooks")));
    directories.iter().flat_map(|directory| hooks::reached(directory, top, host)).collect()
}

/// Calls `act` for each of the roots that the path lies below.
fn each_root(
    shields: &mut Shields,
    elsewhere: Option<&mut Shields>,
    path: &Path,
    mut act: impl FnMut(&mut Shields, &str) -> Result<(), SandboxError>,
) -> Result<(), SandboxError> {
    for shields in [Some(shields), elsewhere].into_iter().flatten() {
        let Ok(below) = path.strip_prefix(shields.root()) else { continue };
        let below = below.to_str().ok_or_else(|| git_dir::no_text(path))?.to_string();
        if !below.is_empty() {
            act(shields, &below)?;
        }
    }
    Ok(())
}

/// Protects the git directory in its usual place, or the folder itself if it is one, or the place where one would be.
fn in_folder(shields: &mut Shields) -> Result<(), SandboxError> {
    if shields.look(".git")?.is_some() {
        return git_dir::protect(shields, ".git", None);
    }
    if git_dir::is_one(shields.root()) {
        git_dir::protect(shields, "", None)?;
    }
    shields.protect(".git", Missing::Directory)
}

/// Whether a folder is empty, or has only another sandbox's placeholders for missing paths.
fn is_empty(shields: &Shields) -> bool {
    shields.has_only(|name| {
        let is_named_so = ALWAYS.iter().chain([&".git"]).any(|one| name == one);
        is_named_so && shields.root().join(name).read_dir().is_ok_and(|mut inside| inside.next().is_none())
    })
}

fn real(path: &Path) -> Result<std::path::PathBuf, SandboxError> {
    path.canonicalize().map_err(|error| {
        let message = format!("the folder `{}` cannot be used: {error}", path.display());
        ErrorCode::PathInvalid.error(message).hint("check the spelling, or make it first").caused_by(error)
    })
}

/// Protected in every folder: hooks that husky's `core.hooksPath` leads to, and the files that belljar itself trusts in a
/// repository.
const ALWAYS: [&str; 2] = [".husky", ".belljar"];
/// Limit of submodules whose hooks are read.
const MAX_MODULES: usize = 256;
/// Files that git keeps per worktree, for the main one in the common directory. Not `logs/HEAD`, which `git gc` replaces from every
/// worktree; a link in its place is reported.
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
