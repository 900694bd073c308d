//! A folder of this machine as its sandboxes know it: a key for each branch, and volumes that all of them share.

use super::volume::Volume;
use belljar_fleet::name_of;
use belljar_spec::SandboxError;
use belljar_spec::git::BranchName;
use std::path::{Path, PathBuf};

/// A folder that is worked on, as it is or on a branch of its repository.
#[derive(Debug, Clone)]
pub(super) struct Repository {
    /// Without links on the way.
    pub(super) folder: PathBuf,
    pub(super) branch: Option<BranchName>,
    /// Where in it whoever asks stands, if not at its top.
    pub(super) below: Option<PathBuf>,
    /// The folder as text: a key is text.
    text: String,
}

impl Repository {
    /// Of this folder.
    pub(super) fn of(folder: &Path, branch: Option<BranchName>) -> Result<Repository, SandboxError> {
        let no = |why: String, hint: &str| SandboxError::policy("workspace_missing", why).hint(hint);
        let shown = folder.display();
        let found = folder
            .canonicalize()
            .map_err(|error| no(format!("cannot enter `{shown}`: {error}"), "name a folder that exists"))?;
        if !found.is_dir() {
            return Err(no(format!("`{shown}` is no folder"), "name a folder"));
        }
        let text = found.to_str().map(String::from).ok_or_else(|| {
            no(format!("the name of `{shown}` is no text"), "give the folder a name of plain letters")
        })?;
        Ok(Repository { folder: found, branch, below: None, text })
    }

    /// Of the current folder, or of the nearest one above it that is ready for sandboxes.
    pub(super) fn here(branch: Option<BranchName>) -> Result<Repository, SandboxError> {
        let here = Repository::of(&crate::args::workspace(None)?, branch.clone())?;
        let nearest = here.folder.ancestors().find_map(|folder| {
            let above = Repository::of(folder, branch.clone()).ok()?;
            above.is_ready().then_some(above)
        });
        Ok(match nearest {
            Some(mut found) => {
                let below = here.folder.strip_prefix(&found.folder).ok();
                found.below = below.filter(|below| !below.as_os_str().is_empty()).map(Path::to_path_buf);
                found
            }
            None => here,
        })
    }

    /// Same key, same sandbox.
    pub(super) fn key(&self) -> String {
        match &self.branch {
            Some(branch) => format!("repo:{}@{branch}", self.text),
            None => format!("repo:{}", self.text),
        }
    }

    /// The folder, as the daemon is told.
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// Whether somebody made it ready, or started a sandbox of it.
    pub(super) fn is_ready(&self) -> bool {
        self.history().and_then(|volume| volume.exists()).unwrap_or(false)
    }

    /// What was typed.
    pub(super) fn history(&self) -> Result<Volume, SandboxError> {
        self.volume("history", HISTORY)
    }

    /// What agents and shells are told.
    pub(super) fn config(&self) -> Result<Volume, SandboxError> {
        self.volume("config", CONFIG)
    }

    fn volume(&self, kind: &str, inside: &'static str) -> Result<Volume, SandboxError> {
        // Of all branches together.
        let name = name_of(&format!("repo:{}", self.text));
        Volume::named(format!("{kind}-{}", name.trim_start_matches("bj-")), inside)
    }
}

/// Where they are inside.
pub(super) const HISTORY: &str = "/volumes/history";
pub(super) const CONFIG: &str = "/volumes/config";
