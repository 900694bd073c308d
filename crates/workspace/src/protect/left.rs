//! Files in a folder after a sandbox worked in it that the user should check before running git there. No mount can prevent them: a
//! repository below the folder, a link in the git directory, a list of commands to run.
//!
//! Checks a few places and the index; never starts git, never follows a link, changes nothing. [`super::Baseline`] decides which of
//! them are new.

use super::fingerprint::{Budget, Fingerprint};
use super::git_dir;
use super::index::{self, Index};
use crate::settings::{contents, path_of};
use belljar_git::config::variables;
use belljar_spec::workspace::{DotGit, View};
use std::fs::{self, FileType};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

/// Something that the host's git would run, trust or write through.
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
    /// A repository below the folder that the index does not name; another branch may.
    RepositoryBelow,
    /// A link in the git directory: git writes through it, to any target.
    Link,
    /// A pipe, a socket or a device in the git directory: git waits for it.
    NotAFile,
    /// A rebase or cherry-pick with commands in it: `--continue` runs them.
    Commands,
    /// The git directory of a submodule or of another worktree: git there trusts its config, and runs its hooks.
    Elsewhere,
    /// The folder itself looks like a git directory: git takes it for one, with its config.
    GitDirectory,
    /// Something that is protected has changed: on the host, or by another name. When the host replaces such a file, the kernel
    /// removes the mount that protected it, and from then on the sandbox could change it too.
    Held,
    /// Settings that a program on the host executes, and that were not protected.
    Settings,
    /// A file with other names outside of the folder, which changed with it.
    HardLink,
    /// Too much to check: a file that is too large, or a git directory with too many files.
    TooMuch,
    /// An index that git may read, and belljar cannot.
    Unreadable,
}

impl LeftKind {
    /// What it means, for the user.
    pub fn sentence(self) -> &'static str {
        match self {
            LeftKind::Repository => {
                "a repository inside this one, made or changed during this run: `git status` runs what its config says"
            }
            LeftKind::RepositoryBelow => {
                "a repository made or changed during this run: git started in it, or after a checkout that names it, runs what its config says"
            }
            LeftKind::Link => {
                "a link in a git directory, made during this run: git writes to wherever it leads"
            }
            LeftKind::NotAFile => {
                "a pipe, socket or device in a git directory, made during this run: git waits for it; remove it"
            }
            LeftKind::Commands => {
                "a rebase or cherry-pick that was left with commands in it: `--continue` runs them"
            }
            LeftKind::Elsewhere => {
                "the git directory of a submodule or worktree, made or changed during this run: git believes its config"
            }
            LeftKind::GitDirectory => "the folder looks like a git directory: git believes its config",
            LeftKind::Held => {
                "a protected path that changed during this run; if you did not change it yourself, inspect it before you use git or run anything here"
            }
            LeftKind::Settings => {
                "settings that a program on this machine executes, made or changed during this run; if you did not change them yourself, inspect them before you start it here"
            }
            LeftKind::HardLink => {
                "a file with other names outside of this folder (hard links), and it or its links changed during this run: what was written to it is there too; an overlay keeps them apart"
            }
            LeftKind::TooMuch => "too much to be looked at: git and other programs may find anything in it",
            LeftKind::Unreadable => "an index that belljar cannot read: git may find any repository in it",
        }
    }

    /// For programs.
    pub fn code(self) -> &'static str {
        match self {
            LeftKind::Repository => "repository",
            LeftKind::RepositoryBelow => "repository_below",
            LeftKind::Link => "link",
            LeftKind::NotAFile => "not_a_file",
            LeftKind::Commands => "commands",
            LeftKind::Elsewhere => "elsewhere",
            LeftKind::GitDirectory => "git_directory",
            LeftKind::Held => "protected",
            LeftKind::Settings => "settings",
            LeftKind::HardLink => "hard_link",
            LeftKind::TooMuch => "too_much",
            LeftKind::Unreadable => "unreadable",
        }
    }
}

impl Left {
    /// The content that decides whether it changed.
    pub(super) fn fingerprint(&self) -> Fingerprint {
        let budget = &mut Budget::small();
        match self.what {
            LeftKind::Repository | LeftKind::RepositoryBelow => of_repository(&self.path),
            LeftKind::Elsewhere | LeftKind::GitDirectory => of_git_dir(&self.path, budget),
            LeftKind::Link
            | LeftKind::NotAFile
            | LeftKind::Commands
            | LeftKind::Held
            | LeftKind::Settings
            | LeftKind::HardLink
            | LeftKind::TooMuch
            | LeftKind::Unreadable => Fingerprint::of(&self.path, budget),
        }
    }
}

