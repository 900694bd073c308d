//! The store: snapshots by name, and the chains of sandboxes.

use super::chain::Chain;
use super::copy::{self, CopyLimit};
use super::error::SnapshotError;
use super::files::{Part, SandboxFiles};
use super::merge;
use super::record::{Automatic, LABEL, Method, Snapshot};
use super::seal::{self, Step};
use belljar_spec::{SandboxId, SnapshotName};
use belljar_state::damage::UNFINISHED;
use belljar_state::{Lock, Survives, create_private, new_id, remove_whole, write_atomic};
use belljar_sys::rustix::fs::{XattrFlags, setxattr, statfs};
use belljar_sys::rustix::io::Errno;
use std::collections::HashMap;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// The snapshots of one fleet.
#[derive(Debug, Clone)]
pub struct SnapshotStore {
    fleet: PathBuf,
}

/// What is said of a snapshot that is to be taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewSnapshot {
    /// Without one, it has its id.
    pub name: Option<SnapshotName>,
    pub owner: String,
    pub sandbox: String,
    pub key: String,
    pub rootfs: String,
    pub backend: Option<String>,
    /// Parts that the sandbox has.
    pub parts: Vec<Part>,
    pub left_out: Vec<String>,
    pub automatic: Option<Automatic>,
}

/// A snapshot, and the sandboxes whose files lie over its topmost layer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    pub snapshot: Snapshot,
    pub used_by: Vec<String>,
}

impl SnapshotStore {
    /// Of this fleet: `<state>/fleet`. Nothing is made.
    pub fn at(fleet: &Path) -> SnapshotStore {
        SnapshotStore { fleet: fleet.to_path_buf() }
    }

    /// The directory that all layers lie in.
    pub fn layers(&self) -> PathBuf {
        self.fleet.join("snapshots/layers")
    }

    /// A part of a layer, if the layer has it.
    pub fn part(&self, layer: SandboxId, part: Part) -> Option<PathBuf> {
        let path = self.layers().join(layer.to_string()).join(part.as_str());
        path.symlink_metadata().is_ok_and(|found| found.is_dir()).then_some(path)
    }

    /// Where it is written which image or golden root lies below a snapshot.
    pub fn root_of(&self, id: &SnapshotName) -> PathBuf {
        self.taken().join(id.as_str()).join("root")
    }

    /// Refuses a name that the owner's snapshots have, and one that no snapshot can have.
    pub fn must_be_free(&self, owner: &str, name: &SnapshotName) -> Result<(), SnapshotError> {
        if name.is_id() {
            return Err(SnapshotError::NameIsId(name.clone()));
        }
        match self.all()?.iter().any(|known| known.owner == owner && known.name == *name) {
            true => Err(SnapshotError::NameTaken(name.clone())),
            false => Ok(()),
        }
    }

    /// Refuses a filesystem that overlays cannot write to: a sandbox whose files became a layer there could not be started again.
    pub fn must_hold_layers(&self) -> Result<(), SnapshotError> {
        self.make()?;
        let path = self.layers();
        let refused = |why: &'static str| Err(SnapshotError::Filesystem { path: path.clone(), why });
        let kind = statfs(&path).map_err(|errno| SnapshotError::store("look at", &path)(errno.into()))?;
        if kind.f_type as u64 == OVERLAYFS {
            return refused("it is an overlay itself, as a container's files are");
        }
        match setxattr(&path, TRIED_ATTRIBUTE, b"y", XattrFlags::empty()) {
            Ok(()) => Ok(()),
            Err(Errno::OPNOTSUPP) => refused("it has no attributes of users"),
            Err(errno) => Err(SnapshotError::store("try", path)(errno.into())),
        }
    }

