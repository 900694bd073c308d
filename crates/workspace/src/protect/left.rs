//! What is left in a folder after a sandbox worked in it that the host's git should not meet unlooked at. No mount can keep
//! it from being made: a repository below the folder, a link in the git directory, a list of commands to run.
//!
//! Looks at a few places and the index; never starts git, never follows a link, changes nothing.

use super::{git_dir, index};
use crate::settings::path_of;
use belljar_spec::workspace::View;
use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Something that the host's git would run, believe or write through.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Left {
    /// On the host.
    pub path: PathBuf,
    pub what: LeftKind,
    /// Tells it from itself before it was changed.
    state: u64,
}

/// What it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum LeftKind {
    /// A repository that the index names as a part of this one: `git status` runs git in it, with its config.
    Repository,
    /// A link in the git directory: git writes through it, to wherever it leads.
    Link,
    /// The list of a rebase with commands in it: `git rebase --continue` runs them.
    Commands,
    /// The folder itself looks like a git directory: git takes it for one, with its config.
    GitDirectory,
}

impl LeftKind {
    /// What it means, for a person.
    pub fn sentence(self) -> &'static str {
        match self {
            LeftKind::Repository => "a repository inside this one: `git status` runs what its config says",
            LeftKind::Link => "a link in the git directory: git writes to wherever it leads",
            LeftKind::Commands => {
                "a rebase that was left with commands in its list: `git rebase --continue` runs them"
            }
            LeftKind::GitDirectory => "the folder looks like a git directory: git believes its config",
        }
    }
}

/// What there is now that was not there, or not like this, `before`: a submodule of yours that nobody changed is no harm.
pub fn left_since(before: &[Left], view: &View) -> Vec<Left> {
    let mut now = left(view);
    now.retain(|one| !before.contains(one));
    now
}

/// What there is now.
pub fn left(view: &View) -> Vec<Left> {
    let own = match &view.git {
        Some(git) => git.common.join(&git.own),
        None => view.folder.join(".git"),
    };
    let mut found = Vec::new();
    let mut add = |path: PathBuf, what| {
        let state = if what == LeftKind::Repository { state(&path) } else { 0 };
        found.push(Left { path, what, state });
    };
    for name in index::repositories(&own) {
        let place = view.folder.join(path_of(&name));
        if place.join(".git").symlink_metadata().is_ok() {
            add(place, LeftKind::Repository);
        }
    }
    let mut seen = 0;
    for path in links(&own, 0, &mut seen) {
        add(path, LeftKind::Link);
    }
    for list in ["rebase-merge/git-rebase-todo", "rebase-merge/git-rebase-todo.backup"] {
        let list = own.join(list);
        let is_file = list.symlink_metadata().is_ok_and(|found| found.is_file());
        if is_file && fs::read(&list).is_ok_and(|text| has_commands(&text)) {
            add(list, LeftKind::Commands);
        }
    }
    if view.git.is_none() && !own.join("HEAD").exists() && git_dir::is_one(&view.folder) {
        add(view.folder.clone(), LeftKind::GitDirectory);
    }
    found.sort();
    found
}

/// What decides what git runs in a repository, as a number: where its git directory is, its config and its hooks.
fn state(repository: &Path) -> u64 {
    let mut state = DefaultHasher::new();
    let mut git_dir = repository.join(".git");
    if let Some(content) = small(&git_dir) {
        content.hash(&mut state);
        let named = content.strip_prefix(b"gitdir: ").unwrap_or_default().trim_ascii_end();
        git_dir = repository.join(path_of(named));
    }
    for name in ["config", "config.worktree", "commondir"] {
        small(&git_dir.join(name)).hash(&mut state);
    }
    let hooks = fs::read_dir(git_dir.join("hooks")).into_iter().flatten().flatten();
    let mut hooks: Vec<_> = hooks
        .map(|hook| (hook.file_name(), hook.metadata().ok().map(|found| (found.ctime(), found.ctime_nsec()))))
        .collect();
    hooks.sort();
    hooks.hash(&mut state);
    state.finish()
}

/// The start of a file; nothing is waited for.
fn small(file: &Path) -> Option<Vec<u8>> {
    let mut content = Vec::new();
    if !file.metadata().ok()?.is_file() {
        return None;
    }
    File::open(file).ok()?.take(MOST_BYTES).read_to_end(&mut content).ok()?;
    Some(content)
}

/// Links in a git directory, but for where there may be very many files and git writes no name that is there already.
fn links(directory: &Path, depth: usize, seen: &mut usize) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        *seen += 1;
        if *seen > MOST_SEEN {
            break;
        }
        let Ok(kind) = entry.file_type() else { continue };
        let name = entry.file_name();
        if kind.is_symlink() {
            found.push(entry.path());
        } else if kind.is_dir()
            && depth < DEEPEST
            && !(depth == 0 && UNVISITED.iter().any(|skip| name == *skip))
        {
            found.extend(links(&entry.path(), depth + 1, seen));
        }
    }
    found
}

/// Whether a list of a rebase has a line that is run: git-rebase(1), "INTERACTIVE MODE".
fn has_commands(list: &[u8]) -> bool {
    list.split(|byte| *byte == b'\n').any(|line| {
        matches!(line.trim_ascii().split(|byte| byte.is_ascii_whitespace()).next(), Some(b"exec" | b"x"))
    })
}

/// Other folders' worktrees, submodules with their own objects, and what is held.
const UNVISITED: [&str; 4] = ["hooks", "modules", "objects", "worktrees"];
const MOST_BYTES: u64 = 1 << 20;
const DEEPEST: usize = 8;
/// So many refs and logs are looked at.
const MOST_SEEN: usize = 20_000;
