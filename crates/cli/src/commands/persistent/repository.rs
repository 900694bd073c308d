//! A folder of this machine as its sandboxes know it: a key for each branch, and volumes that all of them share.

use super::volume::{self, Volume};
use belljar_config::{self as config, EgressFlags};
use belljar_engine::describe;
use belljar_fleet::Key;
use belljar_fleet::request::of_folder;
use belljar_spec::git::BranchName;
use belljar_spec::{BackendChoice, BackendName, ErrorCode, SandboxError, SandboxSpec, VolumeName};
use std::path::{Path, PathBuf};

/// A folder that is worked on, as it is or on a branch of its repository.
#[derive(Debug, Clone)]
pub(super) struct Repository {
    /// Without links on the way.
    pub(super) folder: PathBuf,
    pub(super) branch: Option<BranchName>,
    /// Where in it the caller's directory is, if not at its top.
    pub(super) below: Option<PathBuf>,
    /// The folder as text: a key is text.
    text: String,
}

impl Repository {
    /// Of this folder.
    pub(super) fn of(folder: &Path, branch: Option<BranchName>) -> Result<Repository, SandboxError> {
        let no = |why: String, hint: &str| ErrorCode::WorkspaceMissing.error(why).hint(hint);
        let shown = folder.display();
        let found = folder
            .canonicalize()
            .map_err(|error| no(format!("cannot enter `{shown}`: {error}"), "name a folder that exists"))?;
        if !found.is_dir() {
            return Err(no(format!("`{shown}` is no folder"), "name a folder"));
        }
        let text = found.to_str().map(String::from).ok_or_else(|| {
            no(format!("the name of `{shown}` is not valid UTF-8"), "give the folder a name of plain letters")
        })?;
        Ok(Repository { folder: found, branch, below: None, text })
    }

    /// Of the current folder, or of the nearest one above it that is ready for sandboxes, within its repository.
    pub(super) fn here(branch: Option<BranchName>) -> Result<Repository, SandboxError> {
        let here = Repository::of(&crate::args::workspace(None)?, branch.clone())?;
        let top = here.folder.ancestors().position(|folder| folder.join(".git").exists());
        let within = here.folder.ancestors().take(top.map_or(usize::MAX, |top| top + 1));
        let nearest = within
            .filter_map(|folder| Repository::of(folder, branch.clone()).ok())
            .find(Repository::is_ready);
        Ok(match nearest {
            Some(mut found) => {
                let below = here.folder.strip_prefix(&found.folder).ok();
                found.below = below.filter(|below| !below.as_os_str().is_empty()).map(Path::to_path_buf);
                found
            }
            None => here,
        })
    }

    /// Refuses a folder that no sandbox can work on, before anything is made for it.
    pub(super) fn judge(&self) -> Result<(), SandboxError> {
        Key::given(self.key()).map_err(|_| {
            let message = format!("the path {:?} is too long, or no line of plain text", self.folder);
            ErrorCode::WorkspaceMissing.error(message).hint("rename the folder")
        })?;
        // The host backend judges everything of the folder that can be judged without isolation.
        let spec = SandboxSpec {
            backend: BackendChoice::Named(BackendName::Host),
            workspace: Some(self.folder.clone()),
            ..SandboxSpec::default()
        };
        match describe(&spec) {
            Err(error)
                if matches!(
                    error.code,
                    ErrorCode::PathInvalid | ErrorCode::PathRefused | ErrorCode::PathMoved
                ) =>
            {
                Err(error)
            }
            // Whatever else may be wrong is told when a sandbox is started.
            Ok(_) | Err(_) => Ok(()),
        }
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

    /// Whether the user prepared it (`init`), or started a sandbox of it.
    pub(super) fn is_ready(&self) -> bool {
        self.history().is_ok_and(|volume| volume.exists())
    }

    /// What was typed.
    pub(super) fn history(&self) -> Result<Volume, SandboxError> {
        self.own("bj-history", HISTORY)
    }

    /// What agents and shells are told.
    pub(super) fn config(&self) -> Result<Volume, SandboxError> {
        self.own("bj-config", CONFIG)
    }

    /// All that outlives its sandboxes: our own, and those of its configuration.
    pub(super) fn volumes(&self) -> Result<Vec<Volume>, SandboxError> {
        let mut all = vec![self.history()?, self.config()?];
        let loaded = config::load(Some(&self.folder), EgressFlags::default())?;
        for (name, inside) in loaded.sandbox().volumes {
            all.push(self.volume(&name, inside.as_str())?);
        }
        all.retain(Volume::exists);
        Ok(all)
    }

    /// Of all branches together.
    fn volume(&self, name: &VolumeName, inside: &str) -> Result<Volume, SandboxError> {
        Ok(Volume::at(of_folder(&volume::all()?, name, &self.folder), inside))
    }

    fn own(&self, name: &str, inside: &str) -> Result<Volume, SandboxError> {
        let name = name
            .parse()
            .map_err(|error| ErrorCode::WorkspaceFailed.error(format!("{error}")).caused_by(error))?;
        self.volume(&name, inside)
    }
}

/// Where they are inside.
pub(super) const HISTORY: &str = "/volumes/history";
pub(super) const CONFIG: &str = "/volumes/config";
