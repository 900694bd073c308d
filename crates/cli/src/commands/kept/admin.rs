//! `belljar admin`: a shell for the person whose machine it is, beside a folder's sandbox.

use super::daemon::client;
use super::hold::{Held, request};
use super::repository::Repository;
use super::{shell, shell_rc};
use crate::args::AdminArgs;
use crate::commands::block_on;
use crate::failure::of_client;
use belljar_api::SandboxRequest;
use belljar_spec::SandboxError;

pub(crate) fn admin(options: AdminArgs) -> Result<u8, SandboxError> {
    let repository = match options.folder {
        Some(folder) => Repository::of(&folder, options.branch)?,
        None => Repository::here(options.branch)?,
    };
    shell_rc::prepare(&repository)?;
    let asked = SandboxRequest { admin: true, root: options.root, ..SandboxRequest::default() };
    let mut asked = request(&repository, asked)?;
    // One of its own, which goes with the shell: the folder's sandbox stays as it is.
    asked.key = None;
    asked.persistent = Some(false);
    block_on(async {
        let client = client();
        let created = client.create(&asked).await.map_err(of_client)?;
        let held = Held::of(&client, created, repository.below.clone());
        let who = if options.root { " as root" } else { "" };
        eprintln!(
            "belljar: an administrator{who}: what is protected in {} can be changed",
            repository.folder.display()
        );
        let outcome = shell::open(&held).await;
        // Its end is also the end of all it started.
        let removed = held.sandbox.delete().await.map_err(of_client);
        outcome.and_then(|code| removed.map(|()| code))
    })
}
