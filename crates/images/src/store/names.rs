//! What a name stands for.

use super::{Store, files, layers};
use crate::digest::Digest;
use crate::document::RunConfig;
use crate::error::ImageError;
use crate::reference::Reference;
use serde::{Deserialize, Serialize};
use std::collections::HashSet;
use std::fs::{self, File, FileTimes};
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// What a name stands for.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Record {
    /// The full name.
    pub(crate) name: String,
    pub(crate) digest: Digest,
    /// The lowest first.
    pub(crate) layers: Vec<Digest>,
    pub(crate) run: RunConfig,
    /// Milliseconds since 1970.
    pub(crate) since: u64,
}

/// An image in a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Listed {
    /// In full.
    pub name: String,
    pub digest: Digest,
    pub layers: usize,
    /// Unpacked, also what it shares with others.
    pub bytes: u64,
    /// Of those, what would be gone without it.
    pub own_bytes: u64,
    pub in_use: bool,
    /// Whether all of it is here.
    pub whole: bool,
    /// Milliseconds since 1970.
    pub since: u64,
    pub last_used: u64,
}

impl Store {
    /// All images, by name.
    pub fn list(&self) -> Result<Vec<Listed>, ImageError> {
        let _hold = self.shared()?;
        let records = all(&self.names())?;
        let mut listed = Vec::new();
        for (at, (record, last_used)) in records.iter().enumerate() {
            let others = records.iter().enumerate().filter(|(other, _)| *other != at);
            let elsewhere: HashSet<&Digest> = others.flat_map(|(_, (other, _))| &other.layers).collect();
            let own: HashSet<&Digest> = record.layers.iter().collect();
            let (mut bytes, mut own_bytes, mut in_use, mut whole) = (0, 0, false, true);
            for layer in own {
                let Some(found) = layers::read(&self.layers(), layer)? else {
                    whole = false;
                    continue;
                };
                bytes += found.bytes;
                own_bytes += if elsewhere.contains(layer) { 0 } else { found.bytes };
                in_use |= layers::is_in_use(&self.layers(), layer);
            }
            listed.push(Listed {
                name: record.name.clone(),
                digest: record.digest.clone(),
                layers: record.layers.len(),
                bytes,
                own_bytes,
                in_use,
                whole,
                since: record.since,
                last_used: *last_used,
            });
        }
        listed.sort_by(|one, two| one.name.cmp(&two.name));
        Ok(listed)
    }
}

pub(super) fn read(names: &Path, reference: &Reference) -> Result<Option<Record>, ImageError> {
    let path = place(names, reference);
    files::read(&path).map_err(ImageError::store("read", path))
}

pub(super) fn write(names: &Path, reference: &Reference, record: &Record) -> Result<(), ImageError> {
    let path = place(names, reference);
    files::write_whole(&path, record).map_err(ImageError::store("write", path))
}

pub(super) fn remove(names: &Path, reference: &Reference) -> Result<bool, ImageError> {
    remove_named(names, &reference.to_string())
}

/// The same, of a full name.
pub(super) fn remove_named(names: &Path, name: &str) -> Result<bool, ImageError> {
    let path = place_of(names, name);
    match fs::remove_file(&path) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(source) => Err(ImageError::Store { step: "remove", path, source }),
    }
}

/// That it is used now. A store that cannot be written to can still be read.
pub(super) fn touch(names: &Path, reference: &Reference) {
    let times = FileTimes::new().set_modified(SystemTime::now());
    let _ = File::open(place(names, reference)).and_then(|file| file.set_times(times));
}

/// All records, and when each was last used. One that cannot be read is an error: which layers it names is not known.
pub(super) fn all(names: &Path) -> Result<Vec<(Record, u64)>, ImageError> {
    let failed = |source| ImageError::Store { step: "read", path: names.to_path_buf(), source };
    let mut records = Vec::new();
    for entry in fs::read_dir(names).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if files::is_record(&path)
            && let Some(record) = files::read::<Record>(&path).map_err(ImageError::store("read", &path))?
        {
            let modified =
                fs::metadata(&path).and_then(|meta| meta.modified()).unwrap_or(SystemTime::UNIX_EPOCH);
            records.push((record, milliseconds(modified)));
        }
    }
    Ok(records)
}

pub(super) fn milliseconds(time: SystemTime) -> u64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// A name may have anything in it and be of any length; its digest is a good name for a file.
fn place(names: &Path, reference: &Reference) -> PathBuf {
    place_of(names, &reference.to_string())
}

fn place_of(names: &Path, name: &str) -> PathBuf {
    names.join(format!("{}.json", Digest::of(name.as_bytes()).hex()))
}
