//! `belljar mcp`: the tools of a folder's sandbox for an agent that runs outside.

use super::daemon::client;
use super::hold::{lease_request, paused, say_notes};
use super::repository::Repository;
use super::shell_rc;
use super::start::differs;
use crate::args::{McpArgs, SandboxOptions};
use crate::commands::block_on;
use crate::failure::hint_of;
use belljar_api::State;
use belljar_mcp::{Conversation, LEASE, Opened, Opening, Server};
use belljar_spec::{ErrorCode, SandboxError, SandboxRequest};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use tokio::signal::unix::{SignalKind, signal};

pub(crate) fn mcp(options: McpArgs) -> Result<u8, SandboxError> {
    let McpArgs { folder, sandbox_options } = options;
    let repository = repository_of(folder, &sandbox_options)?;
    let same_path = !sandbox_options.says_workspace_path();
    let request = sandbox_options.request()?;
    let open: Opening = Box::new(move || Box::pin(open(repository.clone(), request.clone(), same_path)));
    let server = Server::new(Conversation::new(open, hint_of));
    block_on(async {
        let served = belljar_mcp::serve(server, tokio::io::stdin(), tokio::io::stdout(), end_signal()).await;
        match served {
            Ok(()) => Ok(0),
            // A client that went away has what it wanted.
            Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(0),
            Err(error) => Err(ErrorCode::StreamFailed
                .error(format!("cannot speak with the MCP client: {error}"))
                .caused_by(error)),
        }
    })
}

/// The folder that was named, or the current one.
pub(super) fn repository_of(
    folder: Option<PathBuf>,
    sandbox_options: &SandboxOptions,
) -> Result<Repository, SandboxError> {
    let branch = sandbox_options.branch();
    let repository = match folder.or_else(|| sandbox_options.folder()) {
        Some(folder) => Repository::of(&folder, branch)?,
        None => Repository::here(branch)?,
    };
    if !repository.is_ready() {
        repository.judge()?;
    }
    Ok(repository)
}

/// The folder's sandbox. A new one has the folder where it is on the host, unless it was said where: the client names files by
/// those paths.
pub(super) async fn open(
    repository: Repository,
    request: SandboxRequest,
    same_path: bool,
) -> Result<Opened, SandboxError> {
    shell_rc::prepare(&repository)?;
    let client = client();
    let (mut request, before) = lease_request(&client, &repository, request).await?;
    request.sandbox.workspace.same_path |= before.is_none() && same_path;
    request.lease_s = Some(LEASE.as_secs());
    let created = client.create(&request).await.map_err(differs)?;
    say_notes(&created.notes);
    if created.sandbox.state == State::Paused {
        let _ = client.sandbox(&created.sandbox.name).release(&created.lease.id).await;
        return Err(paused(&created.sandbox.name));
    }
    let below = repository.below.as_deref().and_then(Path::to_str).map(String::from);
    Ok(Opened { client, created, below })
}

/// Clients end their servers with a signal.
async fn end_signal() {
    let (Ok(mut end), Ok(mut interrupt)) = (signal(SignalKind::terminate()), signal(SignalKind::interrupt()))
    else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = end.recv() => {}
        _ = interrupt.recv() => {}
    }
}
