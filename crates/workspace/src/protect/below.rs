//! Repositories further down in a folder: your git believes them as well, once you go there. They are looked for, from the top down and
//! for a short while: a folder of repositories has them near its top, and a start must not take as long as a walk.

use super::named;
use super::shields::{Missing, Shields};
use super::{git_dir, git_dir::no_text};
use crate::settings::HostFiles;
use belljar_spec::SandboxError;
use belljar_spec::workspace::View;
use std::collections::VecDeque;
use std::fs;
use std::path::{Path, PathBuf};

/// Holds what has to be held in the repositories below a folder, so far as they are found.
pub(super) fn hold(view: &mut View, host: &HostFiles) -> Result<(), SandboxError> {
    let is_repository = view.git.is_some() || view.folder.join(".git").exists();
    let found = search(&view.folder, if is_repository { FEW_LOOKS } else { MANY_LOOKS });
    let mut shields = Shields::with(&view.folder, std::mem::take(&mut view.shields));
    for (number, repository) in found.iter().enumerate() {
        let path = repository.strip_prefix(&view.folder).unwrap_or(repository).join(".git");
        let git = path.to_str().ok_or_else(|| no_text(&view.folder.join(&path)))?;
        let before = shields.clone();
        // Each costs some mounts: what comes behind many, or has links in it, is held as a whole, and nobody commits there.
        if number >= MOST_APART || parts(&mut shields, git, repository, host).is_err() {
            shields = before;
            shields.protect(git, Missing::Nothing)?;
        }
    }
    view.shields = shields.finish();
    Ok(())
}

fn parts(shields: &mut Shields, git: &str, top: &Path, host: &HostFiles) -> Result<(), SandboxError> {
    let directory = top.join(".git");
    if !directory.is_dir() {
        // A file that names the git directory.
        return shields.protect(git, Missing::Nothing);
    }
    git_dir::protect(shields, git, None)?;
    for (path, missing) in named::paths(host, top, &directory, "")? {
        let below = path.strip_prefix(shields.root()).ok().map(Path::to_path_buf);
        let Some(below) = below.filter(|_| path.starts_with(top) && path != top) else { continue };
        shields.protect(below.to_str().ok_or_else(|| no_text(&path))?, missing)?;
    }
    Ok(())
}

/// Folders with a `.git` that is no link, parents first.
fn search(top: &Path, looks: usize) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut waiting = VecDeque::from([(top.to_path_buf(), 0)]);
    for _ in 0..looks {
        let Some((folder, depth)) = waiting.pop_front() else { break };
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let Ok(kind) = entry.file_type() else { continue };
            if name == ".git" && depth > 0 && !kind.is_symlink() {
                found.push(folder.clone());
            } else if kind.is_dir() && depth < DEPTH && name != ".git" && name != "node_modules" {
                waiting.push_back((entry.path(), depth + 1));
            }
        }
    }
    found
}

/// As many levels as the peers look.
const DEPTH: usize = 3;
/// Folders that are looked into, in one that is a repository itself, and in one that is none.
const FEW_LOOKS: usize = 64;
const MANY_LOOKS: usize = 512;
/// More repositories than this are held as a whole.
const MOST_APART: usize = 16;
