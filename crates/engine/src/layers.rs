//! Layers together with the commits that were made in them.

use crate::git_session::{End, GitSession, name_of};
use belljar_spec::SandboxError;
use belljar_workspace::layer::{Applied, Held, Layer, Selection};
use belljar_workspace::private_git::{self, ImportReport, Refs};
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
    let report = match selection {
        Selection::All => follow(state, &held)?,
        Selection::Paths(_) => ImportReport::default(),
    };
    let waits = *selection != Selection::All && !commits_of_layer(layer).is_empty();
    applied.kept |= waits || report.leaves_some_inside();
    if !applied.kept {
        held.discard()?;
    }
    Ok((applied, report))
}

fn follow(state: &Path, held: &Held) -> Result<ImportReport, SandboxError> {
    let Some(session) = GitSession::of_layer(state, held)? else { return Ok(ImportReport::default()) };
    if let Some(dot_git) = session.replaced() {
        let note = format!(
            "`{}` is not the repository any more that the layer {} began with: commits stay in the layer",
            dot_git.display(),
            held.id
        );
        return Ok(ImportReport { notes: vec![note], is_partial: true, ..ImportReport::default() });
    }
    Ok(session.finish(End::Killed))
}

/// Removes a layer with the commits that were made in it.
pub fn discard_layer(state: &Path, layer: &Layer) -> Result<(), SandboxError> {
    let held = layer.hold()?;
    if let Some(session) = GitSession::of_layer(state, &held)? {
        session.forget()?;
    }
    Ok(held.discard()?)
}

/// Refs that were moved inside, by their names there, whose commits the host has only as `refs/belljar/LAYER/...`.
pub fn commits_of_layer(layer: &Layer) -> Refs {
    private_git::waiting(&layer.directory, name_of(layer.id))
}
