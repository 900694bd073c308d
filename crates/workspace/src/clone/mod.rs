//! Clones: the host fetches a repository before there is a sandbox, and takes over, afterwards, what was committed. The
//! sandbox never holds what the remote asks for.
//!
//! ```text
//!   make ──> a sandbox works in the folder ──> collect ──> (asked for) push ──> (asked for) pull_request
//! ```
//!
//! What was not pushed is kept until [`remove`]. Called by the engine.

mod address;
mod collect;
mod error;
mod make;
mod place;
mod push;
mod request;
mod token;

pub use collect::{Collected, Commit, MOST_COMMITS, MOST_FILES, collect};
pub use error::CloneError;
pub use make::make;
pub use push::{Pushed, push};
pub use request::{Forge, PullRequest, pull_request};
pub use token::Token;

use crate::foreign::Foreign;
use crate::hold::{self, Hold};
use belljar_spec::SandboxId;
use belljar_spec::egress::Printable;
use belljar_spec::git::BranchName;
use place::Place;
use std::path::{Path, PathBuf};

/// A clone that is ready to be worked in.
#[derive(Debug)]
pub struct Cloned {
    /// The folder; empty if nothing could be cloned.
    pub folder: PathBuf,
    /// A bare repository of ours that the relay can serve; no sandbox sees it as files.
    pub repository: PathBuf,
    /// The branch that is worked on.
    pub branch: BranchName,
    /// Where it is from, without any secret.
    pub url: String,
    /// Why the folder is empty, without any secret.
    pub failed: Option<String>,
    /// As long as it is there, the clone is not removed.
    pub hold: Hold,
}

/// A clone that is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kept {
    pub id: String,
    /// Without any secret.
    pub url: String,
    pub branch: String,
    pub folder: PathBuf,
    pub failed: Option<String>,
    /// Is there a commit that was not pushed?
    pub unpushed: bool,
    pub in_use: bool,
}

/// Everything that is kept.
pub fn list(state: &Path) -> Result<Vec<Kept>, CloneError> {
    Place::sweep(state);
    let mut found = Vec::new();
    for place in Place::every(state) {
        let Some(label) = place.label() else { continue };
        let branch = label.branch()?;
        let tip = Foreign::open(&place.work().join(".git")).and_then(|foreign| foreign.branch(&branch));
        let tip = tip.ok().flatten().map(|tip| tip.to_string());
        let pushed = label.pushed.as_ref().map(|(commit, _)| commit);
        let known = tip.is_none() || tip == label.base || tip.as_ref() == pushed;
        found.push(Kept {
            folder: place.work(),
            branch: branch.to_string(),
            unpushed: !known,
            in_use: Hold::alone(&place.lock()).map_err(CloneError::io(&place.root))?.is_none(),
            id: place.id,
            url: label.url,
            failed: label.failed,
        });
    }
    Ok(found)
}

/// Removes a clone with what was not pushed. Refused while a sandbox uses it.
pub fn remove(state: &Path, id: SandboxId) -> Result<(), CloneError> {
    let place = Place::new(state, id);
    if !place.root.is_dir() {
        return Err(CloneError::Unknown(Printable::from(place.id.as_str())));
    }
    let alone = Hold::alone(&place.lock()).map_err(CloneError::io(&place.root))?;
    let Some(_alone) = alone else { return Err(CloneError::InUse(Printable::from(place.id.as_str()))) };
    // No link is followed when a tree is removed.
    hold::remove_whole(&place.root).map_err(CloneError::io(&place.root))
}
