//! What is left in a folder after a sandbox worked in it that the host's git should not meet unlooked at. No mount can keep
//! it from being made: a repository below the folder, a link in the git directory, a list of commands to run.
//!
//! Looks at a few places and the index; never starts git, never follows a link, changes nothing.

use super::index::{self, Index};
use super::{MAIN_WORKTREE, git_dir};
use crate::settings::{contents, path_of};
use belljar_git::config::variables;
use belljar_spec::workspace::{Shield, Shielded, View};
use std::fs;
use std::io::ErrorKind;
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
    /// A rebase or cherry-pick with commands in it: `--continue` runs them.
    Commands,
    /// The git directory of a submodule or of another worktree: git in that one believes its config, and runs its hooks.
    Elsewhere,
    /// The folder itself looks like a git directory: git takes it for one, with its config.
    GitDirectory,
    /// Something that was held has changed. When the host replaces such a file, the kernel takes the mount that held it
    /// away, and from then on it could be changed inside as well.
    Held,
    /// Too much to be looked at: a file that is too large, or a git directory with too many files.
    TooMuch,
}

impl LeftKind {
    /// What it means, for a person.
    pub fn sentence(self) -> &'static str {
        match self {
            LeftKind::Repository => "a repository inside this one: `git status` runs what its config says",
            LeftKind::Link => "a link in the git directory: git writes to wherever it leads",
            LeftKind::Commands => {
                "a rebase or cherry-pick that was left with commands in it: `--continue` runs them"
            }
            LeftKind::Elsewhere => {
                "the git directory of a submodule or worktree, made or changed while the sandbox ran: git believes its config"
            }
            LeftKind::GitDirectory => "the folder looks like a git directory: git believes its config",
            LeftKind::Held => {
                "it changed while the sandbox ran: who replaces a protected file takes its protection away"
            }
            LeftKind::TooMuch => "too much to be looked at: git may find anything in it",
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
        // Of a directory that was not looked through, nobody knows.
        LeftKind::TooMuch => one.path.is_dir() || changed(&one.path),
        LeftKind::Link | LeftKind::Commands | LeftKind::Elsewhere | LeftKind::Held => changed(&one.path),
    });
    found.extend(elsewhere(view, &changed));
    found.extend(held(view, &changed).into_iter().map(|path| Left { path, what: LeftKind::Held }));
    found
}

/// Git directories beside the one that is worked in, which are held only if they were there from the start.
fn elsewhere(view: &View, changed: &dyn Fn(&Path) -> bool) -> Vec<Left> {
    let (common, own) = match &view.git {
        Some(git) => (git.common.clone(), git.common.join(&git.own)),
        None => (view.folder.join(".git"), view.folder.join(".git")),
    };
    let entries = fs::read_dir(common.join("worktrees")).into_iter().flatten().flatten();
    let mut all: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(|entry| *entry != own).collect();
    let modules = common.join("modules");
    let mut found = Vec::new();
    match git_dir::git_dirs_below(&modules, MOST_MODULES) {
        Some(below) => all.extend(below),
        None => found.push(Left { path: modules, what: LeftKind::TooMuch }),
    }
    let mut seen = 0;
    let decides = ["config", "config.worktree", "commondir", "gitdir", "hooks"];
    all.retain(|place| decides.iter().any(|name| changed_within(&place.join(name), changed, 0, &mut seen)));
    found.extend(all.into_iter().map(|path| Left { path, what: LeftKind::Elsewhere }));
    found
}

/// What is held and has changed all the same.
fn held(view: &View, changed: &dyn Fn(&Path) -> bool) -> Vec<PathBuf> {
    let linked = view.git.as_ref().map(|git| (&git.common, git.own.as_str(), &git.shields));
    let all = [Some((&view.folder, "", &view.shields)), linked].into_iter().flatten();
    let mut found = Vec::new();
    let mut seen = 0;
    for (root, own, shields) in all {
        for Shield { path, what } in shields.iter().filter(|shield| !is_of_others(&shield.path, own)) {
            let place = root.join(path);
            let is_there = match what {
                Shielded::Existing => true,
                Shielded::MissingDirectory => !is_missing_directory(&place),
                Shielded::MissingFile(content) => !is_missing_file(&place, content.as_bytes()),
                Shielded::Anchored => false,
            };
            if is_there && changed_within(&place, changed, 0, &mut seen) {
                found.push(place);
            }
        }
    }
    found
}

/// Of other worktrees it is theirs to change.
fn is_of_others(path: &str, own: &str) -> bool {
    let in_git_dir = path.strip_prefix(".git/").unwrap_or(path);
    let is_own = !own.is_empty() && path.strip_prefix(own).is_some_and(|rest| rest.starts_with('/'));
    let is_other = in_git_dir.starts_with("worktrees/") && !path.ends_with("/.git") && !is_own;
    is_other || (!own.is_empty() && MAIN_WORKTREE.contains(&path))
}

/// Whether nothing is there, or what stands for it: an empty directory.
fn is_missing_directory(place: &Path) -> bool {
    match place.symlink_metadata() {
        Ok(found) => found.is_dir() && fs::read_dir(place).is_ok_and(|mut entries| entries.next().is_none()),
        Err(error) => matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory),
    }
}