/// The fingerprint of the files that decide what git does in a work tree.
pub(super) fn of_repository(top: &Path) -> Fingerprint {
    let git = top.join(".git");
    let budget = &mut Budget::small();
    match git.symlink_metadata() {
        Ok(found) if found.is_dir() => of_git_dir(&git, budget),
        _ => Fingerprint::of(&git, budget),
    }
}

/// The fingerprint of the files that git trusts in a git directory.
pub(super) fn of_git_dir(place: &Path, budget: &mut Budget) -> Fingerprint {
    let decides = ["config", "config.worktree", "commondir", "gitdir", "hooks"];
    Fingerprint::of_all(decides.map(|name| place.join(name)), budget)
}

/// The present findings, including git directories besides the sandbox's own, which are protected only if they existed at the
/// start.
pub(super) fn now(view: &View) -> Vec<Left> {
    let mut found = left(view);
    // The sandbox cannot write there.
    if !view.private_git.is_empty() {
        return found;
    }
    let (common, own) = directories(view);
    if !is_there(&common) {
        return found;
    }
    let entries = fs::read_dir(common.join("worktrees")).into_iter().flatten().flatten();
    let beside = entries.map(|entry| entry.path()).filter(|entry| *entry != own);
    found.extend(beside.map(|path| Left { path, what: LeftKind::Elsewhere }));
    let modules = common.join("modules");
    match git_dir::git_dirs_below(&modules, MAX_MODULES) {
        Some(below) => found.extend(below.into_iter().map(|path| Left { path, what: LeftKind::Elsewhere })),
        None => found.push(Left { path: modules, what: LeftKind::TooMuch }),
    }
    found
}

/// The git directory that all worktrees share, and the folder's own.
fn directories(view: &View) -> (PathBuf, PathBuf) {
    let private = view.private_git.first().map(|git| &git.kind);
    match (&view.git, private) {
        (Some(git), _) => (git.common.clone(), git.common.join(&git.own)),
        (None, Some(DotGit::File { common, own, .. })) => (common.clone(), own.clone()),
        (None, Some(DotGit::Directory) | None) => (view.folder.join(".git"), view.folder.join(".git")),
    }
}

fn is_there(place: &Path) -> bool {
    place.symlink_metadata().is_ok()
}

