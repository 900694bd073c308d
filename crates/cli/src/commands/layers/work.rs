//! The change set that `diff` and `apply` are about: a layer, or the uncommitted work on a branch of a managed clone, of which a layer is
//! made for as long as the command runs.

use super::beside::Beside;
use super::{here, pick, quoted};
use belljar_engine::{discard_layer, layer_of_worktree};
use belljar_overlay::{Layer, Layers, RelPath, Selection};
use belljar_spec::{ErrorCode, SandboxError};
use belljar_workspace::managed::{HostWorktree, ManagedWorktree};
use std::path::{Path, PathBuf};

/// A change set, and the part of it that the user named.
pub(super) struct Work {
    pub(super) layer: Layer,
    pub(super) selection: Selection,
    /// Where it comes from, if it is the work on a branch.
    pub(super) branch: Option<Branch>,
}

/// A branch with uncommitted work.
pub(super) struct Branch {
    pub(super) worktree: ManagedWorktree,
    /// Files that the folder has in another state than the branch's last commit.
    pub(super) conflicts: Vec<RelPath>,
    pub(super) left_out: Vec<RelPath>,
    state: PathBuf,
    layer: Layer,
}

impl Work {
    /// The one that is named, `MANAGED_CLONE:BRANCH` or a layer, else the newest layer of the current folder.
    pub(super) fn pick(layers: &Layers, words: &[PathBuf]) -> Result<Work, SandboxError> {
        if let Some((first, rest)) = words.split_first()
            && let Some(worktree) =
                first.to_str().filter(|word| word.contains(':')).map(named).transpose()?.flatten()
        {
            return Work::of_branch(worktree, rest);
        }
        let (layer, selection) = pick(layers, words)?;
        Ok(Work { layer, selection, branch: None })
    }

    fn of_branch(worktree: ManagedWorktree, words: &[PathBuf]) -> Result<Work, SandboxError> {
        let state = belljar_state::state_directory()?;
        let folder = folder_of(&worktree)?;
        let made = layer_of_worktree(&state, &worktree, &folder)?;
        let branch = Branch {
            worktree,
            conflicts: made.conflicts,
            left_out: made.left_out,
            state,
            layer: made.layer.clone(),
        };
        let here = here()?;
        let mut selected = Vec::new();
        for word in words {
            match super::below(&made.layer, &here, word)? {
                Some(path) => selected.push(path),
                None => {
                    selected.clear();
                    break;
                }
            }
        }
        let selection = if selected.is_empty() { Selection::All } else { Selection::Paths(selected) };
        Ok(Work { layer: made.layer, selection, branch: Some(branch) })
    }
}

impl Branch {
    /// Says how the folder and the branch differ beside the work.
    pub(super) fn say_notes(&self) {
        for path in self.conflicts.iter().take(super::MANY) {
            eprintln!("belljar: {path} is not the same here as in the last commit of branch {}", self.name());
        }
        for path in self.left_out.iter().take(super::MANY) {
            eprintln!("belljar: left out: {path} (not a file of at most 64 MiB, or a repository)");
        }
    }

    /// Refuses to apply work to files that differ.
    pub(super) fn must_fit(&self, selection: &Selection) -> Result<(), SandboxError> {
        let covered: Vec<String> = self
            .conflicts
            .iter()
            .filter(|path| selection.covers(path))
            .take(super::MANY)
            .map(RelPath::to_string)
            .collect();
        if covered.is_empty() {
            return Ok(());
        }
        let message = format!(
            "nothing was applied: in your folder {} {} not as in the last commit of branch {}",
            covered.join(", "),
            if covered.len() == 1 { "is" } else { "are" },
            self.name()
        );
        Err(ErrorCode::ChangedMeanwhile.error(message).hint(
            "check out that branch, or commit the work inside with git and merge the branch; single files can be named behind the branch",
        ))
    }

    pub(super) fn name(&self) -> String {
        format!("{}:{}", self.worktree.clone_name, self.worktree.branch)
    }
}

impl Drop for Branch {
    fn drop(&mut self) {
        // All of it is still in the worktree. After an apply it is gone already.
        let _ = discard_layer(&self.state, &self.layer);
    }
}

/// The worktree of a managed clone that is named like this.
fn named(word: &str) -> Result<Option<ManagedWorktree>, SandboxError> {
    match Beside::find(word)? {
        Some(Beside::ManagedClone(worktree)) => Ok(Some(worktree)),
        Some(other) => {
            let message = format!("`{}` is not a branch that can be read", other.id());
            Err(ErrorCode::WorkNotFound.error(message).hint("`belljar changes list` shows what there is"))
        }
        None => Ok(None),
    }
}

/// The folder that gets the work: the worktree that the user stands in, if it is one of the repository, else the repository's own.
fn folder_of(worktree: &ManagedWorktree) -> Result<PathBuf, SandboxError> {
    if let Ok(found) = here().and_then(|here| Ok(HostWorktree::find(&here)?))
        && found.common == worktree.host
    {
        return Ok(found.top);
    }
    match worktree.host.parent().filter(|_| worktree.host.ends_with(".git")) {
        Some(folder) => Ok(folder.to_path_buf()),
        None => Err(no_folder(&worktree.host)),
    }
}

fn no_folder(host: &Path) -> SandboxError {
    ErrorCode::WorkspaceMissing
        .error(format!("`{}` has no folder of files", quoted(host)))
        .hint("change to a worktree of the repository first")
}
