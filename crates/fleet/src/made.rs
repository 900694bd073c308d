//! What a sandbox was made with, read from its place without a daemon: for those who show it, or make another one like it.

use crate::record::Record;
use crate::sandbox_dir::SandboxDir;
use belljar_api::SandboxRequest;
use belljar_spec::SandboxError;

/// A sandbox that is kept, as it was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Made {
    pub profile: String,
    /// With what the profile and the grant say of it.
    pub sandbox: SandboxRequest,
    /// What was asked for, before they did. Of an older record, the same as `sandbox`.
    pub requested: SandboxRequest,
    pub persistent: bool,
}

/// The sandbox of this place; nothing, if there is none. One whose record is damaged is an error, and is left as it is.
pub fn made(place: &SandboxDir) -> Result<Option<Made>, SandboxError> {
    if !place.directory().exists() {
        return Ok(None);
    }
    let Record { profile, sandbox, requested, persistent, .. } = Record::read(place)?;
    let requested = requested.unwrap_or_else(|| sandbox.clone());
    Ok(Some(Made { profile, sandbox, requested, persistent }))
}
