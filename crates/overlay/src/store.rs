//! Where layers are: `<state>/layers/<id>/{layer.json,upper/,work/,lock}`.
//!
//! A layer is made under a name with a dot and renamed when it is whole, and renamed to such a name before it is removed; any such
//! name found while we hold the store's lock was left by a killed process.

use super::apply;
use super::beneath::{self, Beneath};
use super::error::LayerError;
use super::held::Held;
use super::id::LayerId;
use super::record::{Layer, Written};
use super::stat::{Moment, Stat};
use belljar_spec::workspace::ProtectedPath;
use belljar_state::damage::{Damaged, UNFINISHED};
use belljar_state::{Lock, create_private, remove_whole, sweep_removed};
use belljar_sys::remove_tree::remove_at;
use belljar_sys::rustix::fs::{self as sys, Gid, Mode, Uid};
use belljar_sys::rustix::process::geteuid;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// All layers of a user.
#[derive(Debug, Clone)]
pub struct Layers {
    directory: PathBuf,
}

impl Layers {
    /// The layers in this state directory. No directory is made before it is needed.
    pub fn at(state: &Path) -> Layers {
        Layers { directory: state.join("layers") }
    }

    /// A new layer for a folder, locked by us. The paths in `protected` are never applied, besides the built-in ones.
    ///
    /// From here on, a change of the folder counts as one that the sandbox has not seen. Does not walk the folder.
    pub fn create(&self, folder: &Path, protected: &[ProtectedPath]) -> Result<Held, LayerError> {
        let failed =
            |source| LayerError::Store { step: "name a layer in", path: self.directory.clone(), source };
        self.create_as(LayerId::random().map_err(failed)?, folder, protected)
    }

    /// The same, with an id that the caller chose, and that no layer has.
    pub fn create_as(
        &self,
        id: LayerId,
        folder: &Path,
        protected: &[ProtectedPath],
    ) -> Result<Held, LayerError> {
        let store = |step| move |path: &Path, source| LayerError::Store { step, path: path.into(), source };
        let _only_us = self.lock()?;
        self.sweep_remains()?;
        let made = self.directory.join(format!(".new-{id}"));
        let failed = |source| store("make the layer")(&made, source);
        private().create(&made).map_err(failed)?;
        let lock = Lock::wait(&made.join(LOCK)).map_err(failed)?;
        let host = Beneath::open_without_links(folder)
            .map_err(|source| store("open, without following a link,")(folder, source))?;
        let like = beneath::stat_of(host.root()).map_err(failed)?;
        self.directories(&made, &like).map_err(failed)?;
        let identity = beneath::identity_of(host.root()).map_err(failed)?;
        let stamp = stamp(&made).map_err(failed)?;
        let written = Written { folder: folder.into(), identity, stamp, protected: protected.to_vec() };
        let layer = Layer::new(id, self.directory.join(id.to_string()), written, SystemTime::now());
        fs::write(made.join("layer.json"), layer.to_json()).map_err(failed)?;
        fs::rename(&made, &layer.directory).map_err(failed)?;
        Ok(Held::new(layer, lock))
    }

