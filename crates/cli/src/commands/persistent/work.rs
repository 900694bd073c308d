//! What a sandbox changed beside its folder: what goes with it when it is removed, and what stays.

use belljar_api::SandboxInfo;
use belljar_engine::{commits_of_layer, persistent_work_id};
use belljar_overlay::Layers;
use belljar_spec::{ErrorCode, SandboxError};
use belljar_state::damage::Damaged;
use belljar_workspace::{clone, managed};
use std::path::Path;

/// The work of a sandbox that is not where it belongs yet.
#[derive(Default)]
pub(super) struct Work {
    /// What would be lost.
    pub(super) lost: Option<Lost>,
    /// Commits on a branch's worktree, which outlives the sandbox, that were never pushed.
    pub(super) stays: bool,
}

/// Work that goes with its sandbox.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Lost {
    /// Files of a layer; not known how many where that cannot be told.
    Changes { layer: String, files: Option<usize> },
    /// Commits of a clone.
    Commits { clone: String },
}

impl Work {
    pub(super) fn of(info: &SandboxInfo) -> Result<Work, SandboxError> {
        let state = belljar_state::state_directory()?;
        Ok(Work { lost: lost(&state, &info.name)?, stays: stays(&state, info)? })
    }
}

impl Lost {
    pub(super) fn words(&self) -> String {
        match self {
            Lost::Changes { files: Some(0), .. } => "commits that no branch of its folder has".into(),
            Lost::Changes { files: Some(1), .. } => "1 change that is not in its folder".into(),
            Lost::Changes { files: Some(files), .. } => format!("{files} changes that are not in its folder"),
            Lost::Changes { files: None, .. } => {
                "changes that are not in its folder, and that cannot be counted".into()
            }
            Lost::Commits { .. } => "commits that were never pushed".into(),
        }
    }

    /// Refuses to throw it away unasked.
    pub(super) fn refusal(&self, name: &str) -> SandboxError {
        let hint = match self {
            Lost::Changes { layer, files } => {
                let them = if *files == Some(1) { "it" } else { "them" };
                format!(
                    "`belljar diff {layer}` shows {them}, `belljar apply {layer}` applies {them} once the sandbox is \
                     stopped, `belljar rm --force` discards {them}"
                )
            }
            Lost::Commits { clone } => {
                format!("push them from inside (its clone is {clone}), or `belljar rm --force` discards them")
            }
        };
        ErrorCode::WorkUnsaved.error(format!("{name} has {}", self.words())).hint(hint)
    }
}

fn lost(state: &Path, name: &str) -> Result<Option<Lost>, SandboxError> {
    let id = persistent_work_id(name).to_string();
    if let Some(layer) = Layers::at(state).beginning(&id)?.into_iter().next() {
        // Where the folder is gone, it cannot be told what is new.
        let files = layer.summary().ok().map(|summary| summary.files());
        let has_commits = !commits_of_layer(&layer).is_empty();
        return Ok((files != Some(0) || has_commits).then_some(Lost::Changes { layer: id, files }));
    }
    if !state.join("clones").join(&id).exists() {
        return Ok(None);
    }
    // What is not understood may hold work.
    let holds_work = |clone: &Result<clone::StoredClone, Damaged>| match clone {
        Ok(clone) => clone.id == id && clone.unpushed,
        Err(damaged) => damaged.id == id,
    };
    let unpushed = clone::list(state)?.iter().any(holds_work);
    Ok(unpushed.then_some(Lost::Commits { clone: id }))
}

/// Of a folder's branch, which its key names.
fn stays(state: &Path, info: &SandboxInfo) -> Result<bool, SandboxError> {
    let Some(folder) = &info.folder else { return Ok(false) };
    let branch = info.key.strip_prefix("repo:").and_then(|key| key.strip_prefix(folder.as_str()));
    let Some(branch) = branch.and_then(|rest| rest.strip_prefix('@')) else { return Ok(false) };
    if !state.join("shelf").exists() {
        return Ok(false);
    }
    let ours = |one: &managed::ManagedWorktree| {
        one.branch == branch && Path::new(folder).starts_with(host_of(&one.host))
    };
    let holds_work = |one: &managed::ManagedWorktree| {
        (one.commit.is_some() && !one.on_host) || one.uncommitted.is_some_and(|files| files > 0)
    };
    Ok(managed::list(state)?.iter().flatten().any(|one| ours(one) && holds_work(one)))
}

/// A git directory in a folder is that folder's.
fn host_of(git: &Path) -> &Path {
    if git.ends_with(".git") { git.parent().unwrap_or(git) } else { git }
}
