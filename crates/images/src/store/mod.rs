//! Where images are: `<state>/images`.
//!
//! ```text
//! lock                   shared while adding or looking something up, exclusive while removing
//! naming                 exclusive while layers get their names
//! names/<hash>.json      a full name, what it stands for, and which layers that is
//! layers/<diff id>/      tree/ (what an overlay is made of), layer.json, lock (shared while it is in use)
//! layers/.new-…          a layer that is being made; renamed when it is whole and on the disk
//! blobs/                 what is being fetched, locked by its fetcher; gone when it is unpacked
//! pins/<hash>.json       layers that a stopped sandbox still needs, for as long as its directory exists and says so
//! ```
//!
//! A kill at any moment leaves nothing that looks whole and is not: what has its name is whole, the rest is done again or
//! removed by [`Store::gc`].

mod files;
mod gc;
mod import;
mod layers;
mod names;
pub(crate) mod pins;
mod pull;

pub use gc::Collected;
pub use names::Listed;

use crate::digest::Digest;
use crate::error::ImageError;
use crate::image::{Image, Lease};
use crate::options::{PullOptions, PullPolicy};
use crate::progress::Progress;
use crate::reference::Reference;
use belljar_spec::ImageName;
use belljar_state::{Lock, create_private};
use belljar_sys::rustix::process::geteuid;
use names::Record;
use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The images of this user.
#[derive(Debug, Clone)]
pub struct Store {
    root: PathBuf,
}

impl Store {
    /// The store in this directory, which is made if it is missing: `<state>/images`.
    pub fn open(directory: &Path) -> Result<Store, ImageError> {
        let below = ["layers", "names", "blobs", "pins"].map(|place| directory.join(place));
        for path in [directory.to_path_buf()].into_iter().chain(below) {
            create_private(&path).map_err(ImageError::store("make", &path))?;
            // A user who could put something else there would choose what sandboxes are made of, and what gc removes.
            let found = fs::symlink_metadata(&path).map_err(ImageError::store("look at", &path))?;
            if !found.is_dir() {
                return Err(ImageError::NotOurs { path, why: "it is a link" });
            }
            if found.uid() != geteuid().as_raw() {
                return Err(ImageError::NotOurs { path, why: "it belongs to another user" });
            }
        }
        Ok(Store { root: directory.to_path_buf() })
    }

    /// An image, pulled from its registry if need be.
    pub async fn ensure(
        &self,
        name: &ImageName,
        options: &PullOptions,
        progress: Arc<dyn Progress>,
    ) -> Result<Image, ImageError> {
        match options.policy {
            PullPolicy::Always => self.pull(name, options, progress).await,
            PullPolicy::Missing | PullPolicy::Never => match self.find(name)? {
                Some(image) => Ok(image),
                None if options.policy == PullPolicy::Never => Err(ImageError::Missing(name.to_string())),
                None => self.pull(name, options, progress).await,
            },
        }
    }

    /// An image that is here, whole.
    pub fn find(&self, name: &ImageName) -> Result<Option<Image>, ImageError> {
        let reference = Reference::of(name);
        let _hold = self.shared()?;
        let Some(record) = names::read(&self.names(), &reference)? else { return Ok(None) };
        let Some(image) = self.image(name.clone(), record)? else { return Ok(None) };
        names::touch(&self.names(), &reference);
        Ok(Some(image))
    }

    /// What [`Image::pin`] kept for this directory, if it is all there.
    pub fn pinned(&self, owner: &Path) -> Result<Option<Image>, ImageError> {
        let _hold = self.shared()?;
        let Some((name, record)) = pins::read(&self.root, owner)? else { return Ok(None) };
        match self.image(name.clone(), record)? {
            Some(image) => Ok(Some(image)),
            None => Err(ImageError::Damaged(name.to_string())),
        }
    }

    /// Forgets a name. Its layers go with the next [`Store::gc`], if nothing else needs them. Not if there was none.
    pub fn remove(&self, name: &ImageName) -> Result<bool, ImageError> {
        let _hold = self.shared()?;
        names::remove(&self.names(), &Reference::of(name))
    }

    /// A record as an image, with a lease of its layers; not if one is missing.
    fn image(&self, name: ImageName, record: Record) -> Result<Option<Image>, ImageError> {
        let (mut lowers, mut locks, mut seen) = (Vec::new(), Vec::new(), HashSet::new());
        for layer in record.layers.iter().rev() {
            // A layer that comes twice counts where it is topmost, and overlayfs takes it only once.
            if !seen.insert(layer) {
                continue;
            }
            let Some((found, lock)) = layers::lease(&self.layers(), layer)? else { return Ok(None) };
            locks.push(lock);
            if found.entries > 0 {
                lowers.push(layers::tree(&self.layers(), layer));
            }
        }
        if lowers.is_empty()
            && let Some(layer) = record.layers.last()
        {
            lowers.push(layers::tree(&self.layers(), layer));
        }
        let command = record.run.command();
        Ok(Some(Image {
            name,
            digest: record.digest,
            lowers,
            environment: record.run.environment(),
            user: record.run.user.filter(|user| !user.is_empty()),
            working_dir: record.run.working_dir.filter(|directory| !directory.is_empty()),
            command,
            lease: Lease { _locks: locks },
            layers: record.layers,
            store: self.root.clone(),
        }))
    }

    /// While a process looks something up or adds something, nothing is removed.
    fn shared(&self) -> Result<Lock, ImageError> {
        let path = self.root.join("lock");
        Lock::share(&path).map_err(ImageError::store("lock", path))
    }

    fn names(&self) -> PathBuf {
        self.root.join("names")
    }

    fn layers(&self) -> PathBuf {
        self.root.join("layers")
    }

    fn blobs(&self) -> PathBuf {
        self.root.join("blobs")
    }

    /// Whether a layer is here for an image that has it as this blob.
    fn has(&self, layer: &Digest, blob: &Digest) -> bool {
        layers::is_made_of(&self.layers(), layer, blob)
    }
}