/// Whether nothing is there, or what stands for it: a file with this content.
fn is_missing_file(place: &Path, content: &[u8]) -> bool {
    match place.symlink_metadata() {
        Ok(found) => {
            found.is_file()
                && found.len() == content.len() as u64
                && fs::read(place).is_ok_and(|found| found == content)
        }
        Err(error) => matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory),
    }
}

/// Whether it changed, or anything in it: who writes to a file does not change the directory around it.
fn changed_within(place: &Path, changed: &dyn Fn(&Path) -> bool, depth: usize, seen: &mut usize) -> bool {
    *seen += 1;
    if changed(place) {
        return true;
    }
    let is_directory = place.symlink_metadata().is_ok_and(|found| found.is_dir());
    if !is_directory || depth >= DEEPEST {
        return false;
    }
    let mut entries = fs::read_dir(place).into_iter().flatten().flatten();
    entries.any(|entry| *seen <= MOST_SEEN && changed_within(&entry.path(), changed, depth + 1, seen))
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
    let Index { repositories, too_large } = index::index(&own);
    for path in too_large {
        add(path, LeftKind::TooMuch);
    }
    for name in repositories {
        let place = view.folder.join(path_of(&name));
        if place.join(".git").symlink_metadata().is_ok() {
            add(place, LeftKind::Repository);
        }
    }
    // What belongs to the main worktree is in the common directory, and can be made from every worktree.
    let common = view.git.as_ref().filter(|git| !git.own.is_empty()).map(|git| &git.common);
    for git_dir in [Some(&own), common].into_iter().flatten() {
        let mut looked = Looked::default();
        looked.directory(git_dir, 0);
        for path in looked.links {
            add(path, LeftKind::Link);
        }
        if looked.is_too_much {
            add(git_dir.clone(), LeftKind::TooMuch);
        }
        for list in ["rebase-merge/git-rebase-todo", "rebase-merge/git-rebase-todo.backup"] {
            let list = git_dir.join(list);
            let size = list.symlink_metadata().ok().filter(|found| found.is_file()).map(|found| found.len());
            match size {
                Some(size) if size > LONGEST_LIST => add(list, LeftKind::TooMuch),
                Some(_) if fs::read(&list).is_ok_and(|text| has_commands(&text)) => {
                    add(list, LeftKind::Commands);
                }
                Some(_) | None => {}
            }
        }
        for (file, strategy) in [
            ("rebase-merge/strategy", strategy_of_rebase as fn(&[u8]) -> Option<Vec<u8>>),
            ("sequencer/opts", strategy_of_sequencer),
        ] {
            let file = git_dir.join(file);
            let strategy = contents(&file).and_then(|text| strategy(&text));
            if strategy.is_some_and(|strategy| !STRATEGIES.contains(&strategy.as_slice())) {
                add(file, LeftKind::Commands);
            }
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
#[derive(Default)]
struct Looked {
    links: Vec<PathBuf>,
    seen: usize,
    /// Whoever makes enough files hides a link among them: that it was not looked for has to be said.
    is_too_much: bool,
}

impl Looked {
    fn directory(&mut self, place: &Path, depth: usize) {
        for entry in fs::read_dir(place).into_iter().flatten().flatten() {
            self.seen += 1;
            if self.seen > MOST_SEEN || depth > DEEPEST {
                self.is_too_much = true;
                return;
            }
            let Ok(kind) = entry.file_type() else { continue };
            let name = entry.file_name();
            if kind.is_symlink() {
                self.links.push(entry.path());
            } else if kind.is_dir() && !(depth == 0 && UNVISITED.iter().any(|skip| name == *skip)) {
                self.directory(&entry.path(), depth + 1);
            }
        }
    }
}

/// Whether a list of a rebase has a line that is run: git-rebase(1), "INTERACTIVE MODE".
fn has_commands(list: &[u8]) -> bool {
    list.split(|byte| *byte == b'\n').any(|line| {
        matches!(line.trim_ascii().split(|byte| byte.is_ascii_whitespace()).next(), Some(b"exec" | b"x"))
    })
}

fn strategy_of_rebase(text: &[u8]) -> Option<Vec<u8>> {
    Some(text.trim_ascii().to_vec())
}

fn strategy_of_sequencer(text: &[u8]) -> Option<Vec<u8>> {
    variables(text).into_iter().rfind(|variable| variable.name == "options.strategy")?.value
}

/// Those that git has itself; for another it runs `git-merge-NAME`, wherever that is: git-merge(1), "MERGE STRATEGIES".
const STRATEGIES: [&[u8]; 8] =
    [b"", b"octopus", b"ort", b"ours", b"recursive", b"recursive-ours", b"resolve", b"subtree"];
/// More submodules than anybody has.
const MOST_MODULES: usize = 20_000;
/// Other folders' worktrees, submodules with their own objects, and what is held.
const UNVISITED: [&str; 4] = ["hooks", "modules", "objects", "worktrees"];
/// Some ten thousand commits.
const LONGEST_LIST: u64 = 1 << 20;
/// Names of branches have some slashes.
const DEEPEST: usize = 32;
const TICK: Duration = Duration::from_millis(10);
/// So many refs and logs are looked at.
const MOST_SEEN: usize = 50_000;
