//! Layers that a stopped sandbox needs.
//!
//! A pin is in two places: here, where gc finds it, and as a word in its owner's directory, without which it says nothing.
//! A directory that was removed and made again under the same name has no such word.

use super::files;
use super::names::Record;
use crate::digest::Digest;
use crate::document::RunConfig;
use crate::error::ImageError;
use crate::image::Image;
use belljar_spec::ImageName;
use belljar_state::Lock;
use serde::{Deserialize, Serialize};
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

#[derive(Debug, Serialize, Deserialize)]
struct Pin {
    #[serde(rename = "keeper")]
    owner: PathBuf,
    /// What the owner's own file says.
    word: String,
    name: String,
    record: Record,
}

/// The store is locked meanwhile: gc would take a half-written pin for one without an owner.
pub(crate) fn write(store: &Path, owner: &Path, image: &Image) -> Result<(), ImageError> {
    let lock = store.join("lock");
    let _hold = Lock::share(&lock).map_err(ImageError::store("lock", lock))?;
    let path = place(store, owner);
    let env = image.environment.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let run = RunConfig {
        user: image.user.clone(),
        env: Some(env),
        working_dir: image.working_dir.clone(),
        entrypoint: None,
        cmd: Some(image.command.clone()),
    };
    let record = Record {
        name: image.name.to_string(),
        digest: image.digest.clone(),
        layers: image.layers.clone(),
        run,
        since: 0,
    };
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let word = format!("{}-{}", files::unique(), since.as_nanos());
    let pin = Pin { owner: owner.to_path_buf(), word: word.clone(), name: image.name.to_string(), record };
    files::write_whole(&path, &pin).map_err(ImageError::store("write", path))?;
    let own = owner.join(WORD);
    files::write_whole(&own, &word).map_err(ImageError::store("write", own))
}

pub(super) fn read(store: &Path, owner: &Path) -> Result<Option<(ImageName, Record)>, ImageError> {
    let path = place(store, owner);
    let pin: Option<Pin> = files::read(&path).map_err(ImageError::store("read", &path))?;
    let Some(pin) = pin.filter(|pin| pin.owner == owner) else { return Ok(None) };
    if pin.is_stale()? {
        return Ok(None);
    }
    let name =
        pin.name.parse().map_err(|error| io::Error::new(io::ErrorKind::InvalidData, format!("{error}")));
    Ok(Some((name.map_err(ImageError::store("understand", path))?, pin.record)))
}

/// The layers that pins name. Pins whose owner is gone are removed, but for a dry run. One that cannot be read is an error,
/// if its owner may exist: which layers it names is not known.
pub(super) fn layers(store: &Path, remove: bool) -> Result<Vec<Digest>, ImageError> {
    let pins = store.join("pins");
    let failed = |source| ImageError::Store { step: "read", path: pins.clone(), source };
    let mut named = Vec::new();
    for entry in fs::read_dir(&pins).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if !files::is_record(&path) {
            continue;
        }
        let pin = match files::read::<Pin>(&path) {
            Ok(None) => continue,
            Ok(Some(pin)) if !pin.is_stale()? => Some(pin),
            Ok(Some(_)) => None,
            Err(error) if is_damaged_and_stale(&path, &error)? => None,
            Err(error) => return Err(ImageError::store("read", path)(error)),
        };
        match pin {
            Some(pin) => named.extend(pin.record.layers),
            None if remove => drop(fs::remove_file(&path)),
            None => {}
        }
    }
    Ok(named)
}

/// Whether a pin that cannot be understood still says who keeps it, and they do not.
fn is_damaged_and_stale(path: &Path, error: &io::Error) -> Result<bool, ImageError> {
    if error.kind() != io::ErrorKind::InvalidData {
        return Ok(false);
    }
    let bytes = files::read_bytes(path).map_err(ImageError::store("read", path))?.unwrap_or_default();
    match Whose::at_the_beginning(&bytes) {
        Some(Whose { owner, word }) => is_stale(&owner, &word),
        None => Ok(false),
    }
}

impl Pin {
    fn is_stale(&self) -> Result<bool, ImageError> {
        is_stale(&self.owner, &self.word)
    }
}

/// Whether the owner is gone, or another one. What cannot be looked at may be there.
fn is_stale(owner: &Path, word: &str) -> Result<bool, ImageError> {
    let own = owner.join(WORD);
    match files::read::<String>(&own) {
        Ok(found) => Ok(found.as_deref() != Some(word)),
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => Ok(true),
        Err(error) => Err(ImageError::store("read", own)(error)),
    }
}

/// Who keeps a pin: its first two fields.
struct Whose {
    owner: PathBuf,
    word: String,
}

impl Whose {
    /// Of a pin whose end is missing or damaged.
    fn at_the_beginning(pin: &[u8]) -> Option<Whose> {
        let rest = pin.trim_ascii_start().strip_prefix(b"{")?;
        let (owner, rest) = field("keeper", rest)?;
        let (word, _) = field("word", rest.trim_ascii_start().strip_prefix(b",")?)?;
        Some(Whose { owner: owner.into(), word })
    }
}

/// A field of an object, which is a text, and what is behind it.
fn field<'a>(name: &str, object: &'a [u8]) -> Option<(String, &'a [u8])> {
    let (key, rest) = text(object)?;
    let (value, rest) = text(rest.trim_ascii_start().strip_prefix(b":")?)?;
    (key == name).then_some((value, rest))
}

fn text(json: &[u8]) -> Option<(String, &[u8])> {
    let mut texts = serde_json::Deserializer::from_slice(json).into_iter::<String>();
    let text = texts.next()?.ok()?;
    Some((text, &json[texts.byte_offset()..]))
}

fn place(store: &Path, owner: &Path) -> PathBuf {
    store.join("pins").join(format!("{}.json", Digest::of(owner.as_os_str().as_bytes()).hex()))
}

/// The owner's file.
const WORD: &str = "image.json";
