//! Layers, by what is in them: one that two images have is here once.

use super::files;
use crate::digest::Digest;
use crate::error::ImageError;
use crate::limits::Limits;
use crate::unpack::{UnpackError, unpack};
use belljar_state::{Lock, create_private};
use belljar_sys::remove_tree;
use belljar_sys::rustix::fs::syncfs;
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// What is known of a layer. Written last: a layer without it is none.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Layer {
    pub(super) entries: u64,
    /// Of its files.
    pub(super) bytes: u64,
    /// Of the disk, about.
    pub(super) taken: u64,
    /// What it was made of, or would have been: a pull that names none of these has to show that it has the content.
    #[serde(default)]
    pub(super) blobs: Vec<Digest>,
}

/// A layer that was made, and has no name yet. Without one it is gone with this.
pub(super) struct Made {
    layer: Digest,
    place: Unnamed,
    pub(super) found: Layer,
}

/// Where a layer is made. No other process looks there.
struct Unnamed(PathBuf);

impl Drop for Unnamed {
    fn drop(&mut self) {
        // Whatever is left of it is removed by gc.
        let _ = remove_tree::remove(&self.0);
    }
}

/// Makes a layer of a blob of `size` bytes and with this digest, which must come to `layer`. Waits for no other process:
/// each one that makes the same layer has a directory of its own. It counts when it is [finished](finish).
pub(super) fn make(
    layers: &Path,
    layer: &Digest,
    digest: &Digest,
    blob: impl Read,
    size: u64,
    limits: &Limits,
) -> Result<Made, ImageError> {
    let place = Unnamed(layers.join(format!(".new-{}-{}", layer.hex(), files::unique())));
    let found = make_in(&place.0, layer, digest, blob, size, limits)?;
    Ok(Made { layer: layer.clone(), place, found })
}

fn make_in(
    place: &Path,
    layer: &Digest,
    digest: &Digest,
    blob: impl Read,
    size: u64,
    limits: &Limits,
) -> Result<Layer, ImageError> {
    remove_tree::remove(place).map_err(ImageError::store("remove", place))?;
    let tree = place.join(TREE);
    create_private(&tree).map_err(ImageError::store("make", &tree))?;
    let unpacked = unpack(blob, size, &tree, limits).map_err(|source| match source {
        UnpackError::NoSpace(full) => ImageError::NoSpace(full),
        source => ImageError::Layer { layer: layer.clone(), source },
    })?;
    if unpacked.diff_id != *layer {
        let (expected, found) = (layer.to_string(), unpacked.diff_id.to_string());
        return Err(ImageError::Mismatch { what: "layer's content", expected, found });
    }
    let made = Layer {
        entries: unpacked.entries,
        bytes: unpacked.bytes,
        taken: unpacked.taken,
        blobs: vec![digest.clone()],
    };
    let describe = || -> io::Result<()> {
        fs::write(place.join(RECORD), serde_json::to_vec(&made)?)?;
        File::create(place.join(LOCK)).map(drop)
    };
    describe().map_err(ImageError::store("finish", place))?;
    Ok(made)
}

/// Gives layers that were made their names, when all of them is on the disk. That is waited for once: on a busy machine it is
/// what takes longest. Names are given by one at a time: whether a layer is there, and what to do about it, is one step.
pub(super) fn finish(layers: &Path, made: &[Made]) -> Result<(), ImageError> {
    if made.is_empty() {
        return Ok(());
    }
    let name_all = || -> io::Result<()> {
        syncfs(File::open(layers)?)?;
        let _naming = Lock::wait(&layers.with_file_name(NAMING))?;
        for made in made {
            made.name(layers)?;
        }
        files::sync_directory(layers)
    };
    name_all().map_err(ImageError::store("finish layers in", layers))
}

impl Made {
    /// Another process may have made it meanwhile: one is as good as the other, and theirs may be in use.
    fn name(&self, layers: &Path) -> io::Result<()> {
        let place = layers.join(self.layer.hex());
        if !is_whole(layers, &self.layer) {
            // What has no record was never whole.
            remove_tree::remove(&place)?;
            return fs::rename(&self.place.0, &place);
        }
        let record = place.join(RECORD);
        if let Some(mut known) = files::read::<Layer>(&record)?
            && !self.found.blobs.iter().all(|blob| known.blobs.contains(blob))
        {
            known.blobs.extend(self.found.blobs.iter().cloned());
            // The latest: who else comes shows theirs again.
            let old = known.blobs.len().saturating_sub(BLOBS);
            known.blobs.drain(..old);
            files::write_whole(&record, &known)?;
        }
        Ok(())
    }
}

