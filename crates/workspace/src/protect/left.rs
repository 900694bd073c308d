//! What is left in a folder after a sandbox worked in it that the host's git should not meet unlooked at. No mount can keep
//! it from being made: a repository below the folder, a link in the git directory, a list of commands to run.
//!
//! Looks at a few places and the index; never starts git, never follows a link, changes nothing.

use super::{git_dir, index};
use crate::settings::path_of;
use belljar_spec::workspace::{Shield, Shielded, View};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Something that the host's git would run, believe or write through.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Left {
    /// On the host.
    pub path: PathBuf,
    pub what: LeftKind,
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
    /// Something that was held has changed. When the host replaces such a file, the kernel takes the mount that held it
    /// away, and from then on it could be changed inside as well.
    Held,
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
            LeftKind::Held => {
                "it changed while the sandbox ran: who replaces a protected file takes its protection away"
            }
        }
    }
}

/// What there is that was made or changed since then: a submodule of yours that nobody touched is no harm. Times of change are
/// the kernel's own; no program can set one.
pub fn left_since(since: SystemTime, view: &View) -> Vec<Left> {
    // The kernel's clock for files ticks every few milliseconds.
    let since = since.checked_sub(TICK).unwrap_or(since);
    let changed = |path: &Path| path.symlink_metadata().is_ok_and(|found| changed_at(&found) >= since);
    let mut found = left(view);
    found.retain(|one| match one.what {
        LeftKind::Repository => {
            let decides = [".git", ".git/config", ".git/config.worktree", ".git/commondir", ".git/hooks"];
            decides.iter().any(|name| changed(&one.path.join(name)))
        }
        LeftKind::GitDirectory => {
            ["config", "HEAD", "hooks"].iter().any(|name| changed(&one.path.join(name)))
        }
        LeftKind::Link | LeftKind::Commands | LeftKind::Held => changed(&one.path),
    });
    found.extend(held(view).filter(|path| changed(path)).map(|path| Left { path, what: LeftKind::Held }));
    found
}

/// What is there and held. Of other worktrees it is theirs to change.
fn held(view: &View) -> impl Iterator<Item = PathBuf> + '_ {
    let existing = |root: PathBuf, shields: &'_ [Shield]| -> Vec<PathBuf> {
        let own = |shield: &&Shield| {
            shield.what == Shielded::Existing
                && !["HEAD", "index"].contains(&shield.path.as_str())
                && !shield.path.split('/').any(|part| part == "worktrees")
        };
        shields.iter().filter(own).map(|shield| root.join(&shield.path)).collect()
    };
    let linked = view.git.as_ref().map(|git| existing(git.common.clone(), &git.shields));
    existing(view.folder.clone(), &view.shields).into_iter().chain(linked.into_iter().flatten())
}

fn changed_at(found: &fs::Metadata) -> SystemTime {
    let seconds = Duration::from_secs(found.ctime().max(0) as u64);
    UNIX_EPOCH + seconds + Duration::from_nanos(found.ctime_nsec().max(0) as u64)
}

/// What there is now.
pub fn left(view: &View) -> Vec<Left> {
    let own = match &view.git {
        Some(git) => git.common.join(&git.own),
        None => view.folder.join(".git"),
    };
    let mut found = Vec::new();
    let mut add = |path: PathBuf, what| found.push(Left { path, what });
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
    // With a `.git` as well: git goes on to the folder itself once that one is damaged, as by a `HEAD` without sense, and
    // whether git finds it damaged is not ours to judge.
    if git_dir::is_one(&view.folder) {
        add(view.folder.clone(), LeftKind::GitDirectory);
    }
    found.sort();
    found
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
const DEEPEST: usize = 8;
const TICK: Duration = Duration::from_millis(10);
/// So many refs and logs are looked at.
const MOST_SEEN: usize = 20_000;
