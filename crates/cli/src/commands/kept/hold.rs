//! A hold on a sandbox: found, woken up or made, and kept alive while we use it.

use super::repository::Repository;
use super::shell_rc;
use super::target::{Target, no_sandbox_of};
use crate::failure::of_client;
use belljar_api::{CreateSandbox, Created, SandboxInfo, SandboxRequest, State};
use belljar_client::{Client, Sandbox};
use belljar_spec::SandboxError;
use std::path::PathBuf;

/// A sandbox that stays as long as we hold it.
pub(super) struct Held {
    pub(super) sandbox: Sandbox,
    pub(super) info: SandboxInfo,
    /// Where in the workspace we stand.
    pub(super) below: Option<PathBuf>,
    lease: String,
}

impl Held {
    /// The sandbox that is meant, alive: one that stopped is woken up, and one of a folder that is ready for it is made.
    pub(super) async fn take(client: &Client, target: &Target) -> Result<Held, SandboxError> {
        match target {
            Target::Folder(repository) => {
                if !repository.is_ready() {
                    return Err(no_sandbox_of(repository));
                }
                shell_rc::prepare(repository)?;
                let request = request(repository, SandboxRequest::default());
                let created = client.create(&request).await.map_err(of_client)?;
                Ok(Held::of(client, created, repository.below.clone()))
            }
            Target::Named(_) => {
                let found = target.find(client).await?;
                let request = match found.state {
                    // Nobody who joins may say anything of what is there.
                    State::Live => CreateSandbox { inherit: Some(found.name), ..CreateSandbox::default() },
                    State::Starting | State::Paused | State::Stopping | State::Stopped => {
                        CreateSandbox { key: Some(found.key), ..CreateSandbox::default() }
                    }
                };
                let created = client.create(&request).await.map_err(of_client)?;
                Ok(Held::of(client, created, None))
            }
        }
    }

    pub(super) fn of(client: &Client, created: Created, below: Option<PathBuf>) -> Held {
        say_notes(&created);
        let sandbox = client.sandbox(&created.sandbox.name).holding(&created.lease.id);
        Held { sandbox, info: created.sandbox, below, lease: created.lease.id }
    }

    /// Lets go of it.
    pub(super) async fn release(self) {
        // A lease that nobody gives back ends by itself, and a sandbox that is gone needs none.
        let _ = self.sandbox.release(&self.lease).await;
    }
}

/// The sandbox of a folder, as every command asks for it.
pub(super) fn request(repository: &Repository, mut sandbox: SandboxRequest) -> CreateSandbox {
    sandbox.workspace.folder = Some(repository.text().into());
    sandbox.workspace.branch = repository.branch.as_ref().map(ToString::to_string);
    for volume in [repository.history(), repository.config()].into_iter().flatten() {
        sandbox.volumes.insert(volume.name, volume.inside.into());
    }
    for (name, value) in shell_rc::variables() {
        sandbox.env.entry(name.into()).or_insert(value);
    }
    CreateSandbox { key: Some(repository.key()), sandbox, ..CreateSandbox::default() }
}

/// What a person should know.
pub(super) fn say_notes(created: &Created) {
    for note in &created.notes {
        eprintln!("belljar: {note}");
    }
}
