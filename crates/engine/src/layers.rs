//! Layers together with the commits that were made in them.

use crate::git_session::{End, GitSession, name_of};
use belljar_overlay::{Applied, Held, Layer, Selection};
use belljar_spec::SandboxError;
use belljar_workspace::inert::Leash;
use belljar_workspace::private_git::{self, ImportMode, ImportReport, Refs};
use std::path::Path;

/// Applies a layer, or a part of it. With all of it, the folder's branch, index and HEAD go along with the commits that were made
/// inside; with a part, commits stay where they are. A layer that has nothing left is removed.
pub fn apply_layer(
    state: &Path,
    layer: &Layer,
    selection: &Selection,
) -> Result<(Applied, ImportReport), SandboxError> {
    let held = layer.hold()?;
    let mut applied = held.apply(selection)?;
    let (mode, is_part) = match selection {
        Selection::All => (ImportMode::Bind, false),
        // What was committed and never imported, since belljar was killed, must not go with the layer.
        Selection::Paths(_) => (ImportMode::Overlay, true),
    };
    let mut report = import(state, &held, mode)?;
    let aside = private_git::put_aside_in(&held.directory, name_of(held.id));
    report.notes.extend(aside.iter().map(|place| {
        format!(
            "`{}` may have commits of an earlier run in the layer that were not imported: the layer is kept; discard {} to remove both",
            place.display(),
            held.id
        )
    }));
    let waits = is_part && !commits_of_layer(layer).is_empty();
    applied.kept |= waits || report.is_partial || report.leaves_some_inside() || !aside.is_empty();
    if is_part {
        report =
            ImportReport { notes: report.notes, is_partial: report.is_partial, ..ImportReport::default() };
    }
    if !applied.kept {
        held.discard()?;
    }
    Ok((applied, report))
}

fn import(state: &Path, held: &Held, mode: ImportMode) -> Result<ImportReport, SandboxError> {
    let Some(session) = GitSession::of_layer(state, held, mode)? else { return Ok(ImportReport::default()) };
    if let Some(dot_git) = session.replaced() {
        let note = format!(
            "`{}` is not the repository any more that the layer {} began with: commits stay in the layer",
            dot_git.display(),
            held.id
        );
        return Ok(ImportReport { notes: vec![note], is_partial: true, ..ImportReport::default() });
    }
    Ok(session.finish(End::Killed(&Leash::after_end())))
}

/// Removes a layer with the commits that were made in it, and says what had to stay.
pub fn discard_layer(state: &Path, layer: &Layer) -> Result<Vec<String>, SandboxError> {
    let held = layer.hold()?;
    let session = GitSession::of_layer(state, &held, ImportMode::Overlay)?;
    let notes = session.map(|session| session.forget()).transpose()?.unwrap_or_default();
    held.discard()?;
    Ok(notes)
}

/// Refs that were moved inside, by their names there, whose commits the host has only as `refs/belljar/LAYER/...`.
pub fn commits_of_layer(layer: &Layer) -> Refs {
    private_git::waiting(&layer.directory, name_of(layer.id))
}
