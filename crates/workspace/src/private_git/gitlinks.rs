//! Submodules in commits that a sandbox made.
//!
//! A gitlink in the host's index makes the host's `git status` run git in the folder of that name, and with it whatever that
//! folder's config names. So a path that was none never becomes one by an import, and one that was moves only to a commit that
//! the host's own repository of that submodule has.

use super::HostGit;
use crate::inert::Git;
use crate::raw_diff::{Change, GITLINK, Part, parts};
use belljar_git::ObjectId;
use belljar_git::config::variables;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// What commits do to gitlinks.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Gitlinks {
    /// By commit: the first path that becomes one.
    new: HashMap<ObjectId, Vec<u8>>,
    /// By commit: paths that were one and name another commit.
    changed: HashMap<ObjectId, Vec<(Vec<u8>, ObjectId)>>,
}

impl Gitlinks {
    /// From the raw records of `git diff-tree --stdin -z`.
    pub(super) fn read(raw: &[u8]) -> Gitlinks {
        let mut found = Gitlinks::default();
        let mut commit = None;
        for part in parts(raw) {
            let Change { old, new, path, .. } = match part {
                Part::Commit(id) => {
                    commit = ObjectId::parse(id).ok();
                    continue;
                }
                Part::Change(change) => change,
            };
            let Some(commit) = &commit else { continue };
            match (old.0 == GITLINK, new.0 == GITLINK) {
                (false, true) => {
                    found.new.entry(commit.clone()).or_insert_with(|| path.to_vec());
                }
                (true, true) => {
                    let id = ObjectId::parse(new.1).ok();
                    let changed = found.changed.entry(commit.clone()).or_default();
                    changed.extend(id.map(|id| (path.to_vec(), id)));
                }
                (_, false) => {}
            }
        }
        found
    }

    /// Why the host does not follow to `tip`, which brings these commits.
    pub(super) fn obstacle<'a>(
        &self,
        tip: &'a ObjectId,
        commits: impl IntoIterator<Item = &'a ObjectId>,
        git: &Git,
        host: &HostGit,
    ) -> Option<String> {
        let mut all = commits.into_iter().chain([tip]);
        if let Some(path) = all.find_map(|commit| self.new.get(commit)) {
            let path = shown(path);
            return Some(format!(
                "it makes `{path}` a submodule, and git here runs what the config of a repository in `{path}` says; look there before you merge it"
            ));
        }
        let missing = self.changed.get(tip)?.iter().find(|(path, id)| !has_commit(git, host, path, id));
        missing.map(|(path, id)| {
            format!("the submodule `{}` has no commit {} on the host", shown(path), &id.as_str()[..12])
        })
    }
}

/// Whether the host's repository of the submodule at this path has a commit. The folder itself is the agent's to write: it is
/// not asked.
fn has_commit(git: &Git, host: &HostGit, path: &[u8], id: &ObjectId) -> bool {
    let wanted = host.top.join(OsStr::from_bytes(path));
    let mut waiting = vec![(host.own.join("modules"), 0)];
    while let Some((directory, depth)) = waiting.pop() {
        if is_module_of(&directory, &wanted) {
            // Its work tree is the agent's to write, and perhaps gone.
            let call = git.on(&directory).env("GIT_WORK_TREE", &directory).config("safe.directory", "*");
            let asked = call.args(["cat-file", "-e", &format!("{id}^{{commit}}")]).run();
            return asked.is_ok_and(|finished| finished.code == Some(0));
        }
        // A submodule's name may have slashes.
        if depth < DEEPEST && !directory.join("HEAD").exists() {
            let entries = fs::read_dir(&directory).into_iter().flatten().flatten();
            waiting.extend(
                entries.map(|entry| entry.path()).filter(|path| path.is_dir()).map(|path| (path, depth + 1)),
            );
        }
    }
    false
}

fn is_module_of(directory: &Path, wanted: &Path) -> bool {
    let Ok(config) = fs::read(directory.join("config")) else { return false };
    let worktree = variables(&config).into_iter().rev().find(|variable| variable.name == "core.worktree");
    let Some(worktree) = worktree.and_then(|variable| variable.value) else { return false };
    normal(&directory.join(OsStr::from_bytes(&worktree))) == normal(wanted)
}

/// Without `..`, by its text: the folders on the way may be the agent's.
fn normal(path: &Path) -> PathBuf {
    let mut normal = PathBuf::new();
    for part in path.components() {
        match part {
            std::path::Component::ParentDir => drop(normal.pop()),
            part => normal.push(part),
        }
    }
    normal
}

fn shown(path: &[u8]) -> String {
    belljar_spec::egress::Printable::new(path).to_string()
}

const DEEPEST: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn raw_records_are_read() {
        let (one, two) = ("1".repeat(40), "2".repeat(40));
        let raw = format!(
            "{one}\0:000000 160000 {one} {two} A\0new\0:160000 160000 {one} {two} M\0old\0{two}\0:160000 100644 {one} {two} T\0x\0"
        );
        let found = Gitlinks::read(raw.as_bytes());
        let (one, two): (ObjectId, ObjectId) = (one.parse().unwrap(), two.parse().unwrap());
        assert_eq!(found.new, HashMap::from([(one.clone(), b"new".to_vec())]));
        assert_eq!(found.changed, HashMap::from([(one, vec![(b"old".to_vec(), two)])]));
    }
}
