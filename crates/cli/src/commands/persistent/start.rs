//! `belljar start`: the sandbox of a folder, which lives until the user stops it.

use super::daemon::client;
use super::hold::{lease_request, say_all_notes};
use super::print_json;
use super::repository::Repository;
use super::shell_rc;
use crate::args::StartArgs;
use crate::commands::build::with_own_image;
use crate::commands::{block_on, print};
use crate::failure::of_client;
use belljar_api::client::{Client, ClientError};
use belljar_api::{Created, LeaseInfo, SandboxInfo, State};
use belljar_spec::{ErrorCode, ForwardedAt, SandboxError};
use std::net::SocketAddr;

pub(crate) fn start(options: StartArgs) -> Result<u8, SandboxError> {
    let StartArgs { folder, profile, volume, forward, image, json, sandbox_options } = options;
    let branch = sandbox_options.branch();
    let repository = match folder.or_else(|| sandbox_options.folder()) {
        Some(folder) => Repository::of(&folder, branch)?,
        None => Repository::here(branch)?,
    };
    let sandbox_options = with_own_image(sandbox_options, &image, |_| Ok(repository.folder.clone()), json)?;
    let mut request = sandbox_options.request()?;
    request.volumes.extend(volume);
    request.forward_ports.extend(forward.ports);
    if !repository.is_ready() {
        repository.judge()?;
    }
    shell_rc::prepare(&repository)?;
    block_on(async {
        let client = client();
        let (mut request, before) = lease_request(&client, &repository, request).await?;
        request.profile = profile.or(request.profile);
        request.lease_s = Some(LONG);
        let created = client.create(&request).await.map_err(differs)?;
        say_all_notes(&created.notes);
        let how = match before.map(|info| info.state) {
            None => "started",
            Some(State::Stopped | State::Stopping) => "started again",
            Some(State::Starting | State::Live | State::Paused) => "already running:",
        };
        drop_older(&client, &created).await;
        say(&created.sandbox, how, json)?;
        Ok(0)
    })
}

/// In words of the command line.
pub(super) fn differs(error: ClientError) -> SandboxError {
    let error = of_client(error);
    match error.code {
        ErrorCode::SandboxDiffers => {
            let allows = error.message.contains("`egress.allow`");
            error.hint(format!(
                "{}`belljar start` without flags starts it as it is; `belljar rm .` removes it with its home",
                if allows { "`belljar allow HOST --in .` allows a host in it; " } else { "" }
            ))
        }
        _ => error,
    }
}

/// One long hold is enough; the newest counts.
async fn drop_older(client: &Client, created: &Created) {
    let sandbox = client.sandbox(&created.sandbox.name);
    let is_long = |lease: &&LeaseInfo| lease.until_ms - lease.since_ms > (LONG as i64 / 2) * 1000;
    for lease in created.sandbox.leases.iter().filter(is_long).filter(|lease| lease.id != created.lease.id) {
        // It may have ended meanwhile.
        let _ = sandbox.release(&lease.id).await;
    }
}

fn say(info: &SandboxInfo, how: &str, json: bool) -> Result<u8, SandboxError> {
    if json {
        return print_json(info);
    }
    let isolation = match (&info.backend, &info.assurance) {
        (Some(backend), Some(assurance)) => format!(" ({backend}, {assurance})"),
        _ => String::new(),
    };
    let inside = info.workspace.as_deref().unwrap_or("/workspace");
    let folder = info.folder.as_deref().unwrap_or("its folder");
    eprintln!(
        "belljar: {how} {}{isolation}: {folder} is {inside} inside; stop it with `belljar stop`",
        info.name
    );
    for at in &info.forwarded {
        eprintln!("belljar: {}", leads(at));
    }
    print(format!("{}\n", info.name).as_bytes())
}

/// Where a port of this machine leads.
pub(super) fn leads(at: &ForwardedAt) -> String {
    format!("{} leads to port {} inside", SocketAddr::new(at.address, at.port), at.inside)
}

/// As long as a lease can be: until the user stops it.
const LONG: u64 = 31_536_000;
