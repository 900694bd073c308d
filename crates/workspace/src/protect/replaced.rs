//! Repositories of a folder whose git directories a sandbox does not see: it gets private ones in their place. Only paths of the
//! work tree remain to be protected, and `.git` of every repository that gets no private one.

use super::git_dir::{git_dirs_below, is_one};
use super::gitlink_paths;
use super::linked::{self, Linked};
use crate::private_git::{HostGit, Module, RepositoryRequest, obstacle};
use crate::quarantine::alternates::all_trusted;
use crate::settings::{contents, plain};
use belljar_git::config::variables;
use belljar_spec::workspace::{Shield, Shielded, View};
use belljar_spec::{ErrorCode, SandboxError};
use std::path::{Path, PathBuf};

/// A view without the git directories of its repository and its submodules, and the list of those, the folder's own first; empty if
/// the folder is no repository. A repository further down stays in place and is read-only inside, since an agent could replace it
/// at any time: the host's git never works there.
pub fn without_git(
    mut view: View,
    alternates: &[PathBuf],
) -> Result<(View, Vec<RepositoryRequest>), SandboxError> {
    let Some(host) = repository_of(&view) else { return Ok((view, Vec::new())) };
    let objects_of = |host: &HostGit| all_trusted(&host.common.join("objects"), alternates);
    let unsupported = |obstacle: String, hint: &str| {
        let message =
            format!("the repository `{}` cannot be given to a sandbox: {obstacle}", host.top.display());
        ErrorCode::NotSupported.error(message).hint(hint)
    };
    if let Some(obstacle) = obstacle(&host) {
        return Err(unsupported(obstacle, "look at it, and remove it if you did not make it"));
    }
    let objects = objects_of(&host).map_err(|obstacle| unsupported(obstacle, BORROWED))?;
    let mut requests =
        vec![RepositoryRequest { host: host.clone(), objects, dot_git: ".git".to_string(), module: None }];
    view.git = None;
    replace(&mut view, ".git");
    // A malformed submodule is no reason to refuse the folder.
    let objects_of = |host: &HostGit| objects_of(host).ok().filter(|_| obstacle(host).is_none());
    for (host, dot_git, module) in modules(&view.folder, &host) {
        let objects = objects_of(&host);
        requests.extend(objects.map(|objects| RepositoryRequest {
            host,
            objects,
            dot_git,
            module: Some(module),
        }));
    }
    for one in &requests {
        gitlink_paths::hold_those_of_index(&mut view, &one.host)?;
    }
    Ok((view, requests))
}

/// The repositories that git may find at a path, or why git must not read them for a sandbox: an agent may have made them, and they
/// may lead to foreign files. `alternates` are directories that a repository may borrow from.
pub fn local_repository(path: &Path, alternates: &[PathBuf]) -> Result<Vec<HostGit>, String> {
    // The way git finds a repository by path (`enter_repo` in path.c).
    let mut with_suffix = path.as_os_str().to_owned();
    with_suffix.push(".git");
    let mut judged = Vec::new();
    for path in [path, Path::new(&with_suffix)] {
        let Ok(folder) = path.canonicalize() else { continue };
        // An agent may have made a link on the way. Without a trailing slash, which would follow one.
        if path.components().collect::<PathBuf>() != folder {
            let (path, folder) = (path.display(), folder.display());
            return Err(format!(
                "`{path}` leads through a link; name `{folder}` itself if that is what you mean"
            ));
        }
        let Some(host) = repository_at(&folder)? else { continue };
        if let Some(obstacle) = obstacle(&host) {
            return Err(obstacle);
        }
        all_trusted(&host.common.join("objects"), alternates)?;
        judged.push(host);
    }
    Ok(judged)
}

/// The repository that a folder is, or is a work tree of.
fn repository_at(folder: &Path) -> Result<Option<HostGit>, String> {
    let file = folder.join(".git");
    let at = |directory: &Path| {
        let [own, common] = [directory, directory].map(Path::to_path_buf);
        Some(HostGit { top: folder.to_path_buf(), own, common })
    };
    match file.symlink_metadata().ok().map(|found| found.file_type()) {
        Some(kind) if kind.is_file() => {
            let Linked { own, common } = linked::follow(folder).map_err(|error| error.message)?;
            Ok(Some(HostGit { top: folder.to_path_buf(), own: common.join(own), common }))
        }
        Some(kind) if kind.is_symlink() => Err(format!("`{}` is a link", file.display())),
        Some(_) if is_one(&file) => Ok(at(&file)),
        Some(_) | None if is_one(folder) => Ok(at(folder)),
        Some(_) | None => Ok(None),
    }
}

/// Whether the folder of a view is a repository.
pub fn is_repository(view: &View) -> bool {
    repository_of(view).is_some()
}

fn repository_of(view: &View) -> Option<HostGit> {
    let top = view.folder.clone();
    match &view.git {
        Some(git) => Some(HostGit { top, own: git.common.join(&git.own), common: git.common.clone() }),
        None => {
            let directory = view.folder.join(".git");
            is_one(&directory).then(|| HostGit { top, own: directory.clone(), common: directory })
        }
    }
}

/// A whole `.git` in the place of its parts.
fn replace(view: &mut View, dot_git: &str) {
    let below = format!("{dot_git}/");
    view.shields.retain(|shield| shield.path != dot_git && !shield.path.starts_with(&below));
    if view.folder.join(dot_git).is_dir() {
        view.shields.push(Shield { path: dot_git.to_string(), what: Shielded::Replaced });
    }
}

/// Submodules that are checked out in the folder, recursively. Without their git directories `git status` of the whole fails. A
/// linked worktree has its own submodules, in its own part of the git directory.
fn modules(folder: &Path, host: &HostGit) -> Vec<(HostGit, String, Module)> {
    let top = host.own.join("modules");
    let is_linked = host.own != host.common;
    let mut found = Vec::new();
    for directory in git_dirs_below(&top, MAX_LOOKED_AT).unwrap_or_default() {
        let config = contents(&directory.join("config")).unwrap_or_default();
        let named = variables(&config).into_iter().rfind(|variable| variable.name == "core.worktree");
        let Some(work_tree) = named.and_then(|one| one.text().map(str::to_string)) else { continue };
        let place = plain(&directory.join(&work_tree));
        let (Ok(path), Ok(below)) = (directory.strip_prefix(&host.own), place.strip_prefix(folder)) else {
            continue;
        };
        let (Some(path), Some(below)) = (path.to_str(), below.to_str()) else { continue };
        // `git rm` of a submodule leaves its git directory.
        if !place.join(".git").is_file() {
            continue;
        }
        let host = HostGit { top: place.clone(), own: directory.clone(), common: directory.clone() };
        let work_tree = Some(work_tree).filter(|_| !is_linked);
        found.push((host, format!("{below}/.git"), Module { path: path.to_string(), work_tree }));
    }
    found.truncate(MAX_REPOSITORIES);
    found
}

const BORROWED: &str = "if you know that directory, name it in your configuration (`[git]`, `alternates = [\"/DIR\"]`); `git repack -a -d` \
                        copies what is borrowed, and the list can go then";
/// Each needs a mount or two.
const MAX_REPOSITORIES: usize = 64;
const MAX_LOOKED_AT: usize = 20_000;
