//! Managed clones and clones: what is kept beside layers.

use belljar_spec::git::BranchName;
use belljar_spec::{ErrorCode, SandboxError};
use belljar_state::damage::Damaged;
use belljar_workspace::{clone, managed};
use std::path::{Path, PathBuf};

/// A worktree of a managed clone, or a clone.
pub(super) enum Beside {
    ManagedClone(managed::ManagedWorktree),
    Clone(clone::StoredClone),
    /// A managed clone with all its branches, where only it is named.
    WholeManagedClone(managed::ManagedWorktree),
    /// One of these that is not understood.
    DamagedManagedClone(Damaged),
    DamagedClone(Damaged),
}

impl Beside {
    /// All of them. Without git there are none that could be told.
    pub(super) fn all() -> Result<Vec<Beside>, SandboxError> {
        Ok([Beside::managed_clones()?, Beside::clones()?].into_iter().flatten().collect())
    }

    pub(super) fn managed_clones() -> Result<Vec<Beside>, SandboxError> {
        let state = belljar_state::state_directory()?;
        let managed_clones = if state.join("shelf").exists() { managed::list(&state)? } else { Vec::new() };
        let listed = |clone_name: Result<_, _>| {
            clone_name.map_or_else(Beside::DamagedManagedClone, Beside::ManagedClone)
        };
        Ok(managed_clones.into_iter().map(listed).collect())
    }

    pub(super) fn clones() -> Result<Vec<Beside>, SandboxError> {
        let state = belljar_state::state_directory()?;
        let clones = if state.join("clones").exists() { clone::list(&state)? } else { Vec::new() };
        let listed = |clone: Result<_, _>| clone.map_or_else(Beside::DamagedClone, Beside::Clone);
        Ok(clones.into_iter().map(listed).collect())
    }

    /// The one that is named: a clone by its id or the beginning of it, a worktree as `MANAGED_CLONE:BRANCH`.
    pub(super) fn find(word: &str) -> Result<Option<Beside>, SandboxError> {
        let all = Beside::all()?;
        if let Some(whole) = Beside::whole_managed_clone(word, &all) {
            return Ok(Some(whole));
        }
        let mut found: Vec<Beside> = all
            .into_iter()
            .filter(|one| match one {
                Beside::ManagedClone(_) | Beside::WholeManagedClone(_) => one.id() == word,
                // Only by its whole name.
                Beside::DamagedManagedClone(_) | Beside::DamagedClone(_) => one.id() == word,
                Beside::Clone(_) => word.len() >= SHORTEST && one.id().starts_with(word),
            })
            .collect();
        match (found.pop(), found.len()) {
            (one, 0) => Ok(one),
            (_, more) => {
                let message = format!("{} clones begin with `{}`", more + 1, word.escape_debug());
                Err(ErrorCode::RequestValue.error(message).hint("`belljar changes list` shows them"))
            }
        }
    }

    /// All of a managed clone: what one of its branches has and the host has not, all of it has.
    fn whole_managed_clone(word: &str, all: &[Beside]) -> Option<Beside> {
        let of_it = all.iter().filter_map(|one| match one {
            Beside::ManagedClone(one) if one.clone_name == word => Some(one.clone()),
            _ => None,
        });
        let merge =
            |one: managed::ManagedWorktree, other: managed::ManagedWorktree| managed::ManagedWorktree {
                commit: one.commit.or(other.commit),
                on_host: one.on_host && other.on_host,
                in_use: one.in_use || other.in_use,
                uncommitted: one.uncommitted.max(other.uncommitted),
                ..one
            };
        of_it.reduce(merge).map(Beside::WholeManagedClone)
    }

