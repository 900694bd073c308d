//! Applies a layer to its folder: the whole selection, or nothing.
//!
//! ```text
//!  judge ──> stage ──> journal ──> swap, one file after the other ──> commit ──> prune, clear
//!    │         │                     │                                  │
//!    └─ refused└─ failed: cleared    └─ failed: undone, in reverse      └─ killed from here on: finished
//!                 killed: cleared       killed: undone                     by the next command
//! ```
//!
//! All new content is first copied into one directory beside the folder's files, on their filesystem, and is on disk before the
//! journal names the steps. A file is replaced by exchanging it with its copy, so that the replaced file can be checked afterwards
//! and put back if it is not the one that was judged. The journal's name is its state, and a rename needs no space: a full disk can
//! stop an apply, but not leave it half done.

mod choose;
pub(super) mod found;
mod journal;
mod judge;
mod plan;
mod prune;
mod restored;
mod stage;
mod swap;
mod touched;

pub use choose::Selection;

use super::beneath::Beneath;
use super::change::LeftOut;
use super::error::{Conflict, LayerError};
use super::held::{Held, Summary};
use super::path::RelPath;
use super::quote;
use super::record::Layer;
use super::walk;
use belljar_sys::remove_tree::remove_at;
use found::Found;
use journal::{Journal, State};
use restored::Restored;
use std::io;
use std::os::unix::ffi::OsStrExt;
use swap::{Stopped, Swaps};
use touched::Touched;

/// The result of an apply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Applied {
    /// In the order of their paths; directories too.
    pub paths: Vec<RelPath>,
    /// Changes of the layer that are never applied.
    pub left_out: Vec<LeftOut>,
    /// Whether the layer has any changes left.
    pub kept: bool,
}

/// The outcome of an interrupted apply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mended {
    /// There was no interrupted apply.
    Nothing,
    /// The folder is as it was before, except for these files, which were changed on the host since.
    Undone { left: Vec<RelPath> },
    /// All of it was applied.
    Finished,
}

/// A point of an apply at which tests stop it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Point {
    Judged,
    Staging(usize),
    Staged,
    Journaled,
    /// Before the step of this number, and after it.
    Before(usize),
    After(usize),
    Swapped,
    Committed,
    Pruned,
    Cleared,
}

/// Applies the selection of a locked layer. A layer with nothing left is not removed.
pub(super) fn apply(
    held: &Held,
    selection: &Selection,
    reached: &mut dyn FnMut(Point),
) -> Result<Applied, LayerError> {
    undo_or_finish(held)?;
    let (upper, host) = held.sides()?;
    if let Selection::Paths(_) = selection {
        prune::unfold(&upper, &host)?;
    }
    let mut changes = walk::changes(&upper, &host, &held.guard())?;
    let loss = changes.left_out.iter().any(|out| out.why.is_loss());
    if loss && *selection == Selection::All {
        // The layer stays for the changes that are left out, and holds only those: the rest is removed from it as after a partial
        // apply.
        prune::unfold(&upper, &host)?;
        changes = walk::changes(&upper, &host, &held.guard())?;
    }
    let mut chosen = choose::choose(held, &changes, selection, &upper, &host)?;
    chosen.whole &= !loss;
    let known = judge::Known {
        restored: Restored::read(held)?,
        touched: Touched::read(held)?,
        found: Found::read(held)?,
    };
    let conflicts = judge::judge(&chosen, &changes, held, &known, &upper, &host);
    if !conflicts.is_empty() {
        return Err(LayerError::Conflicts(conflicts));
    }
    reached(Point::Judged);
    let mut applied = Applied {
        paths: chosen.list.iter().map(|change| change.path.clone()).collect(),
        left_out: changes.left_out.clone(),
        kept: false,
    };
    if !chosen.list.is_empty() {
        // The counts are about to become wrong.
        Summary::forget(held)?;
        let journal = Journal::new(held, chosen.whole, prune::later(&chosen, &changes));
        carry_out(held, journal, &chosen, &upper, &host, reached)?;
    }
    applied.kept = loss || (!chosen.whole && !walk::changes(&upper, &host, &held.guard())?.list.is_empty());
    reached(Point::Cleared);
    Ok(applied)
}

/// Finishes or undoes an interrupted apply, in a locked layer.
pub(super) fn mend(held: Held) -> Result<Mended, LayerError> {
    match undo_or_finish(&held)? {
        // Commits that were made in it are imported by the next `apply`, which then finds nothing else to do.
        (Mended::Finished, true) if !held.git().exists() => {
            held.discard()?;
            Ok(Mended::Finished)
        }
        (mended, _) => Ok(mended),
    }
}

