//! Shelves and clones: what is kept beside layers.

use belljar_engine::{clone, shelf};
use belljar_spec::git::BranchName;
use belljar_spec::{SandboxError, SandboxId};
use std::path::PathBuf;

/// A worktree of a shelf, or a clone.
pub(super) enum Beside {
    Shelf(shelf::Shelved),
    Clone(clone::Kept),
}

impl Beside {
    /// All of them. Without git there are none that could be told.
    pub(super) fn all() -> Result<Vec<Beside>, SandboxError> {
        let state = belljar_audit::state_directory()?;
        let shelves = if state.join("shelf").exists() { shelf::list(&state)? } else { Vec::new() };
        let clones = if state.join("clones").exists() { clone::list(&state)? } else { Vec::new() };
        Ok(shelves.into_iter().map(Beside::Shelf).chain(clones.into_iter().map(Beside::Clone)).collect())
    }

    /// The one that is named: a clone by its id or the beginning of it, a worktree as `SHELF:BRANCH`.
    pub(super) fn find(word: &str) -> Result<Option<Beside>, SandboxError> {
        let mut found: Vec<Beside> = Beside::all()?
            .into_iter()
            .filter(|one| match one {
                Beside::Shelf(_) => one.id() == word,
                Beside::Clone(_) => word.len() >= SHORTEST && one.id().starts_with(word),
            })
            .collect();
        match (found.pop(), found.len()) {
            (one, 0) => Ok(one),
            (_, more) => {
                let message = format!("{} clones begin with `{}`", more + 1, word.escape_debug());
                Err(SandboxError::policy("clone_ambiguous", message).hint("`belljar layers` shows them"))
            }
        }
    }

    pub(super) fn kind(&self) -> &'static str {
        match self {
            Beside::Shelf(_) => "shelf",
            Beside::Clone(_) => "clone",
        }
    }

    pub(super) fn id(&self) -> String {
        match self {
            Beside::Shelf(one) => format!("{}:{}", one.shelf, one.branch),
            Beside::Clone(one) => one.id.clone(),
        }
    }

    pub(super) fn branch(&self) -> &str {
        match self {
            Beside::Shelf(one) => &one.branch,
            Beside::Clone(one) => &one.branch,
        }
    }

    /// Whose work it is: the repository on this machine, or the remote.
    pub(super) fn of(&self) -> PathBuf {
        match self {
            // A git directory in a folder is that folder's.
            Beside::Shelf(one) if one.host.ends_with(".git") => {
                one.host.parent().unwrap_or(&one.host).to_path_buf()
            }
            Beside::Shelf(one) => one.host.clone(),
            Beside::Clone(one) => PathBuf::from(&one.url),
        }
    }

    pub(super) fn is_in_use(&self) -> bool {
        match self {
            Beside::Shelf(one) => one.in_use,
            Beside::Clone(one) => one.in_use,
        }
    }

    /// Is there a commit in it that is nowhere else?
    pub(super) fn has_unpushed(&self) -> bool {
        match self {
            Beside::Shelf(one) => one.commit.is_some() && !one.on_host,
            Beside::Clone(one) => one.unpushed,
        }
    }

    pub(super) fn remove(&self) -> Result<(), SandboxError> {
        let state = belljar_audit::state_directory()?;
        match self {
            Beside::Shelf(one) => {
                let branch: Option<BranchName> = one.branch.parse().ok();
                Ok(shelf::remove(&state, &one.shelf, branch.as_ref())?)
            }
            Beside::Clone(one) => match SandboxId::parse(&one.id) {
                Some(id) => Ok(clone::remove(&state, id)?),
                None => Ok(()),
            },
        }
    }
}

/// Fewer digits name nothing.
const SHORTEST: usize = 4;
