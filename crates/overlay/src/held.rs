//! A locked layer: no other process applies it, discards it or runs in it.

use super::apply::{self, Applied, Mended, Selection, found};
use super::beneath::{self, Beneath};
use super::change::{ChangeKind, Changes};
use super::error::LayerError;
use super::guard::Guard;
use super::record::Layer;
use super::{rename, walk};
use belljar_state::damage::read_small;
use belljar_state::{Lock, Survives, remove_whole, write_atomic};
use belljar_sys::rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::fs;
use std::io;
use std::ops::Deref;
use std::path::{Path, PathBuf};

/// A layer that is locked until this is dropped, or we die.
#[derive(Debug)]
pub struct Held {
    layer: Layer,
    _lock: Lock,
}

/// The outcome of a run for its layer.
#[derive(Debug)]
pub enum Outcome {
    /// Nothing changed; the layer was removed.
    Unchanged,
    /// It is kept; `unnoted` is why the notes on it could not be written beside it.
    Changed { summary: Summary, unnoted: Option<LayerError> },
}

/// Whether a run made commits that the host's branches do not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Commits {
    None,
    Some,
}

/// Numbers of changed files.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Summary {
    pub added: usize,
    /// Including changes of type or mode.
    pub modified: usize,
    pub deleted: usize,
    pub renamed: usize,
    pub left_out: usize,
}

impl Held {
    pub(super) fn new(layer: Layer, lock: Lock) -> Held {
        Held { layer, _lock: lock }
    }

    /// The end of a run: a layer without a change and without commits is removed.
    pub fn finish(self, commits: Commits) -> Result<Outcome, LayerError> {
        let (upper, host) = self.sides()?;
        let mut changes = walk::changes(&upper, &host, &self.guard())?;
        let worth_keeping = commits == Commits::Some
            || !changes.list.is_empty()
            || changes.left_out.iter().any(|out| out.why.is_loss());
        if worth_keeping {
            let noted = found::write(&self, &changes);
            rename::find(&mut changes.list, &upper, &host);
            let summary = Summary::of(&changes);
            // A full disk does not change the outcome of the run: without these notes, `apply` is more careful and `layers` shows
            // no counts.
            let noted = noted.and_then(|()| summary.write(&self));
            return Ok(Outcome::Changed { summary, unnoted: noted.err() });
        }
        self.discard()?;
        Ok(Outcome::Unchanged)
    }

    /// Prepares the layer for another run in it.
    pub fn resume(self) -> Result<Held, LayerError> {
        found::forget(&self)?;
        Summary::forget(&self)?;
        Ok(self)
    }

    /// Applies all of it, or the selection. Either all of that happens or nothing. If the layer has nothing left, the caller
    /// discards it.
    pub fn apply(&self, selection: &Selection) -> Result<Applied, LayerError> {
        apply::apply(self, selection, &mut |_| {})
    }

    /// Finishes or undoes an interrupted apply.
    pub fn mend(self) -> Result<Mended, LayerError> {
        apply::mend(self)
    }

    /// Removes it with everything in it.
    pub fn discard(self) -> Result<(), LayerError> {
        let directory = &self.layer.directory;
        // From here on it is not listed; the next sweep removes the files that are not removed now.
        let removed = remove_whole(directory);
        removed.map_err(|source| LayerError::Store {
            step: "remove the layer",
            path: directory.clone(),
            source,
        })
    }

    /// The layer itself, without the lock.
    pub fn release(self) -> Layer {
        self.layer
    }
}

impl Layer {
    /// Where the sandbox's own git directories are, if its folder has repositories.
    pub fn git(&self) -> PathBuf {
        self.directory.join("git")
    }

    /// The changes it would make to its folder.
    pub fn changes(&self) -> Result<Changes, LayerError> {
        let (upper, host) = self.sides()?;
        walk::changes(&upper, &host, &self.guard())
    }

