//! The sandbox of a folder as it would be made, for `belljar sandbox plan`.

use super::hold::request;
use super::repository::Repository;
use super::volume;
use crate::failure::say_notes;
use belljar_api::SandboxRequest;
use belljar_engine::Engine;
use belljar_fleet::request::{Surroundings, understand};
use belljar_fleet::{Made, Profiles, SandboxDir, made, name_of};
use belljar_spec::git::BranchName;
use belljar_spec::{SandboxError, SandboxSpec};
use std::path::Path;

/// What the sandbox of this folder is; nothing, if it was not made ready for one.
pub(crate) fn spec(
    folder: Option<&Path>,
    branch: Option<BranchName>,
) -> Result<Option<SandboxSpec>, SandboxError> {
    let repository = match folder {
        Some(folder) => Repository::of(folder, branch)?,
        None => Repository::here(branch)?,
    };
    if !repository.is_ready() {
        return Ok(None);
    }
    let volumes = volume::all()?;
    let key = repository.key();
    let name = name_of(&key);
    // Beside the volumes, as the fleet has it.
    let place = SandboxDir::new(volumes.with_file_name("sandboxes").join(&name));
    // One that is there is shown as it would be woken: with the flags of its start, and by its profile as it is now.
    let (profile, requested) = match made(&place)? {
        Some(Made { profile, requested, .. }) => (Some(profile), requested),
        None => {
            let request = request(&repository, SandboxRequest::default())?;
            (request.profile, request.sandbox)
        }
    };
    let profiles = Profiles::of_this_machine(&Engine::new().backends())?;
    let sandbox = profiles.choose(profile.as_deref())?.apply(requested)?;
    let surroundings =
        Surroundings { name, key, id: None, persistent: true, place, volumes, is_owners: true };
    let resolved = understand(&sandbox, &surroundings)?;
    say_notes(&resolved.notes);
    Ok(Some(resolved.spec))
}
