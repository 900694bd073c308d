//! Removing layers that no sandbox and no snapshot names.

use super::error::SnapshotError;
use super::record::Automatic;
use super::store::{SnapshotStore, names};
use belljar_spec::SandboxId;
use belljar_state::damage::UNFINISHED;
use belljar_state::{Lock, remove_set_aside, set_aside, sweep_removed};
use std::collections::HashSet;
use std::path::PathBuf;

impl SnapshotStore {
    /// Removes what is not needed: layers that neither a chain nor a snapshot names, copies whose maker was killed, and snapshots that forks
    /// were being made from, unless `forking`. Says how many layers. Where one of the chains and snapshots cannot be read, nothing is removed.
    pub fn collect(&self, forking: Forking) -> Result<usize, SnapshotError> {
        if !self.is_used() {
            return Ok(0);
        }
        let gone = {
            let _lock = self.lock()?;
            if forking == Forking::None {
                for left in self.all()?.iter().filter(|left| left.automatic == Some(Automatic::Fork)) {
                    self.remove(left)?;
                }
            }
            self.set_unused_aside()?
        };
        sweep_removed(&self.taken());
        let removed = gone.len();
        for layer in gone {
            // What is left of it is removed by the next sweep.
            let _ = remove_set_aside(&layer);
        }
        sweep_removed(&self.layers());
        Ok(removed)
    }

    /// The caller holds the lock: no layer gets a new user meanwhile.
    fn set_unused_aside(&self) -> Result<Vec<PathBuf>, SnapshotError> {
        let mut used: HashSet<SandboxId> = HashSet::new();
        used.extend(self.all()?.into_iter().flat_map(|snapshot| snapshot.layers));
        used.extend(self.chains()?.into_iter().flat_map(|(_, chain)| chain.layers));
        let mut gone = Vec::new();
        for name in names(&self.layers())? {
            let path = self.layers().join(&name);
            let is_unused = match SandboxId::parse(&name) {
                Some(layer) => !used.contains(&layer),
                None => name.starts_with(UNFINISHED) && !is_being_made(&path),
            };
            if is_unused {
                gone.push(set_aside(&path).map_err(SnapshotError::store("remove", path))?);
            }
        }
        for name in names(&self.taken())?.into_iter().filter(|name| name.starts_with(UNFINISHED)) {
            // Made and renamed below the lock: its maker was killed.
            let path = self.taken().join(name);
            set_aside(&path).map_err(SnapshotError::store("remove", path))?;
        }
        Ok(gone)
    }
}

/// Whether forks are being made now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Forking {
    /// No process makes any: what is left of some is removed.
    None,
    Perhaps,
}

fn is_being_made(draft: &std::path::Path) -> bool {
    // Without a lock in it, its maker is about to put one there, or was killed before: it is looked at again.
    let lock = draft.join("lock");
    Lock::is_held(&lock) || !lock.exists() && is_young(draft)
}

fn is_young(path: &std::path::Path) -> bool {
    let modified = path.symlink_metadata().and_then(|found| found.modified());
    modified.is_ok_and(|modified| modified.elapsed().is_ok_and(|age| age < MAKING))
}

/// Between making a directory and locking it.
const MAKING: std::time::Duration = std::time::Duration::from_secs(60);
