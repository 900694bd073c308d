//! What a sandbox kept beside its place goes with it, where it is not to live again.

use belljar_engine::{Changes, Sandbox, discard_layer};
use belljar_overlay as layer;
use belljar_workspace::clone;
use std::path::Path;

/// Removes the layer or the clone of a sandbox that was disposed of. A managed clone belongs to its repository, not to the sandbox: it
/// stays.
pub(super) fn wipe(sandbox: &Sandbox) {
    let Ok(state) = belljar_state::state_directory() else { return };
    let outcome = match sandbox.changes() {
        Some(Ok(Changes::Layer { id, .. })) => discard(&state, &id.to_string()),
        Some(Ok(Changes::Clone { id, .. })) => clone::remove(&state, id).map_err(|error| error.to_string()),
        Some(Ok(Changes::None | Changes::Folder { .. } | Changes::ManagedClone { .. })) | None => Ok(()),
        Some(Err(error)) => Err(error.to_string()),
    };
    if let Err(error) = outcome {
        tracing::error!("what the sandbox kept could not be removed: {error}");
    }
}

fn discard(state: &Path, id: &str) -> Result<(), String> {
    for found in layer::Layers::at(state).beginning(id).map_err(|error| error.to_string())? {
        discard_layer(state, &found).map_err(|error| error.to_string())?;
    }
    Ok(())
}
