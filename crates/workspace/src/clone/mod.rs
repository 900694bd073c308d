//! Clones: the host fetches a repository before the sandbox starts, and imports its commits afterwards. The sandbox never holds the
//! remote's credentials.
//!
//! ```text
//!   make ──> a sandbox works in the folder ──> collect ──> (on request) push ──> (on request) pull_request
//! ```
//!
//! Unpushed commits are kept until [`remove`]. Called by the engine.

mod address;
mod clone_dir;
mod collect;
mod error;
mod make;
mod push;
mod request;
mod token;

pub use address::local_path;
pub use collect::{Collected, Commit, MAX_COMMITS, MAX_FILES, collect};
pub use error::CloneError;
pub use make::make;
pub use push::{Pushed, push};
pub use request::{Forge, PullRequest, pull_request};

use crate::foreign::Foreign;
use belljar_spec::SandboxId;
use belljar_spec::egress::Printable;
use belljar_spec::git::BranchName;
use belljar_state::damage::Damaged;
use belljar_state::{Lock, remove_whole};
use clone_dir::CloneDir;
use std::path::{Path, PathBuf};

/// A clone that is ready for use.
#[derive(Debug)]
pub struct Cloned {
    /// The folder.
    pub folder: PathBuf,
    /// A bare repository of ours that the relay can serve; no sandbox sees it as files.
    pub repository: PathBuf,
    /// The branch that is worked on.
    pub branch: BranchName,
    /// The remote's URL, without any secret.
    pub url: String,
    /// While this lock is held, the clone is not removed.
    pub hold: Lock,
}

/// A stored clone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredClone {
    pub id: String,
    /// Without any secret.
    pub url: String,
    pub branch: String,
    pub folder: PathBuf,
    /// Why it holds only the sandbox's own files: written by a version that worked in a folder that could not be cloned.
    pub failed: Option<String>,
    /// Is there a commit that was not pushed?
    pub unpushed: bool,
    /// How many files were not committed when it was last collected; `None` if it never was.
    pub uncommitted: Option<u64>,
    pub in_use: bool,
}

/// All stored clones. Only reads: nothing is swept, and a damaged clone is reported with its path.
pub fn list(state: &Path) -> Result<Vec<Result<StoredClone, Damaged>>, CloneError> {
    CloneDir::every(state)?.into_iter().filter_map(|place| look(place).transpose()).collect()
}

fn look(place: CloneDir) -> Result<Option<Result<StoredClone, Damaged>>, CloneError> {
    let label = match place.label() {
        // It was removed meanwhile.
        Ok(None) => return Ok(None),
        Ok(Some(label)) => label,
        Err(CloneError::Damaged(damaged)) => return Ok(Some(Err(damaged))),
        Err(error) => return Err(error),
    };
    let branch = label.branch().map_err(|reason| place.damaged(reason))?;
    // An unreadable clone may hold work.
    let tip = Foreign::open(&place.work().join(".git")).and_then(|foreign| foreign.branch(&branch));
    let unpushed = match (&label.failed, tip) {
        (Some(_), _) => !place.is_untouched(),
        (None, Err(_)) => true,
        (None, Ok(None)) => label.base.is_some() && label.pushed.is_none(),
        (None, Ok(Some(tip))) => {
            let is_known = |commit: &String| *commit == tip.to_string();
            let pushed = label.pushed.as_ref().map(|(commit, _)| commit);
            !(label.base.as_ref().is_some_and(is_known) || pushed.is_some_and(is_known))
        }
    };
    Ok(Some(Ok(StoredClone {
        folder: place.work(),
        branch: branch.to_string(),
        unpushed,
        uncommitted: label.uncommitted,
        in_use: Lock::is_held(&place.lock()),
        id: place.id,
        url: label.url,
        failed: label.failed,
    })))
}

/// Removes a clone with its unpushed commits, even a damaged one. Refused while a sandbox uses it.
pub fn remove(state: &Path, id: SandboxId) -> Result<(), CloneError> {
    remove_place(&CloneDir::new(state, id))
}

/// The same, for an entry whose name is not one of ours: by its full name in the directory of clones.
pub fn remove_named(state: &Path, name: &str) -> Result<(), CloneError> {
    match CloneDir::every(state)?.iter().find(|place| place.id == name) {
        Some(place) => remove_place(place),
        None => Err(CloneError::Unknown(Printable::from(name))),
    }
}

fn remove_place(place: &CloneDir) -> Result<(), CloneError> {
    match place.root.symlink_metadata() {
        Ok(found) if found.is_dir() => {}
        // A stray file or link: there is nothing in it that a sandbox could use.
        Ok(_) => return std::fs::remove_file(&place.root).map_err(CloneError::io(&place.root)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Err(CloneError::Unknown(Printable::from(place.id.as_str())));
        }
        Err(error) => return Err(CloneError::io(&place.root)(error)),
    }
    let alone = Lock::try_now(&place.lock()).map_err(CloneError::io(&place.root))?;
    let Some(_alone) = alone else { return Err(CloneError::InUse(Printable::from(place.id.as_str()))) };
    // No link is followed when a tree is removed.
    remove_whole(&place.root).map_err(CloneError::io(&place.root))
}
