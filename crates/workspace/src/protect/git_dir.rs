//! The protected paths of a git directory: everything that makes the host's git run something, or read its config from elsewhere.
//! Each was tested with a real git (docs/protected-paths.md has the list, and the remaining gaps).

use super::linked::first_line;
use super::shields::{Missing, Shields};
use crate::settings::{contents, path_of, plain};
use belljar_git::config::variables;
use belljar_spec::{ErrorCode, SandboxError};
use std::fs;
use std::path::{Path, PathBuf};

/// Protects these paths of the git directory at `prefix` (empty: the root itself). `own` is the sandbox's worktree, if it is a
/// linked one.
pub(super) fn protect(shields: &mut Shields, prefix: &str, own: Option<&str>) -> Result<(), SandboxError> {
    itself(shields, prefix)?;
    worktrees(shields, prefix, own)?;
    modules(shields, prefix)
}

/// Whether a directory is a git directory, as git judges it: `is_git_directory` in setup.c.
pub(crate) fn is_one(directory: &Path) -> bool {
    let head = directory.join("HEAD").symlink_metadata().is_ok_and(|head| !head.is_dir());
    head && directory.join("objects").is_dir() && directory.join("refs").is_dir()
}

fn itself(shields: &mut Shields, prefix: &str) -> Result<(), SandboxError> {
    for (name, missing) in HELD {
        shields.protect(&join(prefix, name), missing)?;
    }
    Ok(())
}

/// Other worktrees belong to other folders of the host, whose git trusts the files here.
fn worktrees(shields: &mut Shields, prefix: &str, own: Option<&str>) -> Result<(), SandboxError> {
    let all = join(prefix, "worktrees");
    if shields.look(&all)?.is_none() {
        return Ok(());
    }
    for name in &names(shields, &all)? {
        let entry = join(&all, name);
        if own == Some(name.as_str()) {
            // Our worktree's part names the common directory and the folder, and may have its own config.
            for (name, missing) in OWN_WORKTREE {
                shields.protect(&join(&entry, name), missing)?;
            }
        } else {
            shields.protect(&entry, Missing::Nothing)?;
        }
    }
    Ok(())
}

/// The `.git` files of all linked worktrees of the git directory `common`, which could be made to name another git directory. At
/// any place: the caller picks.
pub(super) fn worktree_files(common: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(common.join("worktrees")).into_iter().flatten().flatten();
    let files = entries.filter_map(|entry| {
        // Relative paths start from there.
        let file = entry.path().join(path_of(&first_line(&entry.path().join("gitdir"))?));
        Some(file.parent()?.canonicalize().ok()?.join(".git"))
    });
    let mut files: Vec<PathBuf> = files.collect();
    files.sort();
    files
}

/// Submodules have git directories of their own below `modules`, under names that may have slashes.
fn modules(shields: &mut Shields, prefix: &str) -> Result<(), SandboxError> {
    let all = join(prefix, "modules");
    if shields.look(&all)?.is_none() {
        return Ok(());
    }
    let mut found = Vec::new();
    let mut waiting = vec![all.clone()];
    let mut seen = 0;
    while let Some(directory) = waiting.pop() {
        for name in names(shields, &directory)? {
            seen += 1;
            let entry = join(&directory, &name);
            if !shields.look(&entry)?.is_some_and(|kind| kind.is_dir()) {
                continue;
            }
            if is_one(&shields.root().join(&entry)) {
                waiting.push(join(&entry, "modules"));
                found.push(entry);
            } else {
                waiting.push(entry);
            }
        }
        if found.len() > MAX_APART || seen > MAX_SEEN {
            // Each costs some mounts: with so many, all are protected as a whole, and the sandbox cannot commit in them.
            return shields.protect(&all, Missing::Nothing);
        }
    }
    found.sort();
    for entry in &found {
        itself(shields, entry)?;
        work_tree(shields, entry)?;
    }
    Ok(())
}

/// The present git directories of submodules below `modules`; `None` if there are too many entries.
pub(crate) fn git_dirs_below(modules: &Path, most: usize) -> Option<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut waiting = vec![modules.to_path_buf()];
    let mut seen = 0;
    while let Some(directory) = waiting.pop() {
        // A link would lead to git directories of other repositories.
        if !directory.symlink_metadata().is_ok_and(|found| found.is_dir()) {
            continue;
        }
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            seen += 1;
            if seen > most {
                return None;
            }
            if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                continue;
            }
            if is_one(&entry.path()) {
                waiting.push(entry.path().join("modules"));
                found.push(entry.path());
            } else {
                waiting.push(entry.path());
            }
        }
    }
    found.sort();
    Some(found)
}

/// A submodule's work tree has a file that names its git directory, which could be made to name another.
fn work_tree(shields: &mut Shields, module: &str) -> Result<(), SandboxError> {
    let module = shields.root().join(module);
    let config = contents(&module.join("config")).unwrap_or_default();
    let named = variables(&config).into_iter().rfind(|variable| variable.name == "core.worktree");
    let place = named.and_then(|variable| Some(plain(&module.join(variable.text()?))));
    let file = place.as_ref().and_then(|place| place.strip_prefix(shields.root()).ok()?.to_str());
    match file.map(|place| join(place, ".git")) {
        Some(file) => shields.protect(&file, Missing::Nothing),
        None => Ok(()),
    }
}

fn names(shields: &Shields, directory: &str) -> Result<Vec<String>, SandboxError> {
    let directory = shields.root().join(directory);
    let mut names = Vec::new();
    for entry in fs::read_dir(&directory).into_iter().flatten().flatten() {
        names.push(entry.file_name().into_string().map_err(|name| no_text(&directory.join(name)))?);
    }
    names.sort();
    Ok(names)
}

/// Such a path cannot be sent to a guest, so no mount could protect it.
pub(super) fn no_text(path: &Path) -> SandboxError {
    let message = format!("`{}` has to be protected, and its name is not valid UTF-8", path.display());
    ErrorCode::PathRefused.error(message).hint("give it another name, or remove it")
}

fn join(directory: &str, name: &str) -> String {
    if directory.is_empty() { name.to_string() } else { format!("{directory}/{name}") }
}

/// Paths that are protected in every git directory.
const HELD: [(&str, Missing); 8] = [
    ("hooks", Missing::Directory),
    // Git's oldest format of remotes: a push to a repository in the work tree runs that repository's hooks.
    ("remotes", Missing::Directory),
    ("branches", Missing::Directory),
    ("config", Missing::File("")),
    // Read once `extensions.worktreeConfig` is set, which `git sparse-checkout` does by itself.
    ("config.worktree", Missing::File("")),
    // Selects drivers of the user's own config (such as git-lfs), without a trace in the work tree.
    ("info/attributes", Missing::File("")),
    // Names another directory for config and hooks. `.` is the default meaning, and also keeps git from taking the work tree's path
    // from config: a submodule's is wrong inside.
    ("commondir", Missing::File(".")),
    // Makes the objects of any repository that the user can read a part of this one: a branch could then expose them.
    ("objects/info/alternates", Missing::File("")),
];
const OWN_WORKTREE: [(&str, Missing); 3] =
    [("gitdir", Missing::Nothing), ("commondir", Missing::Nothing), ("config.worktree", Missing::File(""))];
/// More submodules than this are protected as a whole.
const MAX_APART: usize = 16;
const MAX_SEEN: usize = 256;