    /// All layers, newest first. An unreadable one is a separate error.
    pub fn list(&self) -> Result<Vec<Result<Layer, LayerError>>, LayerError> {
        let failed = |source| LayerError::Store { step: "read", path: self.directory.clone(), source };
        let entries = match fs::read_dir(&self.directory) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(failed)?,
        };
        let mut list = Vec::new();
        for entry in entries {
            let name = entry.map_err(failed)?.file_name();
            if let Some(id) = name.to_str().and_then(LayerId::parse) {
                list.push(Layer::read(id, &self.directory.join(id.to_string())));
            }
        }
        // A layer that was removed meanwhile is skipped.
        list.retain(|layer| !matches!(layer, Err(LayerError::Gone(_))));
        let age =
            |layer: &Result<Layer, LayerError>| layer.as_ref().ok().map(|layer| (layer.created, layer.id));
        list.sort_by_key(|layer| std::cmp::Reverse(age(layer)));
        Ok(list)
    }

    /// The layers of a folder, newest first.
    pub fn of(&self, folder: &Path) -> Result<Vec<Layer>, LayerError> {
        let layers = self.list()?.into_iter().filter_map(Result::ok);
        Ok(layers.filter(|layer| layer.folder == folder).collect())
    }

    /// The layers whose id begins like this. If the only one is damaged, that is the error.
    pub fn beginning(&self, prefix: &str) -> Result<Vec<Layer>, LayerError> {
        let (mut found, mut damage) = (Vec::new(), None);
        for layer in self.list()? {
            match layer {
                Ok(layer) if layer.id.to_string().starts_with(prefix) => found.push(layer),
                Err(LayerError::Damaged(damaged)) if damaged.id.starts_with(prefix) => damage = Some(damaged),
                Ok(_) | Err(_) => {}
            }
        }
        match damage {
            Some(damaged) if found.is_empty() => Err(LayerError::Damaged(damaged)),
            _ => Ok(found),
        }
    }

    /// The damaged layers.
    pub fn damaged(&self) -> Result<Vec<Damaged>, LayerError> {
        let damaged = |layer| match layer {
            Err(LayerError::Damaged(damaged)) => Some(damaged),
            Ok(_) | Err(_) => None,
        };
        Ok(self.list()?.into_iter().filter_map(damaged).collect())
    }

    /// Removes half-made or half-removed layers, and finishes or undoes interrupted applies. Returns the failures. Only for
    /// commands that change something.
    pub fn sweep(&self) -> Result<Vec<LayerError>, LayerError> {
        if !self.directory.exists() {
            return Ok(Vec::new());
        }
        let mut failures = Vec::new();
        {
            let _only_us = self.lock()?;
            self.sweep_remains()?;
        }
        for layer in self.list()?.into_iter().filter_map(Result::ok) {
            if apply::is_unfinished(&layer) {
                match layer.lock().and_then(Held::mend) {
                    // Another process is working on it.
                    Ok(_) | Err(LayerError::InUse(_) | LayerError::Gone(_)) => {}
                    Err(error) => failures.push(error),
                }
            }
        }
        Ok(failures)
    }

    /// Removes layers whose name marks them as unfinished or half removed, and nothing else. The caller holds the store's lock.
    fn sweep_remains(&self) -> Result<(), LayerError> {
        let failed = |source| LayerError::Store { step: "clear", path: self.directory.clone(), source };
        let store = Beneath::open(&self.directory).map_err(failed)?;
        for name in beneath::names(store.root()).map_err(failed)? {
            if name.starts_with(UNFINISHED.as_bytes()) {
                remove_at(store.root(), &name).map_err(failed)?;
            }
        }
        sweep_removed(&self.directory);
        Ok(())
    }

    /// Removes a damaged layer.
    pub fn discard_damaged(&self, id: LayerId) -> Result<(), LayerError> {
        let _only_us = self.lock()?;
        remove_whole(&self.directory.join(id.to_string())).map_err(|source| LayerError::Store {
            step: "remove the layer in",
            path: self.directory.clone(),
            source,
        })
    }

    /// Locks the store.
    fn lock(&self) -> Result<Lock, LayerError> {
        let failed = |source| LayerError::Store { step: "prepare", path: self.directory.clone(), source };
        create_private(&self.directory).map_err(failed)?;
        Lock::wait(&self.directory.join(LOCK)).map_err(failed)
    }

    /// Makes the two directories of an overlay. The upper one's metadata is that of the root of the mount, so it gets the folder's.
    fn directories(&self, made: &Path, like: &Stat) -> io::Result<()> {
        for (name, mode) in [("upper", like.mode), ("work", 0o700)] {
            let path = made.join(name);
            private().create(&path)?;
            let open = File::open(&path)?;
            if geteuid().is_root() {
                sys::fchown(&open, Some(Uid::from_raw(like.uid)), Some(Gid::from_raw(like.gid)))?;
            }
            sys::fchmod(&open, Mode::from_raw_mode(mode))?;
        }
        Ok(())
    }
}

impl Layer {
    /// Locks the layer against other processes. An interrupted apply is finished or undone first; if it is finished, the layer may
    /// be gone afterwards.
    pub fn hold(&self) -> Result<Held, LayerError> {
        let held = self.lock()?;
        if !apply::is_unfinished(self) {
            return Ok(held);
        }
        held.mend()?;
        self.lock()
    }

    pub(super) fn lock(&self) -> Result<Held, LayerError> {
        let failed = |source| LayerError::Store { step: "lock", path: self.directory.clone(), source };
        let path = self.directory.join(LOCK);
        match Lock::try_existing(&path) {
            // It may have been removed between opening and locking.
            Ok(Some(lock)) if lock.is_at(&path) => Ok(Held::new(self.clone(), lock)),
            Ok(Some(_)) => Err(LayerError::Gone(self.id)),
            Ok(None) => Err(LayerError::InUse(self.id)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(LayerError::Gone(self.id)),
            Err(error) => Err(failed(error)),
        }
    }

    /// Whether a sandbox uses it now. Only reads.
    pub fn is_in_use(&self) -> bool {
        Lock::is_held(&self.directory.join(LOCK))
    }

    /// Whether an apply was interrupted, or is in progress. Only reads.
    pub fn is_half_applied(&self) -> bool {
        apply::is_unfinished(self)
    }
}

/// A moment such that every change until now has an earlier ctime, and every later one has not.
///
/// After a ctime was read, the next one is fine-grained, and every later one is at least as late (multigrain timestamps, Linux
/// 6.13). On older kernels ctimes come from a clock that ticks every few milliseconds, and a change just before counts as one just
/// after: a false alarm, never a missed one.
fn stamp(directory: &Path) -> io::Result<Moment> {
    let path = directory.join("stamp");
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
    file.write_all(b"before")?;
    beneath::stat_of(&file)?;
    file.write_all(b"after")?;
    Ok(beneath::stat_of(&file)?.changed)
}

fn private() -> DirBuilder {
    let mut builder = DirBuilder::new();
    builder.mode(0o700);
    builder
}

const LOCK: &str = "lock";
