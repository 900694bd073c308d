//! Paths of a repository that are submodules (gitlinks). With an agent's `.git` in one of them, the host's `git status` runs the
//! programs that its config names: at once if the index has the gitlink, and after a checkout if another branch has it. So the
//! sandbox cannot create anything there.
//!
//! The index is read as a file. The gitlinks of HEAD and other branches need a call of git; they are cached by commit below the
//! state directory, so that a start needs none unless a branch is new or moved.

use super::shields::{Missing, Shields};
use super::{git_dir, index};
use crate::inert::{Git, GitError};
use crate::private_git::{BranchTips, HostGit, RepositoryRequest, SetupError, branch_tips};
use crate::raw_diff::{Change, GITLINK, Part, parts};
use belljar_git::ObjectId;
use belljar_spec::SandboxError;
use belljar_spec::workspace::View;
use belljar_state::{Survives, create_private, write_atomic};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Protects the gitlinks in a repository's index.
pub(super) fn hold_those_of_index(view: &mut View, host: &HostGit) -> Result<(), SandboxError> {
    hold(view, host, index::index(&host.own).repositories.iter().map(|name| text(name))).map(drop)
}

/// Protects the gitlinks of other local branches of these repositories. Returns notes on those that were not read or not protected.
pub fn hold_gitlinks_of_branches(
    view: &mut View,
    requests: &[RepositoryRequest],
    state: &Path,
) -> Result<Vec<String>, SandboxError> {
    let mut notes = Vec::new();
    for RepositoryRequest { host, dot_git, .. } in requests {
        let Named { mut paths, not_looked_at } = match of_branches(host, state) {
            Ok(named) => named,
            Err(error) => {
                notes.push(format!("submodules on other branches of `{dot_git}` are not protected: {error}"));
                continue;
            }
        };
        let beyond = paths.len().saturating_sub(MAX_PATHS);
        paths = paths.into_iter().take(MAX_PATHS).collect();
        let mut not_held = hold(view, host, paths.into_iter())?;
        not_held.truncate(MAX_REPORTED);
        if not_looked_at > 0 {
            notes.push(format!(
                "{not_looked_at} branches of `{dot_git}` were not searched for submodules: paths that only they name are not protected"
            ));
        }
        if beyond > 0 {
            notes.push(format!(
                "other branches of `{dot_git}` name more than {MAX_PATHS} submodules: {beyond} of these paths are not protected"
            ));
        }
        notes.extend(not_held.into_iter().map(|path| {
            format!("`{path}` is a submodule on another branch of `{dot_git}`, and a file or link here: it is not protected")
        }));
    }
    Ok(notes)
}

/// A path as text. A path that is not valid UTF-8 becomes one that [`hold`] refuses.
fn text(path: &[u8]) -> String {
    String::from_utf8_lossy(path).into_owned()
}

/// Protects paths of a repository's work tree; returns those that cannot be protected. A link, or a file in the place of a folder,
/// cannot: files that are made there are reported at the end.
fn hold(
    view: &mut View,
    host: &HostGit,
    names: impl Iterator<Item = String>,
) -> Result<Vec<String>, SandboxError> {
    let Ok(top) = host.top.strip_prefix(&view.folder).map(Path::to_path_buf) else { return Ok(Vec::new()) };
    let mut shields = Shields::with(&view.folder, std::mem::take(&mut view.shields));
    let mut not_held = Vec::new();
    for name in names {
        let path = top.join(&name);
        if name.contains(char::REPLACEMENT_CHARACTER) {
            return Err(git_dir::no_text(&path));
        }
        let place = view.folder.join(&path);
        let is_empty = |place: &Path| fs::read_dir(place).is_ok_and(|mut inside| inside.next().is_none());
        // Without a placeholder `.git` in it if possible: the host's git takes an empty one for a damaged submodule.
        let is_whole = place.symlink_metadata().is_err() || is_empty(&place);
        let path = if is_whole { path } else { path.join(".git") };
        let mut more = shields.clone();
        match path.to_str().map(|path| more.protect_below_made(path, Missing::Directory)) {
            Some(Ok(())) => shields = more,
            Some(Err(_)) | None => not_held.push(name),
        }
    }
    view.shields = shields.finish();
    Ok(not_held)
}

/// The gitlinks of a repository's branches.
#[derive(Debug, Default)]
struct Named {
    paths: BTreeSet<String>,
    /// How many tips this start did not read.
    not_looked_at: usize,
}

/// The gitlinks found, by commit.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Known {
    /// The version of the search; an earlier one missed some.
    #[serde(default)]
    version: u32,
    /// The git directory: another one may have the same inode by now.
    directory: PathBuf,
    by_commit: BTreeMap<String, BTreeSet<String>>,
}

