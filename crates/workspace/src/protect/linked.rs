//! A git directory that lies elsewhere: `.git` is a file that names it. It is shared with a sandbox only if it names the
//! folder in turn: a file that an agent wrote could name any directory.

use super::git_dir::is_one;
use crate::settings::{contents, path_of, plain};
use belljar_git::config::variables;
use belljar_spec::{ErrorCode, SandboxError};
use std::fs;
use std::path::{Path, PathBuf};

/// Where a folder's git directory is.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Linked {
    pub(super) common: PathBuf,
    /// `worktrees/NAME`, or empty.
    pub(super) own: String,
}

/// Follows the `.git` file of `folder`, a real path.
pub(super) fn follow(folder: &Path) -> Result<Linked, SandboxError> {
    let file = folder.join(".git");
    let refused = |why: &str| not_ours(&file, why);
    let named = first_line(&file)
        .and_then(|line| line.strip_prefix(b"gitdir: ").map(path_of))
        .ok_or_else(|| refused("it does not name a git directory"))?;
    let git_dir = folder.join(named).canonicalize().map_err(|_| refused("what it names does not exist"))?;
    match first_line(&git_dir.join("commondir")) {
        Some(common) if git_dir.join("gitdir").exists() => worktree(folder, &git_dir, &path_of(&common)),
        Some(_) | None => submodule(folder, git_dir),
    }
    .map_err(refused)
}

fn worktree(folder: &Path, git_dir: &Path, common: &Path) -> Result<Linked, &'static str> {
    let back = first_line(&git_dir.join("gitdir")).map(|line| git_dir.join(path_of(&line)));
    let folder_of =
        |file: PathBuf| (file.file_name()? == ".git").then(|| file.parent()?.canonicalize().ok())?;
    if back.and_then(folder_of).as_deref() != Some(folder) {
        return Err("the git directory that it names belongs to another folder");
    }
    let common = git_dir.join(common).canonicalize().map_err(|_| "the repository it belongs to is gone")?;
    let name = git_dir.strip_prefix(common.join("worktrees")).ok().and_then(Path::to_str);
    match name.filter(|name| !name.is_empty() && !name.contains('/')) {
        Some(name) if is_one(&common) => Ok(Linked { own: format!("worktrees/{name}"), common }),
        Some(_) | None => Err("what it names is no worktree of a repository"),
    }
}

fn submodule(folder: &Path, git_dir: PathBuf) -> Result<Linked, &'static str> {
    if !is_one(&git_dir) {
        return Err("what it names is no git directory");
    }
    let config = contents(&git_dir.join("config")).unwrap_or_default();
    let worktree = variables(&config).into_iter().rfind(|variable| variable.name == "core.worktree");
    let worktree = worktree.and_then(|variable| variable.value).map(|value| git_dir.join(path_of(&value)));
    if worktree.and_then(|path| path.canonicalize().ok()).as_deref() != Some(folder) {
        return Err("the git directory that it names does not name this folder (core.worktree)");
    }
    Ok(Linked { common: plain(&git_dir), own: String::new() })
}

/// The first line of a small file.
pub(super) fn first_line(file: &Path) -> Option<Vec<u8>> {
    let found = file.metadata().ok()?;
    if !found.is_file() || found.len() > MAX_BYTES {
        return None;
    }
    let bytes = fs::read(file).ok()?;
    let line = bytes.split(|byte| *byte == b'\n').next()?;
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    (!line.is_empty()).then(|| line.to_vec())
}

fn not_ours(file: &Path, why: &str) -> SandboxError {
    let message = format!("`{}` cannot be followed: {why}", file.display());
    ErrorCode::PathRefused.error(message).hint(
        "if you made it, `git worktree repair` or `git config core.worktree FOLDER` lets the other side name this \
         folder; if an agent made it, remove it",
    )
}

/// The file holds a path and little else.
const MAX_BYTES: u64 = 64 * 1024;