/// The present findings.
pub fn left(view: &View) -> Vec<Left> {
    let (common, own) = directories(view);
    let mut found = Vec::new();
    let mut add = |path: PathBuf, what| found.push(Left { path, what });
    let Index { repositories, too_large, unreadable } = index::index(&own);
    too_large.into_iter().for_each(|path| add(path, LeftKind::TooMuch));
    unreadable.into_iter().for_each(|path| add(path, LeftKind::Unreadable));
    for name in repositories {
        let place = view.folder.join(path_of(&name));
        if is_there(&place.join(".git")) {
            add(place, LeftKind::Repository);
        }
    }
    if !view.private_git.is_empty() {
        found.sort();
        return found;
    }
    // The main worktree's files are in the common directory, and can be created from every worktree.
    let mut all = vec![own.clone()];
    if common != own {
        all.push(common.clone());
    }
    all.retain(|git_dir| is_there(git_dir));
    let worked_in = all.len();
    if all.contains(&common) {
        all.extend(git_dir::git_dirs_below(&common.join("modules"), MAX_MODULES).unwrap_or_default());
    }
    all.extend(further_down(view));
    let mut seen = 0;
    for (number, git_dir) in all.iter().enumerate() {
        // Each git directory in use has its full budget; the others share one.
        if number <= worked_in {
            seen = 0;
        }
        let mut looked = Looked { links: Vec::new(), special: Vec::new(), seen, is_too_much: false };
        looked.directory(git_dir, 0);
        seen = looked.seen;
        looked.links.into_iter().for_each(|path| add(path, LeftKind::Link));
        looked.special.into_iter().for_each(|path| add(path, LeftKind::NotAFile));
        if looked.is_too_much {
            add(git_dir.clone(), LeftKind::TooMuch);
        }
        if number >= worked_in {
            continue;
        }
        for list in ["rebase-merge/git-rebase-todo", "rebase-merge/git-rebase-todo.backup"] {
            let list = git_dir.join(list);
            let size = list.symlink_metadata().ok().filter(|found| found.is_file()).map(|found| found.len());
            match size {
                Some(size) if size > MAX_LIST_BYTES => add(list, LeftKind::TooMuch),
                Some(_) if contents(&list).is_some_and(|text| has_commands(&text)) => {
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
    // Even beside a `.git`: git falls back to the folder itself if the `.git` is damaged, e.g. by an invalid `HEAD`, and we cannot
    // decide what git takes for damaged.
    if git_dir::is_one(&view.folder) {
        add(view.folder.clone(), LeftKind::GitDirectory);
    }
    found.sort();
    found.dedup();
    found
}

/// Git directories of repositories further down that are protected in parts.
fn further_down(view: &View) -> impl Iterator<Item = PathBuf> {
    view.shields.iter().filter_map(|shield| {
        let git_dir = shield.path.strip_suffix("/config")?;
        let is_own = git_dir == ".git" || git_dir.starts_with(".git/");
        let place = view.folder.join(git_dir);
        (!is_own && git_dir::is_one(&place)).then_some(place)
    })
}

/// Entries of a git directory that are neither file nor folder, except in places with very many files where git never writes to an
/// existing name.
struct Looked {
    links: Vec<PathBuf>,
    special: Vec<PathBuf>,
    seen: usize,
    /// An agent that makes enough files can hide a link among them: the report must say that the search was cut short.
    is_too_much: bool,
}

impl Looked {
    fn directory(&mut self, place: &Path, depth: usize) {
        for entry in fs::read_dir(place).into_iter().flatten().flatten() {
            let Some((name, kind)) = self.entry(&entry, depth) else { return };
            if !kind.is_dir() {
                continue;
            }
            match name.to_str() {
                Some("objects") if depth == 0 => self.objects(&entry.path()),
                Some(name) if depth == 0 && UNVISITED.contains(&name) => {}
                _ => self.directory(&entry.path(), depth + 1),
            }
        }
    }

    /// Git never writes to existing objects and packs; but it does write to other files beside them.
    fn objects(&mut self, place: &Path) {
        for entry in fs::read_dir(place).into_iter().flatten().flatten() {
            let Some((name, _)) = self.entry(&entry, 1) else { return };
            match name.to_str() {
                Some("info") => self.directory(&entry.path(), 2),
                Some("pack") => {
                    for entry in fs::read_dir(entry.path()).into_iter().flatten().flatten() {
                        let is_pack = entry.file_name().as_encoded_bytes().starts_with(b"pack-");
                        if !is_pack && self.entry(&entry, 2).is_none() {
                            return;
                        }
                    }
                }
                _ => {}
            }
        }
    }

    /// Notes what is neither a file nor a folder. `None` if it is too much.
    fn entry(&mut self, entry: &fs::DirEntry, depth: usize) -> Option<(std::ffi::OsString, FileType)> {
        self.seen += 1;
        if self.seen > MAX_SEEN || depth > DEEPEST {
            self.is_too_much = true;
            return None;
        }
        let kind = entry.file_type().ok()?;
        let name = entry.file_name();
        if kind.is_symlink() {
            self.links.push(entry.path());
        } else if is_special(kind) && !(kind.is_socket() && name == OWN_SOCKET) {
            self.special.push(entry.path());
        }
        Some((name, kind))
    }
}

fn is_special(kind: FileType) -> bool {
    kind.is_fifo() || kind.is_socket() || kind.is_block_device() || kind.is_char_device()
}

/// Whether a rebase list has a line that is executed: git-rebase(1), "INTERACTIVE MODE".
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

/// Git's built-in strategies; for another name it runs `git-merge-NAME` from anywhere in PATH: git-merge(1), "MERGE STRATEGIES".
const STRATEGIES: [&[u8]; 8] =
    [b"", b"octopus", b"ort", b"ours", b"recursive", b"recursive-ours", b"resolve", b"subtree"];
/// More submodules than any repository has.
const MAX_MODULES: usize = 20_000;
/// Other folders' worktrees, submodules (which are checked separately), and protected paths.
const UNVISITED: [&str; 3] = ["hooks", "modules", "worktrees"];
/// The socket of git's own fsmonitor.
const OWN_SOCKET: &str = "fsmonitor--daemon.ipc";
/// As large as a list of some ten thousand commits.
const MAX_LIST_BYTES: u64 = 1 << 20;
/// Names of branches have some slashes.
const DEEPEST: usize = 32;
/// Limit of refs and logs that are checked.
const MAX_SEEN: usize = 50_000;
