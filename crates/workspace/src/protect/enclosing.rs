//! Repositories around a folder, which is then a part of their work tree: their config may name something in it, and the folder
//! itself may have to be protected.
//!
//! The sandbox cannot change anything above the folder, so it is trusted without a link back.

use super::git_dir::is_one;
use super::linked::first_line;
use super::settings_table::{SettingsPath, settings_paths};
use super::shields::Missing;
use crate::settings::path_of;
use belljar_spec::workspace::ProtectedPath;
use belljar_spec::{ErrorCode, SandboxError};
use std::path::{Path, PathBuf};

/// A repository whose work tree the folder is below.
pub(super) struct Enclosing {
    /// The top of its work tree.
    pub(super) root: PathBuf,
    /// Where its config is.
    pub(super) common: PathBuf,
    /// `worktrees/NAME`, or empty.
    pub(super) own: String,
}

/// All of them, nearest first. Git uses the nearest, but the user works in the others as well.
pub(super) fn around(folder: &Path) -> Vec<Enclosing> {
    folder.ancestors().skip(1).filter_map(at).collect()
}

fn at(root: &Path) -> Option<Enclosing> {
    let entry = root.join(".git");
    let git_dir = match entry.metadata().ok()?.is_file() {
        true => root.join(path_of(first_line(&entry)?.strip_prefix(b"gitdir: ")?)),
        false => entry,
    };
    let git_dir = git_dir.canonicalize().ok()?;
    let common = first_line(&git_dir.join("commondir")).map(|line| git_dir.join(path_of(&line)));
    let common = common.and_then(|common| common.canonicalize().ok()).unwrap_or_else(|| git_dir.clone());
    if !is_one(&common) {
        return None;
    }
    let own = git_dir.strip_prefix(&common).ok().and_then(Path::to_str).unwrap_or_default().to_string();
    Some(Enclosing { root: root.to_path_buf(), common, own })
}

/// Refuses a folder that is itself protected as a whole, or lies in such a folder: the sandbox could not change anything in it.
pub(super) fn refuse_protected(folder: &Path) -> Result<(), SandboxError> {
    for place in folder.ancestors() {
        let Some(name) = place.file_name().and_then(|name| name.to_str()) else { continue };
        // Some file systems do not tell `.GIT` from `.git`.
        if let Some(known) = PROTECTED.iter().find(|known| known.eq_ignore_ascii_case(name)) {
            return Err(is_protected(folder, &format!("`{}` is a `{known}` directory", place.display())));
        }
        // Users keep work trees in a bare repository; the directories that git itself makes there are refused.
        let in_git_dir = OF_GIT.contains(&name) && place.parent().is_some_and(is_one);
        if in_git_dir {
            return Err(is_protected(folder, &format!("`{}` is a part of a git directory", place.display())));
        }
    }
    Ok(())
}

/// Refuses a folder whose settings programs on the host execute, or one in it. A repository there is allowed: agents keep work
/// trees in such folders (`.claude/worktrees`, `.codex/worktrees`).
pub(super) fn refuse_settings(folder: &Path, unprotect: &[ProtectedPath]) -> Result<(), SandboxError> {
    let is_taken_out = |known: &SettingsPath| unprotect.iter().any(|one| one.as_str() == known.path);
    let held = || settings_paths().iter().filter(|known| !is_taken_out(known));
    let holds_some = |known: &&SettingsPath| {
        let parent = Path::new(known.path).parent().filter(|parent| !parent.as_os_str().is_empty());
        parent.is_some_and(|parent| folder.ends_with(parent))
    };
    for place in folder.ancestors() {
        let is_it = held().find(|known| place.ends_with(known.path));
        if let Some(known) = is_it.or_else(|| held().find(holds_some)) {
            let mut on_the_way = folder.ancestors().take_while(|one| one.starts_with(place));
            if on_the_way.any(|one| at(one).is_some()) {
                return Ok(());
            }
            let why = format!("`{}` is protected ({})", known.path, known.reason);
            return Err(is_protected(folder, &why).hint(format!(
                "start in the folder above it, or take it out by `unprotect = [\"{}\"]` of `[workspace]` in your own belljar.toml",
                known.path
            )));
        }
    }
    Ok(())
}

/// Refuses a folder that is, or lies in, a hooks directory that the config of the work tree at `root` names.
pub(super) fn refuse_hooks(
    folder: &Path,
    named: &Path,
    missing: Missing,
    root: &Path,
) -> Result<(), SandboxError> {
    // With hooks in a parent of the work tree (`core.hooksPath = ..`), the hooks lie beside the work tree, and the folder is not
    // among them.
    let is_in = folder == named || (folder.starts_with(named) && !root.starts_with(named));
    match missing {
        Missing::Directory if is_in => {
            let why = format!(
                "config of git names `{}` as its hooks (`core.hooksPath`, `init.templateDir`)",
                named.display()
            );
            Err(is_protected(folder, &why))
        }
        Missing::Directory | Missing::File(_) | Missing::Nothing => Ok(()),
    }
}

fn is_protected(folder: &Path, why: &str) -> SandboxError {
    let message = format!(
        "the folder `{}` has to be protected and cannot be a workspace: {why}, and the host runs or believes what is in it",
        folder.display()
    );
    ErrorCode::PathRefused.error(message).hint("start in the folder above it")
}

/// Directories that may never contain a workspace.
const PROTECTED: [&str; 3] = [".git", ".husky", ".belljar"];
/// Directories that git makes in a git directory: gitrepository-layout(5).
const OF_GIT: [&str; 7] = ["hooks", "info", "logs", "modules", "objects", "refs", "worktrees"];
