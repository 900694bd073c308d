//! Clones: the host fetches a repository before there is a sandbox, and takes over, afterwards, what was committed. The
//! sandbox never holds what the remote asks for.
//!
//! ```text
//!   make ──> a sandbox works in the folder ──> collect ──> (asked for) push ──> (asked for) pull_request
//! ```
//!
//! What was not pushed is kept until [`remove`]. Called by the engine.

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

/// A clone that is ready to be worked in.
#[derive(Debug)]
pub struct Cloned {
    /// The folder.
    pub folder: PathBuf,
    /// A bare repository of ours that the relay can serve; no sandbox sees it as files.
    pub repository: PathBuf,
    /// The branch that is worked on.
    pub branch: BranchName,
    /// Where it is from, without any secret.
    pub url: String,
    /// As long as it is there, the clone is not removed.
    pub hold: Lock,
}

/// A clone that is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kept {
    pub id: String,
    /// Without any secret.
    pub url: String,
    pub branch: String,
    pub folder: PathBuf,
    /// Why there is nothing in it but what was made there: of a version that worked in a folder that could not be cloned.
    pub failed: Option<String>,
    /// Is there a commit that was not pushed?
    pub unpushed: bool,
    /// How many files were not committed when it was last collected; nothing if it never was.
    pub uncommitted: Option<u64>,
    pub in_use: bool,
}

/// Everything that is kept. Only looks: nothing is swept, and what is not understood is told with its path.
pub fn list(state: &Path) -> Result<Vec<Result<Kept, Damaged>>, CloneError> {
    CloneDir::every(state)?.into_iter().filter_map(|place| look(place).transpose()).collect()
}

fn look(place: CloneDir) -> Result<Option<Result<Kept, Damaged>>, CloneError> {
    let label = match place.label() {
        // It was removed meanwhile.
        Ok(None) => return Ok(None),
        Ok(Some(label)) => label,
        Err(CloneError::Damaged(damaged)) => return Ok(Some(Err(damaged))),
        Err(error) => return Err(error),
    };
    let branch = label.branch().map_err(|reason| place.damaged(reason))?;
    // What cannot be read may hold work.
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
    Ok(Some(Ok(Kept {
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

/// Removes a clone with what was not pushed, also one that is damaged. Refused while a sandbox uses it.
pub fn remove(state: &Path, id: SandboxId) -> Result<(), CloneError> {
    remove_place(&CloneDir::new(state, id))
}

/// The same, of what has no name that we would have given it: by its whole name in the directory of clones.
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
