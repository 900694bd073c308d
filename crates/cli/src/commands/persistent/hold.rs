//! A hold on a sandbox: found, woken up or made, and kept alive while we use it.

use super::daemon::caller_environment;
use super::repository::Repository;
use super::shell_rc;
use super::target::{Target, no_sandbox_of};
use crate::failure::of_client;
use belljar_api::client::{Client, Sandbox, SandboxFilter};
use belljar_api::{CreateSandbox, Created, SandboxInfo, State};
use belljar_config::{self as config, EgressFlags};
use belljar_spec::request::{EnvValue, HostPath};
use belljar_spec::{ErrorCode, SandboxError, SandboxRequest, VolumeNameError, VolumePathError};
use belljar_sys::rustix::stdio::stderr;
use belljar_sys::rustix::termios::isatty;
use std::fmt::Display;
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
                let (request, _) = lease_request(client, repository, SandboxRequest::default()).await?;
                let created = client.create(&request).await.map_err(of_client)?;
                Held::of(client, created, repository.below.clone()).awake().await
            }
            Target::Named(_) => {
                let found = target.find(client).await?;
                let request = match found.state {
                    // A caller that joins may not change anything of the sandbox that is there.
                    State::Live => CreateSandbox { inherit: Some(found.name), ..CreateSandbox::default() },
                    State::Starting | State::Paused | State::Stopping | State::Stopped => {
                        let environment = caller_environment();
                        CreateSandbox { key: Some(found.key), environment, ..CreateSandbox::default() }
                    }
                };
                let created = client.create(&request).await.map_err(of_client)?;
                Held::of(client, created, None).awake().await
            }
        }
    }

    pub(super) fn of(client: &Client, created: Created, below: Option<PathBuf>) -> Held {
        say_notes(&created.notes);
        let sandbox = client.sandbox(&created.sandbox.name).holding(&created.lease.id);
        Held { sandbox, info: created.sandbox, below, lease: created.lease.id }
    }

    /// A paused sandbox runs no command.
    async fn awake(self) -> Result<Held, SandboxError> {
        if self.info.state != State::Paused {
            return Ok(self);
        }
        let name = self.info.name.clone();
        self.release().await;
        Err(paused(&name))
    }

    /// Holds it for longer.
    pub(super) async fn renew(&self) {
        // One that is gone cannot be held, which the next connection says.
        let _ = self.sandbox.renew(&self.lease, None).await;
    }

    /// Lets go of it.
    pub(super) async fn release(self) {
        // A lease that is not given back ends by itself, and a sandbox that is gone needs none.
        let _ = self.sandbox.release(&self.lease).await;
    }
}

/// The sandbox of a folder, where this was said of it, and the one that is there. What else belongs to it counts when it is made: one
/// that is there is taken as it is, also one of an older belljar.
pub(super) async fn lease_request(
    client: &Client,
    repository: &Repository,
    sandbox: SandboxRequest,
) -> Result<(CreateSandbox, Option<SandboxInfo>), SandboxError> {
    let filter = SandboxFilter { key: Some(repository.key()), state: None };
    let before = client.sandboxes(&filter).await.map_err(of_client)?.into_iter().next();
    let mut sandbox = sandbox;
    if before.is_some() && sandbox != SandboxRequest::default() {
        of_folder(repository, &mut sandbox);
    }
    let request = match before {
        Some(_) => CreateSandbox {
            key: Some(repository.key()),
            environment: caller_environment(),
            sandbox,
            ..CreateSandbox::default()
        },
        None => request(repository, sandbox)?,
    };
    Ok((request, before))
}

/// The sandbox of a folder, as it is made.
pub(super) fn request(
    repository: &Repository,
    mut sandbox: SandboxRequest,
) -> Result<CreateSandbox, SandboxError> {
    let profile = profile_of(repository)?;
    of_folder(repository, &mut sandbox);
    for volume in [repository.history(), repository.config()].into_iter().flatten() {
        let wrong = |error: &dyn Display| ErrorCode::WorkspaceFailed.error(error.to_string());
        let name = volume.name.parse().map_err(|error: VolumeNameError| wrong(&error))?;
        let inside = volume.inside.parse().map_err(|error: VolumePathError| wrong(&error))?;
        sandbox.volumes.insert(name, inside);
    }
    for (name, value) in shell_rc::variables() {
        let name = name.parse().expect("our own variables have names without `=`");
        sandbox.env.entry(name).or_insert(EnvValue::Text(value.into()));
    }
    let environment = caller_environment();
    Ok(CreateSandbox {
        key: Some(repository.key()),
        profile,
        environment,
        sandbox,
        ..CreateSandbox::default()
    })
}

/// The profile that the folder's configuration names.
pub(super) fn profile_of(repository: &Repository) -> Result<Option<String>, SandboxError> {
    let loaded = config::load(Some(&repository.folder), EgressFlags::default())?;
    Ok(loaded.sandbox().profile.map(|profile| profile.value))
}

pub(super) fn of_folder(repository: &Repository, sandbox: &mut SandboxRequest) {
    // A folder without links on the way is an absolute path.
    sandbox.workspace.folder = HostPath::try_from(repository.folder.clone()).ok();
    sandbox.workspace.branch = repository.branch.clone();
}

/// Why no command starts in it.
pub(super) fn paused(name: &str) -> SandboxError {
    ErrorCode::SandboxPaused
        .error(format!("{name} is paused"))
        .hint(format!("`belljar sandbox resume {name}`"))
}

/// What a person should know. The suggestion to hide a file is made when a sandbox is started by name, and not with each command in it.
pub(super) fn say_notes(notes: &[String]) {
    for note in notes.iter().filter(|note| !is_suggestion(note)) {
        eprintln!("belljar: {note}");
    }
}

/// The same with the suggestion, for a person at a terminal.
pub(super) fn say_all_notes(notes: &[String]) {
    say_notes(notes);
    for note in notes.iter().filter(|note| is_suggestion(note) && isatty(stderr())) {
        eprintln!("belljar: {note}");
        eprintln!(
            "  hint: `belljar start` takes `--hide PATH` and `--placeholders PATH` when it makes the sandbox; `visible` in `[workspace]` of \
             belljar.toml says that it may be read"
        );
    }
}

fn is_suggestion(note: &str) -> bool {
    note.starts_with(config::SECRET_VISIBLE_MESSAGE)
}
