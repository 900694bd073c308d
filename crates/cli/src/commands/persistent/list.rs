//! `belljar list`: the sandboxes that are kept.

use super::daemon::client;
use super::print_json;
use crate::args::ListArgs;
use crate::commands::table::{age, since, table};
use crate::commands::{block_on, layers, print};
use crate::failure::of_client;
use belljar_api::client::SandboxFilter;
use belljar_api::{SandboxInfo, State};
use belljar_spec::SandboxError;
use std::net::SocketAddr;

pub(crate) fn list(options: &ListArgs) -> Result<u8, SandboxError> {
    let all = block_on(async { client().sandboxes(&SandboxFilter::default()).await.map_err(of_client) })?;
    if options.json {
        return print_json(&all);
    }
    if options.quiet {
        let names: Vec<String> = all.iter().map(|one| format!("{}\n", one.name)).collect();
        return print(names.concat().as_bytes());
    }
    match layers::list::count() {
        0 => {}
        1 => eprintln!("belljar: sandboxes left 1 layer or clone: `belljar changes list`"),
        more => eprintln!("belljar: sandboxes left {more} layers and clones: `belljar changes list`"),
    }
    if all.is_empty() {
        eprintln!("belljar: no sandbox is kept");
        eprintln!("  hint: `belljar start` makes one of the current folder");
        return Ok(0);
    }
    let rows: Vec<[String; 7]> = all.iter().map(row).collect();
    print(table(["NAME", "FOLDER", "STATE", "PROFILE", "PORTS", "COMMANDS", "AGE"], &rows).as_bytes())
}

fn row(info: &SandboxInfo) -> [String; 7] {
    [
        info.name.clone(),
        info.folder.clone().unwrap_or_else(|| "-".into()),
        match &info.fault {
            Some(_) => format!("{} (fault)", word(info.state)),
            None => word(info.state).into(),
        },
        info.profile.clone(),
        ports(info),
        info.commands.to_string(),
        age(since(info.created_ms)),
    ]
}

/// Those of this machine with where they lead, and those that only the API reaches.
fn ports(info: &SandboxInfo) -> String {
    let led = info.forwarded.iter().map(|at| {
        let here = SocketAddr::new(at.address, at.port);
        if at.port == at.inside { here.to_string() } else { format!("{here}->{}", at.inside) }
    });
    let is_led = |port: &&u16| info.forwarded.iter().any(|at| at.inside == **port);
    let others = info.ports.iter().filter(|port| !is_led(port)).map(u16::to_string);
    let all: Vec<String> = led.chain(others).collect();
    if all.is_empty() { "-".into() } else { all.join(", ") }
}

pub(super) fn word(state: State) -> &'static str {
    match state {
        State::Starting => "starting",
        State::Live => "live",
        State::Paused => "paused",
        State::Stopping => "stopping",
        State::Stopped => "stopped",
    }
}