    pub(super) fn kind(&self) -> &'static str {
        match self {
            Beside::ManagedClone(_) | Beside::WholeManagedClone(_) | Beside::DamagedManagedClone(_) => {
                "managed"
            }
            Beside::Clone(_) | Beside::DamagedClone(_) => "clone",
        }
    }

    pub(super) fn id(&self) -> String {
        match self {
            Beside::ManagedClone(one) => format!("{}:{}", one.clone_name, one.branch),
            Beside::WholeManagedClone(one) => one.clone_name.clone(),
            Beside::Clone(one) => one.id.clone(),
            Beside::DamagedManagedClone(one) | Beside::DamagedClone(one) => one.id.clone(),
        }
    }

    pub(super) fn branch(&self) -> Option<&str> {
        match self {
            Beside::ManagedClone(one) => Some(&one.branch),
            Beside::Clone(one) => Some(&one.branch),
            Beside::WholeManagedClone(_) | Beside::DamagedManagedClone(_) | Beside::DamagedClone(_) => None,
        }
    }

    /// Where its files are.
    pub(super) fn files(&self) -> &Path {
        match self {
            Beside::ManagedClone(one) | Beside::WholeManagedClone(one) => &one.folder,
            Beside::Clone(one) => &one.folder,
            Beside::DamagedManagedClone(one) | Beside::DamagedClone(one) => &one.directory,
        }
    }

    pub(super) fn damage(&self) -> Option<&Damaged> {
        match self {
            Beside::DamagedManagedClone(one) | Beside::DamagedClone(one) => Some(one),
            Beside::ManagedClone(_) | Beside::WholeManagedClone(_) | Beside::Clone(_) => None,
        }
    }

    pub(super) fn is_damaged(&self) -> bool {
        self.damage().is_some()
    }

    /// Whose work it is: the repository on this machine, or the remote.
    pub(super) fn of(&self) -> PathBuf {
        match self {
            // A git directory in a folder is that folder's.
            Beside::ManagedClone(one) | Beside::WholeManagedClone(one) if one.host.ends_with(".git") => {
                one.host.parent().unwrap_or(&one.host).to_path_buf()
            }
            Beside::ManagedClone(one) | Beside::WholeManagedClone(one) => one.host.clone(),
            Beside::Clone(one) => PathBuf::from(&one.url),
            // Whose it is, is what cannot be read.
            Beside::DamagedManagedClone(one) | Beside::DamagedClone(one) => one.directory.clone(),
        }
    }

    pub(super) fn is_in_use(&self) -> bool {
        match self {
            Beside::ManagedClone(one) | Beside::WholeManagedClone(one) => one.in_use,
            Beside::Clone(one) => one.in_use,
            Beside::DamagedManagedClone(_) | Beside::DamagedClone(_) => false,
        }
    }

    /// Is there a commit in it that is nowhere else?
    pub(super) fn has_unpushed(&self) -> bool {
        match self {
            Beside::ManagedClone(one) | Beside::WholeManagedClone(one) => {
                one.commit.is_some() && !one.on_host
            }
            Beside::Clone(one) => one.unpushed,
            Beside::DamagedManagedClone(_) | Beside::DamagedClone(_) => true,
        }
    }

    /// How many files were not committed when the last run ended, where that is known.
    pub(super) fn uncommitted(&self) -> Option<u64> {
        match self {
            Beside::ManagedClone(one) => one.uncommitted,
            Beside::Clone(one) => one.uncommitted,
            Beside::WholeManagedClone(one) => one.uncommitted,
            Beside::DamagedManagedClone(_) | Beside::DamagedClone(_) => None,
        }
    }

    pub(super) fn remove(&self) -> Result<(), SandboxError> {
        let state = belljar_state::state_directory()?;
        match self {
            Beside::ManagedClone(one) => {
                let branch: Option<BranchName> = one.branch.parse().ok();
                Ok(managed::remove(&state, &one.clone_name, branch.as_ref())?)
            }
            Beside::WholeManagedClone(one) => Ok(managed::remove(&state, &one.clone_name, None)?),
            Beside::Clone(one) => Ok(clone::remove_named(&state, &one.id)?),
            Beside::DamagedClone(one) => Ok(clone::remove_named(&state, &one.id)?),
            Beside::DamagedManagedClone(one) => Ok(managed::remove_damaged(&state, &one.id)?),
        }
    }
}

/// Fewer digits name nothing.
const SHORTEST: usize = 4;
