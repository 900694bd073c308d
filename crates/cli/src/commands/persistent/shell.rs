//! A shell in a folder's sandbox, which keeps running beside it.

use super::daemon::client;
use super::exec::{NO_LIMIT, in_foreground, standing};
use super::hold::Held;
use super::repository::Repository;
use super::shell_rc;
use super::target::Target;
use crate::commands::block_on;
use crate::foreground::terminal_size;
use belljar_api::StartCommand;
use belljar_spec::SandboxError;
use belljar_spec::git::BranchName;
use std::path::Path;

/// The folder whose sandbox a shell joins, if it is one that was made ready.
pub(crate) fn joins(
    folder: Option<&Path>,
    branch: Option<BranchName>,
) -> Option<impl FnOnce() -> Result<u8, SandboxError>> {
    let repository = match folder {
        Some(folder) => Repository::of(folder, branch),
        None => Repository::here(branch),
    };
    let repository = repository.ok().filter(Repository::is_ready)?;
    Some(move || join(repository))
}

fn join(repository: Repository) -> Result<u8, SandboxError> {
    let target = Target::Folder(repository);
    block_on(async {
        let held = Held::take(&client(), &target).await?;
        let outcome = open(&held).await;
        held.release().await;
        outcome
    })
}

/// Opens a shell in a sandbox that we hold.
pub(super) async fn open(held: &Held) -> Result<u8, SandboxError> {
    open_as(held, shell_rc::interactive()).await
}

/// The same, with nothing but what the sandbox's private home says: no file that another sandbox could have written.
pub(super) async fn open_plain(held: &Held) -> Result<u8, SandboxError> {
    open_as(held, shell_rc::plain()).await
}

async fn open_as(held: &Held, interactive: Vec<String>) -> Result<u8, SandboxError> {
    let size = terminal_size();
    let info = &held.info;
    if size.is_some() {
        let isolation = match (&info.backend, &info.assurance) {
            (Some(backend), Some(assurance)) => format!(" ({backend}, {assurance})"),
            _ => String::new(),
        };
        let inside = info.workspace.as_deref().unwrap_or("/workspace");
        eprintln!(
            "belljar: you are inside {}{isolation}; the folder is {inside}; exit with ctrl-D",
            info.name
        );
    }
    let command = StartCommand {
        // Commands from a pipe need no prompt.
        argv: (if size.is_some() { interactive } else { shell_rc::piped() })
            .into_iter()
            .map(Into::into)
            .collect(),
        cwd: standing(held.below.as_deref()),
        timeout_s: Some(NO_LIMIT),
        ..StartCommand::default()
    };
    in_foreground(&held.sandbox, command, size).await
}
