//! The uncommitted files of a worktree, one by one, for a change set of the host's folder.
//!
//! git only says which files differ from the branch's commit. Their content is read beneath the worktree, without following a link: a
//! sandbox may be working there. Called by the engine.

use super::look::Look;
use super::managed_dir::ManagedCloneDir;
use super::{MAX_UNCOMMITTED, ManagedCloneError, ManagedWorktree, spoiled_clone};
use crate::foreign::{Foreign, Import, import};
use crate::inert::{Git, Leash};
use crate::traps;
use crate::uncommitted::{Beside, BesideError};
use belljar_git::ObjectId;
use belljar_overlay::RelPath;
use belljar_overlay::beneath::Beneath;
use belljar_spec::egress::Printable;
use belljar_spec::git::PushLimits;
use std::collections::HashMap;
use std::path::PathBuf;

/// The uncommitted files of a worktree.
pub struct PendingWork {
    git: Git,
    ours: PathBuf,
    work: Beneath,
    paths: Vec<RelPath>,
    /// The object of each file in the branch's commit.
    committed: HashMap<RelPath, String>,
    _look: Look,
}

impl ManagedWorktree {
    /// Its uncommitted files; refused if there are more than [`MAX_UNCOMMITTED`].
    pub fn pending(&self, state: &std::path::Path) -> Result<PendingWork, ManagedCloneError> {
        let unknown = || ManagedCloneError::Unknown(Printable::from(self.clone_name.as_str()));
        let git = Git::find()?.on_leash(&Leash::after_end());
        let place = ManagedCloneDir::named(state, &self.clone_name).ok_or_else(unknown)?;
        let lock = place.lock()?;
        let ours = place.ours();
        if let Some(tip) = self.commit.as_ref().filter(|_| !self.on_host) {
            let from = Foreign::open(&place.repo()).map_err(spoiled_clone(&self.host))?;
            let scratch = place.fresh("import");
            let limits = PushLimits::default();
            import(&Import { git: &git, ours: &ours, from: &from, tip, scratch: &scratch, limits })
                .map_err(ManagedCloneError::Import)?;
        }
        place.clear();
        let look = place.look(&lock)?;
        drop(lock);
        let io = || ManagedCloneError::io(&self.folder);
        let beside = Beside { git: &git, ours: &ours, work: &self.folder, index: &look.index() };
        let names = beside.names(self.commit.as_ref(), MAX_UNCOMMITTED + 1).map_err(|error| match error {
            BesideError::Git(error) => ManagedCloneError::Git(error),
            BesideError::Io(error) => io()(error),
        })?;
        if names.len() > MAX_UNCOMMITTED {
            return Err(ManagedCloneError::TooManyUncommitted(self.folder.clone()));
        }
        let mut paths: Vec<RelPath> = names.iter().map(|name| RelPath::child(b"", name)).collect();
        paths.sort();
        paths.dedup();
        let committed = match &self.commit {
            Some(tip) => traps::committed(git.on(&ours), tip)?,
            None => Vec::new(),
        };
        let committed = committed.into_iter().map(|file| (file.path, file.id)).collect();
        let work = Beneath::open(&self.folder).map_err(io())?;
        Ok(PendingWork { git, ours, work, paths, committed, _look: look })
    }
}

impl PendingWork {
    /// The files, in order. The path of a folder with a repository of its own ends in a slash.
    pub fn paths(&self) -> &[RelPath] {
        &self.paths
    }

    /// The worktree.
    pub fn work(&self) -> &Beneath {
        &self.work
    }

    /// The content that the branch's commit has of a file, or the target of a link; `None`: it has no such file.
    pub fn committed(&self, path: &RelPath) -> Result<Option<Vec<u8>>, ManagedCloneError> {
        let Some(id) = self.committed.get(path).and_then(|id| ObjectId::parse(id.as_bytes()).ok()) else {
            return Ok(None);
        };
        Ok(Some(self.git.on(&self.ours).args(["cat-file", "blob", id.as_str()]).output()?))
    }
}
