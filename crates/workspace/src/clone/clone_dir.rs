//! Where a clone lies, and its label.
//!
//! ```text
//! STATE/clones/ID/clone.json   where it is from, and its state
//!                 lock         held by sandboxes that use it
//!                 ours.git/    commits from the remote, and those imported from the sandbox; no sandbox sees it
//!                 work/        the folder that the sandbox works in
//!              .new-ID/        a clone that is being made: the same, until it has a label and its name
//!              .lock           held while one of these is begun or swept
//! ```

use super::CloneError;
use belljar_spec::SandboxId;
use belljar_spec::egress::Printable;
use belljar_spec::git::BranchName;
use belljar_state::damage::{self, Damaged, UNFINISHED};
use belljar_state::{Lock, Survives, create_private, remove_whole, sweep_removed, write_atomic};
use serde::{Deserialize, Serialize};
use std::fs::{self, DirBuilder};
use std::io::ErrorKind;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// The directory of one clone.
#[derive(Debug, Clone)]
pub(super) struct CloneDir {
    pub(super) root: PathBuf,
    pub(super) id: String,
}

/// The label of a clone: the content of `clone.json`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Label {
    pub(super) version: u32,
    /// Without any secret.
    pub(super) url: String,
    /// The branch that the sandbox commits on.
    branch: String,
    /// The remote's own choice of a branch, if it has one.
    pub(super) default: Option<String>,
    /// The commit where the sandbox started, if there was one.
    pub(super) base: Option<String>,
    /// Why it is empty: written by versions that let a sandbox work in a folder that could not be cloned.
    pub(super) failed: Option<String>,
    /// The commit that was last pushed, and the branch it was pushed to.
    pub(super) pushed: Option<(String, String)>,
    /// How many files were not committed when it was last collected.
    #[serde(default)]
    pub(super) uncommitted: Option<u64>,
}

impl Label {
    pub(super) fn new(url: &str, branch: &BranchName) -> Label {
        let (url, branch) = (url.to_string(), branch.to_string());
        Label {
            version: VERSION,
            url,
            branch,
            default: None,
            base: None,
            failed: None,
            pushed: None,
            uncommitted: None,
        }
    }

    pub(super) fn branch(&self) -> Result<BranchName, String> {
        self.branch.parse().map_err(|_| "its label names no branch".to_string())
    }
}

impl CloneDir {
    pub(super) fn new(state: &Path, id: SandboxId) -> CloneDir {
        CloneDir { root: state.join("clones").join(id.to_string()), id: id.to_string() }
    }

    /// The existing clone.
    pub(super) fn find(state: &Path, id: SandboxId) -> Result<(CloneDir, Label), CloneError> {
        let place = CloneDir::new(state, id);
        match place.label()? {
            Some(label) => Ok((place, label)),
            None => Err(CloneError::Unknown(Printable::from(place.id.as_str()))),
        }
    }

    /// All clones by name, including damaged ones, without unfinished ones.
    pub(super) fn every(state: &Path) -> Result<Vec<CloneDir>, CloneError> {
        let all = state.join("clones");
        let entries = match fs::read_dir(&all) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(CloneError::io(&all))?,
        };
        let mut places = Vec::new();
        for entry in entries {
            let entry = entry.map_err(CloneError::io(&all))?;
            let id = entry.file_name().to_string_lossy().into_owned();
            if !id.starts_with('.') {
                places.push(CloneDir { root: entry.path(), id });
            }
        }
        places.sort_by(|a, b| a.id.cmp(&b.id));
        Ok(places)
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

    /// Whether nothing is in its folder.
    pub(super) fn is_untouched(&self) -> bool {
        fs::read_dir(self.work()).is_ok_and(|mut all| all.next().is_none())
    }

    pub(super) fn scratch(&self) -> PathBuf {
        self.root.join("scratch")
    }

    /// Locks an existing clone, so that it is not removed.
    pub(super) fn hold(&self) -> Result<Lock, CloneError> {
        let hold = Lock::share(&self.lock()).map_err(CloneError::io(&self.root))?;
        match hold.is_at(&self.lock()) {
            true => Ok(hold),
            // It was removed meanwhile.
            false => Err(CloneError::Unknown(Printable::from(self.id.as_str()))),
        }
    }

    /// Begins a clone under a name that marks it as unfinished, in a directory that only our user can enter, and locks it. First
    /// sweeps the leftovers of killed processes: unfinished clones without a lock, and half-removed ones.
    pub(super) fn begin(&self) -> Result<(CloneDir, Lock), CloneError> {
        let all = self.root.parent().unwrap_or(&self.root);
        create_private(all).map_err(CloneError::io(all))?;
        // No sweep may happen between making the directory and locking it.
        let _only_us = Lock::wait(&all.join(".lock")).map_err(CloneError::io(all))?;
        CloneDir::sweep(all);
        let id = format!("{UNFINISHED}{}", self.id);
        let begun = CloneDir { root: all.join(&id), id };
        DirBuilder::new().mode(0o700).create(&begun.root).map_err(|error| match error.kind() {
            ErrorKind::AlreadyExists => CloneError::InUse(Printable::from(self.id.as_str())),
            _ => CloneError::io(&begun.root)(error),
        })?;
        let hold = Lock::share(&begun.lock()).map_err(CloneError::io(&begun.root))?;
        Ok((begun, hold))
    }

    /// Its label is written: from here on it is an ordinary clone. The lock is kept.
    pub(super) fn finish(&self, begun: &CloneDir) -> Result<(), CloneError> {
        fs::rename(&begun.root, &self.root).map_err(CloneError::io(&self.root))
    }

    /// Only clones whose name marks them as unfinished or half removed: one without a readable label may hold a user's work.
    fn sweep(all: &Path) {
        sweep_removed(all);
        let entries = fs::read_dir(all).into_iter().flatten().flatten();
        for entry in
            entries.filter(|entry| entry.file_name().as_encoded_bytes().starts_with(UNFINISHED.as_bytes()))
        {
            if let Ok(Some(_alone)) = Lock::try_now(&entry.path().join("lock")) {
                let _ = remove_whole(&entry.path());
            }
        }
    }

    /// Its label; `None` if there is no such clone.
    pub(super) fn label(&self) -> Result<Option<Label>, CloneError> {
        let label: Option<Label> = damage::read_label(&self.root.join("clone.json"), &[VERSION])
            .map_err(|reason| self.damaged(reason))?;
        // A label without a branch name is damaged too.
        match label.as_ref().map(Label::branch).transpose() {
            Ok(_) => Ok(label),
            Err(reason) => Err(self.damaged(reason)),
        }
    }

    pub(super) fn damaged(&self, reason: String) -> CloneError {
        CloneError::Damaged(Damaged::new(self.id.as_str(), &self.root, reason))
    }

    pub(super) fn write_label(&self, label: &Label) -> Result<(), CloneError> {
        let path = self.root.join("clone.json");
        let text = serde_json::to_vec(label).map_err(|error| CloneError::io(&path)(error.into()))?;
        write_atomic(&path, &text, Survives::PowerCut).map_err(CloneError::io(&path))
    }
}

const VERSION: u32 = 1;
