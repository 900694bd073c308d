//! Removes what no name stands for and nothing uses.

use super::files;
use super::{Store, layers, names, pins};
use crate::digest::Digest;
use crate::error::ImageError;
use crate::options::GcOptions;
use belljar_state::Lock;
use belljar_sys::remove_tree;
use serde::Serialize;
use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// What was removed, or would be.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Collected {
    /// Names that were not used for long.
    pub images: Vec<String>,
    pub layers: Vec<Digest>,
    /// What a pull or an import left that was broken off.
    pub remains: usize,
    /// Of files; what is packed or half unpacked is not counted.
    pub bytes: u64,
}

impl Store {
    /// Removes what no name stands for and nothing uses, and what a kill left. Not while something is being pulled.
    pub fn gc(&self, options: &GcOptions) -> Result<Collected, ImageError> {
        let hold = self.alone()?;
        let mut collected = Collected::default();
        let mut doomed = Vec::new();
        self.forget_old(options, &mut collected)?;
        let mut named: HashSet<Digest> = pins::layers(&self.root, !options.dry_run)?.into_iter().collect();
        for (record, _) in names::all(&self.names())? {
            if !collected.images.contains(&record.name) {
                named.extend(record.layers);
            }
        }
        for path in entries(&self.layers())? {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let whole = format!("sha256:{name}").parse::<Digest>().ok();
            match whole {
                Some(layer) if named.contains(&layer) || layers::is_in_use(&self.layers(), &layer) => {}
                Some(layer) => {
                    collected.bytes +=
                        layers::read(&self.layers(), &layer).ok().flatten().map_or(0, |found| found.bytes);
                    collected.layers.push(layer);
                    doomed.push(path);
                }
                // Of a belljar that locked what it made.
                None if name.ends_with(".lock") => doomed.push(path),
                None => {
                    collected.remains += 1;
                    doomed.push(path);
                }
            }
        }
        let unwritten = [self.names(), self.root.join("pins")].map(|place| entries(&place));
        let mut remains = entries(&self.blobs())?;
        for place in unwritten {
            remains.extend(place?.into_iter().filter(|path| !files::is_record(path)));
        }
        collected.remains += remains.len();
        doomed.extend(remains);
        collected.layers.sort();
        if options.dry_run {
            return Ok(collected);
        }
        let gone = self.set_aside(doomed)?;
        // What was set aside cannot be found by its name any more: others need not wait until it is removed.
        drop(hold);
        for path in gone {
            match remove_tree::remove(&path) {
                // Another gc removes it too: what is set aside may be removed by any.
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                removed => removed.map_err(ImageError::store("remove", path))?,
            }
        }
        Ok(collected)
    }

    fn forget_old(&self, options: &GcOptions, collected: &mut Collected) -> Result<(), ImageError> {
        let Some(age) = options.unused_for else { return Ok(()) };
        let now = names::milliseconds(SystemTime::now());
        for (record, last_used) in names::all(&self.names())? {
            let is_old = u128::from(now.saturating_sub(last_used)) >= age.as_millis();
            if is_old && !record.layers.iter().any(|layer| layers::is_in_use(&self.layers(), layer)) {
                if !options.dry_run {
                    names::remove_named(&self.names(), &record.name)?;
                }
                collected.images.push(record.name);
            }
        }
        collected.images.sort();
        Ok(())
    }

    fn set_aside(&self, doomed: Vec<PathBuf>) -> Result<Vec<PathBuf>, ImageError> {
        let mut gone = Vec::new();
        for (number, path) in doomed.into_iter().enumerate() {
            let aside = self.layers().join(format!(".gone-{}-{number}", std::process::id()));
            remove_tree::remove(&aside).map_err(ImageError::store("remove", &aside))?;
            fs::rename(&path, &aside).map_err(ImageError::store("remove", path))?;
            gone.push(aside);
        }
        Ok(gone)
    }

    /// While no process looks something up or adds something. Looking up takes no time: it is waited for.
    fn alone(&self) -> Result<Lock, ImageError> {
        let path = self.root.join("lock");
        let lock = Lock::wait_within(&path, LOCK_TIMEOUT).map_err(ImageError::store("lock", &path))?;
        lock.ok_or(ImageError::Busy)
    }
}

fn entries(directory: &Path) -> Result<Vec<PathBuf>, ImageError> {
    let failed = |source| ImageError::Store { step: "read", path: directory.to_path_buf(), source };
    let read = fs::read_dir(directory).map_err(failed)?;
    read.map(|entry| entry.map(|entry| entry.path()).map_err(failed)).collect()
}

const LOCK_TIMEOUT: Duration = Duration::from_secs(2);
