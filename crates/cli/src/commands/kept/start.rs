//! `belljar start`: the sandbox of a folder, which lives until somebody stops it.

use super::daemon::client;
use super::hold::{request, say_notes};
use super::print_json;
use super::repository::Repository;
use super::shell_rc;
use crate::args::StartArgs;
use crate::commands::{block_on, print};
use crate::failure::of_client;
use belljar_api::{SandboxInfo, State};
use belljar_client::SandboxFilter;
use belljar_spec::SandboxError;

pub(crate) fn start(options: StartArgs) -> Result<u8, SandboxError> {
    let StartArgs { folder, profile, json, place } = options;
    let branch = place.branch();
    let repository = match folder.or_else(|| place.folder()) {
        Some(folder) => Repository::of(&folder, branch)?,
        None => Repository::here(branch)?,
    };
    let said = place.request()?;
    shell_rc::prepare(&repository)?;
    block_on(async {
        let client = client();
        let filter = SandboxFilter { key: Some(repository.key()), state: None };
        let before = client.sandboxes(&filter).await.map_err(of_client)?.into_iter().next();
        if let Some(info) = before.as_ref().filter(|info| info.state == State::Live && stays(info)) {
            say(info, "lives already", json)?;
            return Ok(0);
        }
        let mut asked = request(&repository, said);
        asked.profile = profile;
        asked.lease_s = Some(LONG);
        let created = client.create(&asked).await.map_err(of_client)?;
        say_notes(&created);
        let how = if created.created && before.is_none() { "lives" } else { "lives again" };
        say(&created.sandbox, how, json)?;
        Ok(0)
    })
}

/// Whether somebody already said that it is to stay.
fn stays(info: &SandboxInfo) -> bool {
    info.leases.iter().any(|lease| lease.until_ms - lease.since_ms >= (LONG as i64 / 2) * 1000)
}

fn say(info: &SandboxInfo, how: &str, json: bool) -> Result<u8, SandboxError> {
    if json {
        return print_json(info);
    }
    let wall = match (&info.backend, &info.assurance) {
        (Some(backend), Some(assurance)) => format!(" ({backend}, {assurance})"),
        _ => String::new(),
    };
    let inside = info.workspace.as_deref().unwrap_or("/workspace");
    let folder = info.folder.as_deref().unwrap_or("its folder");
    eprintln!("belljar: it {how}{wall}: {folder} is {inside} inside, until `belljar stop`");
    print(format!("{}\n", info.name).as_bytes())
}

/// As long as a lease can be: until somebody stops it.
const LONG: u64 = 31_536_000;