pub(super) fn tree(layers: &Path, layer: &Digest) -> PathBuf {
    layers.join(layer.hex()).join(TREE)
}

pub(super) fn read(layers: &Path, layer: &Digest) -> Result<Option<Layer>, ImageError> {
    let path = layers.join(layer.hex()).join(RECORD);
    files::read(&path).map_err(ImageError::store("read", path))
}

pub(super) fn is_whole(layers: &Path, layer: &Digest) -> bool {
    layers.join(layer.hex()).join(RECORD).exists()
}

/// Whether a layer is here that was made of this blob, so that a pull which names the blob has its content. The name of a
/// layer is no proof: any image can write one down.
pub(super) fn is_made_of(layers: &Path, layer: &Digest, blob: &Digest) -> bool {
    read(layers, layer).is_ok_and(|found| found.is_some_and(|found| found.blobs.contains(blob)))
}

/// A layer, and a lease of it. The store is locked meanwhile, so gc does not remove it under us.
pub(super) fn lease(layers: &Path, layer: &Digest) -> Result<Option<(Layer, Lock)>, ImageError> {
    let Some(found) = read(layers, layer)? else { return Ok(None) };
    let path = layers.join(layer.hex()).join(LOCK);
    let lock = Lock::share(&path).map_err(ImageError::store("lock", path))?;
    Ok(Some((found, lock)))
}

/// Whether a process has a lease of it.
pub(super) fn is_in_use(layers: &Path, layer: &Digest) -> bool {
    let path = layers.join(layer.hex()).join(LOCK);
    path.exists() && !matches!(Lock::try_now(&path), Ok(Some(_)))
}

/// Beside the layers: alone by who gives them their names.
const NAMING: &str = "naming";
const TREE: &str = "tree";
const RECORD: &str = "layer.json";
const LOCK: &str = "lock";
/// How many blobs of a layer are known.
const BLOBS: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;

    /// An archive with one file of five bytes.
    fn archive() -> Vec<u8> {
        let mut builder = ::tar::Builder::new(Vec::new());
        let mut header = ::tar::Header::new_gnu();
        header.set_size(5);
        header.set_mode(0o644);
        builder.append_data(&mut header, "a", &b"hello"[..]).unwrap();
        builder.into_inner().unwrap()
    }

    #[test]
    fn who_finishes_a_layer_that_is_there_meanwhile_leaves_it_alone() {
        let archive = archive();
        let layer = Digest::of(&archive);
        let limits = Limits { reserve: 0, ..Limits::default() };
        // What a kill left without a record, much or little: all of them find it, and want it out of the way.
        for left in [300, 0].repeat(4) {
            let folder = tempfile::tempdir().unwrap();
            let layers = folder.path().join("layers");
            let remains = layers.join(layer.hex()).join(TREE);
            fs::create_dir_all(&remains).unwrap();
            for number in 0..left {
                fs::write(remains.join(number.to_string()), "").unwrap();
            }
            let together = Barrier::new(8);
            let leased: Vec<Lock> = std::thread::scope(|scope| {
                let finish_one = || {
                    let size = archive.len() as u64;
                    let made = make(&layers, &layer, &layer, archive.as_slice(), size, &limits).unwrap();
                    together.wait();
                    finish(&layers, &[made]).unwrap();
                    lease(&layers, &layer).unwrap().unwrap().1
                };
                let all: Vec<_> = (0..8).map(|_| scope.spawn(finish_one)).collect();
                all.into_iter().map(|one| one.join().unwrap()).collect()
            });
            let lock = layers.join(layer.hex()).join(LOCK);
            assert!(leased.iter().all(|lease| lease.is_at(&lock)), "a layer in use was removed");
            assert!(is_in_use(&layers, &layer));
            assert_eq!(fs::read(tree(&layers, &layer).join("a")).unwrap(), b"hello");
            assert_eq!(fs::read_dir(&layers).unwrap().count(), 1);
        }
    }
}
