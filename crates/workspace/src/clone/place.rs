//! Where a clone is, and what is written down of it.
//!
//! ```text
//! STATE/clones/ID/clone.json   where it is from, and what became of it
//!                 lock         held by sandboxes that use it
//!                 ours.git/    what came from the remote, and what was taken over from the sandbox; no sandbox sees it
//!                 work/        the folder that the sandbox works in
//! ```

use super::CloneError;
use crate::hold::{self, Hold};
use belljar_spec::SandboxId;
use belljar_spec::egress::Printable;
use belljar_spec::git::BranchName;
use serde::{Deserialize, Serialize};
use std::fs::{self, DirBuilder};
use std::io::ErrorKind;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// The directory of one clone.
#[derive(Debug, Clone)]
pub(super) struct Place {
    pub(super) root: PathBuf,
    pub(super) id: String,
}

/// What is written down of a clone.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Label {
    pub(super) version: u32,
    /// Without any secret.
    pub(super) url: String,
    /// The branch that the sandbox commits on.
    branch: String,
    /// The remote's own choice of a branch, if it has one.
    pub(super) default: Option<String>,
    /// Where the sandbox started, if there was a commit.
    pub(super) base: Option<String>,
    /// Why there is nothing in it.
    pub(super) failed: Option<String>,
    /// The commit that was last pushed, and the branch it was pushed to.
    pub(super) pushed: Option<(String, String)>,
}

impl Label {
    pub(super) fn new(url: &str, branch: &BranchName) -> Label {
        let (url, branch) = (url.to_string(), branch.to_string());
        Label { version: 1, url, branch, default: None, base: None, failed: None, pushed: None }
    }

    pub(super) fn branch(&self) -> Result<BranchName, CloneError> {
        self.branch.parse().map_err(|_| CloneError::Unknown(Printable::from(self.branch.as_str())))
    }
}

impl Place {
    pub(super) fn new(state: &Path, id: SandboxId) -> Place {
        Place { root: state.join("clones").join(id.to_string()), id: id.to_string() }
    }

    /// The one that is there.
    pub(super) fn find(state: &Path, id: SandboxId) -> Result<(Place, Label), CloneError> {
        let place = Place::new(state, id);
        let label = place.label().ok_or_else(|| CloneError::Unknown(Printable::from(place.id.as_str())))?;
        Ok((place, label))
    }

    pub(super) fn every(state: &Path) -> Vec<Place> {
        let entries = fs::read_dir(state.join("clones")).into_iter().flatten().flatten();
        let place = |entry: fs::DirEntry| {
            Some(Place { root: entry.path(), id: entry.file_name().into_string().ok()? })
        };
        let mut places: Vec<Place> = entries.filter_map(place).collect();
        places.retain(|place| !place.id.starts_with('.'));
        places.sort_by(|a, b| a.id.cmp(&b.id));
        places
    }

    pub(super) fn ours(&self) -> PathBuf {
        self.root.join("ours.git")
    }

    pub(super) fn work(&self) -> PathBuf {
        self.root.join("work")
    }

    pub(super) fn lock(&self) -> PathBuf {
        self.root.join("lock")
    }

    pub(super) fn scratch(&self) -> PathBuf {
        self.root.join("scratch")
    }

    /// Makes its directory, which only we can enter, and holds it.
    pub(super) fn make(&self) -> Result<Hold, CloneError> {
        loop {
            let made = DirBuilder::new().recursive(true).mode(0o700).create(&self.root);
            made.map_err(CloneError::io(&self.root))?;
            match Hold::together(&self.lock()) {
                // Somebody may have taken it for what a kill left, and removed it before we held it.
                Ok(hold) if hold.is_at(&self.lock()) => return Ok(hold),
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => return Err(CloneError::io(&self.root)(error)),
            }
        }
    }

    /// Removes what kills left: clones that nobody holds and of which nothing is written down, and those half removed.
    pub(super) fn sweep(state: &Path) {
        hold::sweep_gone(&state.join("clones"));
        for place in Place::every(state).iter().filter(|place| place.label().is_none()) {
            if let Ok(Some(_alone)) = Hold::alone(&place.lock()) {
                let _ = hold::remove_whole(&place.root);
            }
        }
    }

    pub(super) fn label(&self) -> Option<Label> {
        serde_json::from_slice(&fs::read(self.root.join("clone.json")).ok()?).ok()
    }

    pub(super) fn write_label(&self, label: &Label) -> Result<(), CloneError> {
        let path = self.root.join("clone.json");
        let text = serde_json::to_vec(label).map_err(|error| CloneError::io(&path)(error.into()))?;
        hold::write_whole(&path, &text).map_err(CloneError::io(&path))
    }
}