/// The gitlinks of commits that the user's next checkout or reset may go to: the tips of all branches, and HEAD, from which the
/// index may differ.
fn of_branches(host: &HostGit, state: &Path) -> Result<Named, SetupError> {
    let BranchTips { head, others } = branch_tips(host)?;
    let tips: BTreeSet<ObjectId> = head.iter().cloned().chain(others).collect();
    let file = file(host, state);
    let mut known = file.as_deref().map(|file| Known::read(file, host)).unwrap_or_default();
    let is_known = |tip: &ObjectId| known.by_commit.contains_key(tip.as_str());
    // HEAD first: it is read in any case.
    let new = head.iter().chain(tips.iter().filter(|tip| Some(*tip) != head.as_ref()));
    let new: Vec<ObjectId> = new.filter(|tip| !is_known(tip)).cloned().collect();
    let not_looked_at = new.len().saturating_sub(MAX_NEW_TIPS);
    let new = &new[..new.len().min(MAX_NEW_TIPS)];
    if !new.is_empty() {
        known.learn(host, new)?;
        known.by_commit.retain(|commit, _| tips.iter().any(|tip| tip.as_str() == commit));
        if let Some(file) = &file {
            known.write(file, host);
        }
    }
    let paths =
        known.by_commit.into_iter().filter(|(commit, _)| tips.iter().any(|tip| tip.as_str() == commit));
    Ok(Named { paths: paths.flat_map(|(_, paths)| paths).collect(), not_looked_at })
}

impl Known {
    /// Adds the gitlinks of these commits, by a comparison with a known commit: git descends only where trees differ. Without a
    /// known one that still exists, the whole first commit is read.
    fn learn(&mut self, host: &HostGit, tips: &[ObjectId]) -> Result<(), GitError> {
        let git = Git::find()?;
        let base = self.by_commit.iter().next().map(|(commit, paths)| (commit.clone(), paths.clone()));
        let found = base.and_then(|(base, paths)| differing(&git, host, &base, &paths, tips).ok());
        let found = match (found, tips) {
            (Some(found), _) => found,
            (None, []) => return Ok(()),
            (None, [first, rest @ ..]) => {
                let paths = of_commit(&git, host, first)?;
                let mut found = match rest {
                    [] => BTreeMap::new(),
                    rest => differing(&git, host, first.as_str(), &paths, rest)?,
                };
                found.insert(first.to_string(), paths);
                found
            }
        };
        self.by_commit.extend(found);
        Ok(())
    }
}

/// The gitlinks of a commit.
fn of_commit(git: &Git, host: &HostGit, commit: &ObjectId) -> Result<BTreeSet<String>, GitError> {
    let call = host.call(git).time_limit(COMPARE_TIMEOUT);
    let list = call.args(["ls-tree", "-r", "-z", "--full-tree", commit.as_str()]).output()?;
    let links = list.split(|byte| *byte == 0).filter(|entry| entry.starts_with(b"160000 "));
    let paths = links.filter_map(|entry| entry.splitn(2, |byte| *byte == b'\t').nth(1));
    Ok(paths.map(text).collect())
}

/// The gitlinks of some commits, each as it differs from another one, whose gitlinks are known.
fn differing(
    git: &Git,
    host: &HostGit,
    base: &str,
    of_base: &BTreeSet<String>,
    tips: &[ObjectId],
) -> Result<BTreeMap<String, BTreeSet<String>>, GitError> {
    let lines = tips.iter().map(|tip| format!("{tip} {base}\n")).collect::<String>();
    let call = host.call(git).time_limit(COMPARE_TIMEOUT);
    let words = ["diff-tree", "--stdin", "-r", "-z", "--raw", "--no-renames", "--no-abbrev", "--always"];
    let raw = call.args(words).output_with(lines.as_bytes())?;
    let mut found: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut commit = String::new();
    for part in parts(&raw) {
        match part {
            Part::Commit(id) => {
                commit = String::from_utf8_lossy(id).trim().to_string();
                found.insert(commit.clone(), of_base.clone());
            }
            Part::Change(Change { new, path, .. }) => {
                let paths = found.entry(commit.clone()).or_default();
                match new.0 {
                    GITLINK => drop(paths.insert(text(path))),
                    _ => drop(paths.remove(&text(path))),
                }
            }
        }
    }
    // A commit that git cannot read is skipped silently.
    match tips.iter().find(|tip| !found.contains_key(tip.as_str())) {
        None => Ok(found),
        Some(tip) => {
            Err(GitError::Failed { words: "diff-tree".to_string(), reason: format!("{tip} cannot be read") })
        }
    }
}

/// The cache file of a repository.
fn file(host: &HostGit, state: &Path) -> Option<PathBuf> {
    let found = host.common.metadata().ok()?;
    Some(state.join("gitlinks").join(format!("{:x}-{:x}", found.dev(), found.ino())))
}

impl Known {
    fn read(file: &Path, host: &HostGit) -> Known {
        let known = fs::read(file).ok().and_then(|bytes| serde_json::from_slice::<Known>(&bytes).ok());
        let is_of = |known: &Known| known.version == VERSION && known.directory == host.common;
        known.filter(is_of).unwrap_or_default()
    }

    /// If it cannot be written, the next start searches again.
    fn write(&mut self, file: &Path, host: &HostGit) {
        self.version = VERSION;
        self.directory.clone_from(&host.common);
        let Some(directory) = file.parent() else { return };
        if let Ok(bytes) = serde_json::to_vec(self) {
            let _ = create_private(directory).and_then(|()| write_atomic(file, &bytes, Survives::Kill));
        }
    }
}

const VERSION: u32 = 3;
/// Limit of branches that one start reads; those that earlier starts read are known.
const MAX_NEW_TIPS: usize = 64;
/// Each path is a mount or two.
const MAX_PATHS: usize = 128;
const MAX_REPORTED: usize = 4;
/// A start must not wait for longer.
const COMPARE_TIMEOUT: Duration = Duration::from_secs(3);
