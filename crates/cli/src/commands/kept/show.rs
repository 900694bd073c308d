//! The sandbox of a folder as it would be made, for `belljar show-run`.

use super::hold::request;
use super::repository::Repository;
use super::volume;
use crate::failure::say_notes;
use belljar_api::SandboxRequest;
use belljar_fleet::request::{Surroundings, understand};
use belljar_fleet::{Place, name_of};
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
    let request = request(&repository, SandboxRequest::default())?;
    let volumes = volume::all()?;
    let key = repository.key();
    let name = name_of(&key);
    // Beside the volumes, as the fleet has it.
    let place = Place::new(volumes.with_file_name("sandboxes").join(&name));
    let surroundings = Surroundings { name, key, id: None, persistent: true, place, volumes };
    let understood = understand(&request.sandbox, &surroundings)?;
    say_notes(&understood.notes);
    Ok(Some(understood.spec))
}