    /// Takes a snapshot of a sandbox that no process uses: what it changed becomes a layer below it. `done` is told of each step that is
    /// on the disk.
    pub fn take(
        &self,
        files: &SandboxFiles,
        new: NewSnapshot,
        done: &mut dyn FnMut(Step),
    ) -> Result<Snapshot, SnapshotError> {
        let _lock = self.lock()?;
        if let Some(name) = &new.name {
            self.must_be_free(&new.owner, name)?;
        }
        let chain = self.seal(files, &new.parts, new.backend.as_deref(), done)?;
        let snapshot = self.noted(new, chain.layers, Method::Layered, None)?;
        done(Step::Noted);
        Ok(snapshot)
    }

    /// Takes a snapshot by copying what a sandbox changed. Its processes write nothing meanwhile.
    pub fn copy(
        &self,
        files: &SandboxFiles,
        new: NewSnapshot,
        limit: CopyLimit,
    ) -> Result<Snapshot, SnapshotError> {
        if let Some(name) = &new.name {
            self.must_be_free(&new.owner, name)?;
        }
        let layer = fresh()?;
        self.make()?;
        let draft = self.layers().join(format!("{UNFINISHED}{layer}"));
        create_private(&draft).map_err(SnapshotError::store("make", &draft))?;
        let lock = draft.join("lock");
        let _making = Lock::wait(&lock).map_err(SnapshotError::store("lock", &lock))?;
        let copied = copy::parts(files, &new.parts, &draft, limit).and_then(|bytes| {
            let _lock = self.lock()?;
            if let Some(name) = &new.name {
                self.must_be_free(&new.owner, name)?;
            }
            let chain = Chain::of(files)?;
            if chain.layers.len() >= MAX_LAYERS {
                return Err(SnapshotError::TooManyLayers(chain.layers.len(), MAX_LAYERS));
            }
            let whole = self.layers().join(layer.to_string());
            fs::rename(&draft, &whole).map_err(SnapshotError::store("rename", &draft))?;
            let layers = [layer].into_iter().chain(chain.layers).collect();
            self.noted(new, layers, Method::Copied, Some(bytes))
        });
        copied.inspect_err(|_| drop(belljar_sys::remove_tree::remove(&draft)))
    }

    /// Gives a sandbox that was never started the layers of a snapshot.
    pub fn seed(&self, files: &SandboxFiles, snapshot: &Snapshot) -> Result<(), SnapshotError> {
        let _lock = self.lock()?;
        // It may have been removed since it was found, and its layers with it.
        let Some(snapshot) = Snapshot::read(&self.taken().join(snapshot.id.as_str()))? else {
            return Err(SnapshotError::Unknown(snapshot.name.clone()));
        };
        self.seeded(files, &snapshot)
    }

    /// Puts a sandbox that no process uses back to a snapshot. Its present files become a snapshot of their own, which is returned, if
    /// `saved` says what is known of that; else they are discarded.
    pub fn restore(
        &self,
        files: &SandboxFiles,
        parts: &[Part],
        snapshot: &Snapshot,
        saved: Option<NewSnapshot>,
        done: &mut dyn FnMut(Step),
    ) -> Result<Option<Snapshot>, SnapshotError> {
        let _lock = self.lock()?;
        let Some(snapshot) = Snapshot::read(&self.taken().join(snapshot.id.as_str()))? else {
            return Err(SnapshotError::Unknown(snapshot.name.clone()));
        };
        let present = self.seal(files, parts, snapshot.backend.as_deref(), done)?;
        let saved = saved.map(|new| self.noted(new, present.layers, Method::Layered, None)).transpose()?;
        done(Step::Noted);
        self.seeded(files, &snapshot)?;
        done(Step::Restored);
        Ok(saved)
    }

    /// All snapshots, the oldest first.
    pub fn all(&self) -> Result<Vec<Snapshot>, SnapshotError> {
        let mut all = Vec::new();
        for name in names(&self.taken())? {
            if !name.starts_with('.') {
                all.extend(Snapshot::read(&self.taken().join(name))?);
            }
        }
        all.sort_by(|a, b| (a.created_ms, &a.id).cmp(&(b.created_ms, &b.id)));
        Ok(all)
    }