    /// The same, with moved files detected. Reads deleted and added files.
    pub fn changes_with_renames(&self) -> Result<Changes, LayerError> {
        let (upper, host) = self.sides()?;
        let mut changes = walk::changes(&upper, &host, &self.guard())?;
        rename::find(&mut changes.list, &upper, &host);
        Ok(changes)
    }

    /// The size of the change when the last run in it ended; `None` if no run has, or it was applied in part since. Does not walk
    /// the layer.
    pub fn counted(&self) -> Option<Summary> {
        let text = read_small(&self.directory.join(SUMMARY), 4096).ok()?;
        serde_json::from_slice(&text).ok()
    }

    /// The present size of the change: walks the whole layer.
    pub fn summary(&self) -> Result<Summary, LayerError> {
        Ok(Summary::of(&self.changes_with_renames()?))
    }

    pub(super) fn sides(&self) -> Result<(Beneath, Beneath), LayerError> {
        let failed = |step, path: &Path, source| LayerError::Store { step, path: path.into(), source };
        let upper =
            Beneath::open(&self.upper).map_err(|source| failed("open the layer's", &self.upper, source))?;
        Ok((upper, self.open_folder()?))
    }

    /// The folder, if it is the one that the layer was made for. A sandbox that works in a parent directory can replace it by a
    /// link or another directory, and an apply would write there.
    fn open_folder(&self) -> Result<Beneath, LayerError> {
        let changed = || LayerError::FolderChanged { id: self.id, folder: self.folder.clone() };
        let failed =
            |source| LayerError::Store { step: "open the layer's folder", path: self.folder.clone(), source };
        let host = match Beneath::open_without_links(&self.folder) {
            Err(error) if is_in_the_way(&error) => return Err(changed()),
            host => host.map_err(failed)?,
        };
        let found = beneath::identity_of(host.root()).map_err(failed)?;
        if found.is(&self.identity) { Ok(host) } else { Err(changed()) }
    }

    pub(super) fn guard(&self) -> Guard {
        Guard::new(&self.protected)
    }
}

impl Summary {
    /// Stores it for [`Layer::counted`].
    fn write(&self, layer: &Layer) -> Result<(), LayerError> {
        let path = layer.directory.join(SUMMARY);
        let text = serde_json::to_vec(self).expect("plain data can be written as JSON");
        write_atomic(&path, &text, Survives::Kill).map_err(|source| LayerError::Store {
            step: "write",
            path,
            source,
        })
    }

    /// Discards the stored counts.
    pub(super) fn forget(layer: &Layer) -> Result<(), LayerError> {
        let path = layer.directory.join(SUMMARY);
        match fs::remove_file(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed.map_err(|source| LayerError::Store { step: "remove", path, source }),
        }
    }

    /// Counts the changes.
    pub fn of(changes: &Changes) -> Summary {
        let mut summary = Summary { left_out: changes.left_out.len(), ..Summary::default() };
        for change in &changes.list {
            // A directory counts only if it is the whole change.
            match change.kind() {
                ChangeKind::Added if change.is_directory() => {}
                ChangeKind::Deleted if change.is_directory() => {}
                ChangeKind::Added => summary.added += 1,
                ChangeKind::Deleted => summary.deleted += 1,
                ChangeKind::Renamed => summary.renamed += 1,
                ChangeKind::Modified | ChangeKind::TypeChanged | ChangeKind::ModeChanged => {
                    summary.modified += 1
                }
            }
        }
        summary
    }

    /// All files that changed.
    pub fn files(&self) -> usize {
        self.added + self.modified + self.deleted + self.renamed
    }
}

/// Whether a link or a file replaces a directory.
fn is_in_the_way(error: &io::Error) -> bool {
    [Errno::LOOP, Errno::NOTDIR].iter().any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}

impl Deref for Held {
    type Target = Layer;

    fn deref(&self) -> &Layer {
        &self.layer
    }
}

const SUMMARY: &str = "summary.json";