/// Whether an apply was interrupted, or is in progress.
pub(super) fn is_unfinished(layer: &Layer) -> bool {
    journal::find(layer).is_some()
}

fn carry_out(
    layer: &Layer,
    mut journal: Journal,
    chosen: &choose::Chosen,
    upper: &Beneath,
    host: &Beneath,
    reached: &mut dyn FnMut(Point),
) -> Result<(), LayerError> {
    // Check before the journal names it: recovery from the journal removes the directory of that name.
    stage::is_free(host, &journal.staging)?;
    Touched::read(layer)?.add(&journal, layer)?;
    journal.write(layer, State::Staging)?;
    let place = match stage::make(host, &journal.staging) {
        Ok(place) => place,
        Err(error) => {
            journal::remove(layer)?;
            return Err(error);
        }
    };
    let staged = stage::stage(place, &mut journal, chosen, upper, host, reached);
    reached(Point::Staged);
    let written = staged
        .and_then(|()| Touched::read(layer)?.add(&journal, layer))
        .and_then(|()| journal.write(layer, State::Swapping));
    if let Err(error) = written {
        clear(layer, &journal, host)?;
        return Err(error);
    }
    reached(Point::Journaled);
    let swaps = match Swaps::open(host, &journal) {
        Ok(swaps) => swaps,
        Err(source) => {
            clear(layer, &journal, host)?;
            return Err(LayerError::Store {
                step: "open the staging place in",
                path: layer.folder.clone(),
                source,
            });
        }
    };
    let committed = swaps
        .all(&journal, reached)
        .and_then(|()| swaps.still_as_judged(&journal))
        .and_then(|()| swaps.on_disk(&journal))
        .and_then(|()| {
            reached(Point::Swapped);
            journal.commit(layer).map_err(Stopped::Failed)
        });
    if let Err(stopped) = committed {
        undo(layer, &journal, host)?;
        return Err(match stopped {
            Stopped::Conflict(path, why) => LayerError::Conflicts(vec![Conflict { path, why }]),
            Stopped::Failed(error) => error,
        });
    }
    reached(Point::Committed);
    finish(layer, &journal, upper, host, reached)
}

/// After the commit: removes the replaced files, and the layer's entries that are no longer changes.
fn finish(
    layer: &Layer,
    journal: &Journal,
    upper: &Beneath,
    host: &Beneath,
    reached: &mut dyn FnMut(Point),
) -> Result<(), LayerError> {
    if !journal.whole {
        prune::prune(&journal.later, upper);
        // A sandbox that continues in this layer sees them like this.
        Restored::read(layer)?.add(swap::applied(journal, host), layer)?;
    }
    reached(Point::Pruned);
    clear(layer, journal, host)
}

fn undo(layer: &Layer, journal: &Journal, host: &Beneath) -> Result<Vec<RelPath>, LayerError> {
    let failed = |path: String| move |source| LayerError::Undo { id: layer.id, path, source };
    let left = match Swaps::open(host, journal) {
        Ok(swaps) => {
            let undone = swaps.undo(journal);
            let left = undone.map_err(|(path, source)| failed(format!("`{path}`"))(source))?;
            Restored::read(layer)?.add(swaps.restored(journal), layer)?;
            left
        }
        // It was undone before, and only the cleanup is missing.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        Err(source) => {
            let folder = quote::name(layer.folder.as_os_str().as_bytes());
            return Err(failed(format!("`{folder}`"))(source));
        }
    };
    clear(layer, journal, host)?;
    Ok(left)
}

/// Removes the staging directory, then the journal.
fn clear(layer: &Layer, journal: &Journal, host: &Beneath) -> Result<(), LayerError> {
    let failed =
        |source| LayerError::Store { step: "clear the staging place in", path: layer.folder.clone(), source };
    remove_at(host.root(), journal.staging.as_bytes()).map_err(failed)?;
    journal::remove(layer)
}

/// The outcome, and whether the whole layer was applied.
fn undo_or_finish(layer: &Layer) -> Result<(Mended, bool), LayerError> {
    let Some(state) = journal::find(layer) else { return Ok((Mended::Nothing, false)) };
    let journal = Journal::read(layer, state)?;
    let (upper, host) = layer.sides()?;
    match state {
        State::Staging => {
            clear(layer, &journal, &host)?;
            Ok((Mended::Undone { left: Vec::new() }, false))
        }
        State::Swapping => Ok((Mended::Undone { left: undo(layer, &journal, &host)? }, false)),
        State::Committed => {
            finish(layer, &journal, &upper, &host, &mut |_| {})?;
            Ok((Mended::Finished, journal.whole))
        }
    }
}
