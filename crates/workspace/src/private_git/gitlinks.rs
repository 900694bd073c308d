//! Submodules in commits that a sandbox made.
//!
//! A gitlink in the host's index makes the host's `git status` run git in the folder of that name, and with it the programs that
//! the folder's config names. So an import never turns a path into a submodule, and moves an existing one only to a commit that the
//! host's own repository of that submodule has.

use super::{HostGit, obstacle};
use crate::foreign::Foreign;
use crate::inert::Git;
use crate::protect::git_dir::git_dirs_below;
use crate::raw_diff::{Change, GITLINK, Part, parts};
use belljar_git::ObjectId;
use belljar_git::config::variables;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The changes of commits to gitlinks.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Gitlinks {
    /// By commit: the first path that becomes a gitlink.
    new: HashMap<ObjectId, Vec<u8>>,
    /// By commit: gitlinks that now name another commit.
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

/// Whether the host's repository of the submodule at this path has a commit. The folder itself is not read: the agent can write to
/// it.
fn has_commit(git: &Git, host: &HostGit, path: &[u8], id: &ObjectId) -> bool {
    let top = host.top.join(OsStr::from_bytes(path));
    let all = git_dirs_below(&host.own.join("modules"), MAX_LOOKED_AT).unwrap_or_default();
    let Some(directory) = all.into_iter().find(|directory| is_module_of(directory, &top)) else {
        return false;
    };
    let module = HostGit { top, own: directory.clone(), common: directory.clone() };
    if obstacle(&module).is_some() {
        return false;
    }
    // The agent can write to its work tree, or have removed it.
    let call = module.call(git).env("GIT_WORK_TREE", &directory);
    let found = call.args(["cat-file", "-e", &format!("{id}^{{commit}}")]).run();
    found.is_ok_and(|finished| finished.code == Some(0))
}

fn is_module_of(directory: &Path, top: &Path) -> bool {
    let config = Foreign::open(directory).and_then(|directory| directory.read("config", MAX_CONFIG_BYTES));
    let Ok(Some(config)) = config else { return false };
    let worktree = variables(&config).into_iter().rev().find(|variable| variable.name == "core.worktree");
    let Some(worktree) = worktree.and_then(|variable| variable.value) else { return false };
    normal(&directory.join(OsStr::from_bytes(&worktree))) == normal(top)
}

/// Removes `..` textually: the agent may have made the folders on the way.
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

const MAX_LOOKED_AT: usize = 20_000;
const MAX_CONFIG_BYTES: u64 = 1 << 20;

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
