//! `belljar sandbox admin`: a shell for the person whose machine it is, beside a folder's sandbox.
//!
//! It is made like that sandbox and reaches no more, but may change what is protected. So nothing starts in it by itself that a sandbox
//! could have written: it has no volumes, none of the sandbox's variables, a home of its own that the host fills, and a shell that reads
//! its settings there.

use super::daemon::{caller_environment, client};
use super::hold::{Held, of_folder, profile_of};
use super::repository::Repository;
use super::{shell, volume};
use crate::args::AdminArgs;
use crate::commands::build::own_image;
use crate::commands::{block_on, changes};
use crate::failure::of_client;
use belljar_api::{CreateSandbox, SandboxRequest, WorkspaceRequest};
use belljar_config::{self as config, EgressFlags};
use belljar_fleet::{Made, SandboxDir, made, name_of};
use belljar_spec::{BackendChoice, BackendName, Root, Runtime, SandboxError};
use belljar_workspace::protect::{self, Baseline, Findings, LeftKind, Nested, Policy};

pub(crate) fn admin(options: AdminArgs) -> Result<u8, SandboxError> {
    let repository = match options.folder {
        Some(folder) => Repository::of(&folder, options.branch)?,
        None => Repository::here(options.branch)?,
    };
    let mut request = request(&repository, options.root)?;
    if let Some(image) = own_image(&options.image, || Ok(repository.folder.clone()), false)? {
        request.sandbox.backend = Some(BackendChoice::Named(BackendName::Docker(Runtime::Runc)));
        request.sandbox.rootfs = Some(Root::Image(image));
    }
    let protected = protected(&repository)?;
    block_on(async {
        let client = client();
        let created = client.create(&request).await.map_err(of_client)?;
        let held = Held::of(&client, created, repository.below.clone());
        let who = if options.root { " as root" } else { "" };
        eprintln!(
            "belljar: an administrator{who}: what is protected in {} can be changed",
            repository.folder.display()
        );
        let outcome = shell::open_plain(&held).await;
        // Its end is also the end of all it started.
        let removed = held.sandbox.delete().await.map_err(of_client);
        if let Some(protected) = &protected {
            say_changes(protected.compare());
        }
        outcome.and_then(|code| removed.map(|()| code))
    })
}

/// One of its own, which goes with the shell: the folder's sandbox stays as it is.
fn request(repository: &Repository, root: bool) -> Result<CreateSandbox, SandboxError> {
    let place = volume::all()?.with_file_name("sandboxes").join(name_of(&repository.key()));
    let (profile, like) = match made(&SandboxDir::new(place))? {
        Some(Made { profile, requested, .. }) => (Some(profile), requested),
        None => (profile_of(repository)?, SandboxRequest::default()),
    };
    Ok(CreateSandbox {
        profile,
        persistent: Some(false),
        environment: caller_environment(),
        sandbox: administrators(like, repository, root),
        ..CreateSandbox::default()
    })
}

/// The same sandbox without what others of the folder can write and a program would read by itself.
fn administrators(like: SandboxRequest, repository: &Repository, root: bool) -> SandboxRequest {
    let mut sandbox = SandboxRequest {
        workspace: WorkspaceRequest {
            // What is protected is in the folder itself, and no layer over it.
            overlay: false,
            agent_context: Vec::new(),
            ..like.workspace
        },
        env: Default::default(),
        volumes: Default::default(),
        ports: Vec::new(),
        admin: true,
        root,
        ..like
    };
    of_folder(repository, &mut sandbox);
    sandbox
}

/// What is protected in the folder, as it is now; nothing where the work is done on a branch beside it.
fn protected(repository: &Repository) -> Result<Option<Baseline>, SandboxError> {
    if repository.branch.is_some() {
        return Ok(None);
    }
    let loaded = config::load(Some(&repository.folder), EgressFlags::default())?;
    let more: Vec<_> = loaded.protected().into_iter().map(|path| path.value).collect();
    let less: Vec<_> = loaded.unprotected().into_iter().map(|path| path.value).collect();
    let policy = Policy { protect: &more, unprotect: &less };
    let view = protect::view_of_itself(&repository.folder, policy, None, Nested::Shared)?;
    Ok(Some(Baseline::take(&view)))
}

fn say_changes(found: Findings) {
    let (changed, other): (Vec<_>, Vec<_>) =
        found.left.into_iter().partition(|one| matches!(one.what, LeftKind::Held | LeftKind::Settings));
    for one in changed {
        eprintln!(
            "belljar: protected, and changed while this shell was open: `{}`",
            changes::shown(&one.path)
        );
    }
    changes::say_left(&other);
    changes::say_executed("changed while this shell was open", &found.executed);
}