    /// The one of this name or id that the caller may see: its own, or any for the owner of the machine.
    pub fn find(&self, name: &SnapshotName, owner: &str, sees_all: bool) -> Result<Snapshot, SnapshotError> {
        let all = self.all()?;
        let own = all.iter().find(|known| known.owner == owner && (known.name == *name || known.id == *name));
        let any = || all.iter().find(|known| sees_all && (known.name == *name || known.id == *name));
        own.or_else(any).cloned().ok_or_else(|| SnapshotError::Unknown(name.clone()))
    }

    /// With the sandboxes that use each.
    pub fn with_users(&self, snapshots: Vec<Snapshot>) -> Result<Vec<Found>, SnapshotError> {
        let mut users: HashMap<SandboxId, Vec<String>> = HashMap::new();
        for (name, chain) in self.chains()? {
            for layer in chain.layers {
                users.entry(layer).or_default().push(name.clone());
            }
        }
        let found = snapshots.into_iter().map(|snapshot| {
            let used_by = snapshot.layers.first().and_then(|top| users.get(top)).cloned().unwrap_or_default();
            Found { snapshot, used_by }
        });
        Ok(found.collect())
    }

    /// Removes a snapshot. Layers that sandboxes use stay.
    pub fn remove(&self, snapshot: &Snapshot) -> Result<(), SnapshotError> {
        let directory = self.taken().join(snapshot.id.as_str());
        match remove_whole(&directory) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            removed => removed.map_err(SnapshotError::store("remove", directory)),
        }
    }

    /// Removes what belljar itself took of a sandbox that is no more.
    pub fn forget(&self, sandbox: &str) -> Result<(), SnapshotError> {
        let all = self.all()?.into_iter();
        for own in all.filter(|known| known.sandbox == sandbox && known.automatic.is_some()) {
            self.remove(&own)?;
        }
        Ok(())
    }

    /// Merges layers below a sandbox that no process uses, as far as no other sandbox and no snapshot needs them one by one, until it has
    /// at most so many. Says how many it has.
    pub fn merge(&self, files: &SandboxFiles, most: usize) -> Result<usize, SnapshotError> {
        let _lock = self.lock()?;
        merge::merge(self, files, most)
    }

    /// The bytes on disk of a layer.
    pub fn usage(&self, layer: SandboxId) -> u64 {
        belljar_state::disk_usage(&self.layers().join(layer.to_string())).bytes
    }

    fn seal(
        &self,
        files: &SandboxFiles,
        parts: &[Part],
        backend: Option<&str>,
        done: &mut dyn FnMut(Step),
    ) -> Result<Chain, SnapshotError> {
        let mut chain = Chain::of(files)?;
        if chain.layers.len() >= MAX_LAYERS {
            let left = merge::merge(self, files, MERGED_LAYERS)?;
            if left >= MAX_LAYERS {
                return Err(SnapshotError::TooManyLayers(left, MAX_LAYERS));
            }
            chain = Chain::of(files)?;
        }
        chain.backend = chain.backend.or_else(|| backend.map(str::to_string));
        seal::seal(&self.layers(), files, parts, chain, done)
    }

    /// Writes what is known of a snapshot. Its layers are whole.
    fn noted(
        &self,
        new: NewSnapshot,
        layers: Vec<SandboxId>,
        method: Method,
        bytes: Option<u64>,
    ) -> Result<Snapshot, SnapshotError> {
        let NewSnapshot { name, owner, sandbox, key, rootfs, backend, parts: _, left_out, automatic } = new;
        let parts: Vec<Part> = Part::ALL
            .into_iter()
            .filter(|part| layers.iter().any(|layer| self.part(*layer, *part).is_some()))
            .collect();
        if parts.is_empty() {
            return Err(SnapshotError::NothingToTake);
        }
        let id = SnapshotName::of_id(fresh()?);
        let name = name.unwrap_or_else(|| id.clone());
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let created_ms = i64::try_from(since.as_millis()).unwrap_or(i64::MAX);
        let snapshot = Snapshot {
            id,
            name,
            owner,
            sandbox,
            key,
            created_ms,
            rootfs,
            backend,
            layers,
            parts,
            left_out,
            method,
            bytes,
            automatic,
        };
        let draft = self.taken().join(format!("{UNFINISHED}{}", snapshot.id));
        let whole = self.taken().join(snapshot.id.as_str());
        create_private(&draft.join("root")).map_err(SnapshotError::store("make", &draft))?;
        // One that a caller asked for is there after a power cut. Others are made anew by what they are for.
        let survives = if snapshot.automatic.is_some() { Survives::Kill } else { Survives::PowerCut };
        let label = draft.join(LABEL);
        write_atomic(&label, &snapshot.to_json(), survives).map_err(SnapshotError::store("write", label))?;
        fs::rename(&draft, &whole).map_err(SnapshotError::store("rename", draft))?;
        Ok(snapshot)
    }

    fn seeded(&self, files: &SandboxFiles, snapshot: &Snapshot) -> Result<(), SnapshotError> {
        let chain = Chain { layers: snapshot.layers.clone(), backend: snapshot.backend.clone() };
        chain.write(files, Survives::InOrder)
    }

    /// The chains of all sandboxes, those that are being made included, by name.
    pub(super) fn chains(&self) -> Result<Vec<(String, Chain)>, SnapshotError> {
        let sandboxes = self.fleet.join("sandboxes");
        let mut chains = Vec::new();
        for name in names(&sandboxes)? {
            let chain = Chain::of(&SandboxFiles::new(sandboxes.join(&name)))?;
            if !chain.layers.is_empty() {
                chains.push((name, chain));
            }
        }
        Ok(chains)
    }

    pub(super) fn taken(&self) -> PathBuf {
        self.fleet.join("snapshots/taken")
    }

    fn make(&self) -> Result<(), SnapshotError> {
        for directory in [self.layers(), self.taken()] {
            create_private(&directory).map_err(SnapshotError::store("make", directory))?;
        }
        Ok(())
    }

    pub(super) fn lock(&self) -> Result<Lock, SnapshotError> {
        self.make()?;
        let path = self.fleet.join("snapshots/lock");
        Lock::wait(&path).map_err(SnapshotError::store("lock", path))
    }

    /// Whether there was ever a snapshot.
    pub(super) fn is_used(&self) -> bool {
        self.layers().is_dir()
    }

    #[cfg(test)]
    pub(super) fn fleet(&self) -> &Path {
        &self.fleet
    }
}

/// The names in a directory, in order; none where there is no directory.
pub(super) fn names(directory: &Path) -> Result<Vec<String>, SnapshotError> {
    let failed = || SnapshotError::store("read", directory);
    let entries = match fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(failed()(error)),
    };
    let mut names = Vec::new();
    for entry in entries {
        names.extend(entry.map_err(failed())?.file_name().into_string().ok());
    }
    names.sort();
    Ok(names)
}

pub(super) fn fresh() -> Result<SandboxId, SnapshotError> {
    new_id().map_err(|error| SnapshotError::Store {
        step: "draw a name for a layer of",
        path: "snapshots".into(),
        source: std::io::Error::other(error),
    })
}

/// linux/magic.h
const OVERLAYFS: u64 = 0x794c_7630;
const TRIED_ATTRIBUTE: &str = "user.belljar.tried";
/// The kernel takes the names of all layers of a mount in 256 bytes, and an image has layers, too.
const MAX_LAYERS: usize = 64;
/// To how many they are merged then.
const MERGED_LAYERS: usize = 24;
