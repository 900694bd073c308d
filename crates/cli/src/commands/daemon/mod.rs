//! Commands about the daemon: running it, having it run, who may ask it, and what can be done without it.

mod e2b;
mod grants;
pub(super) mod profiles;
mod serve;
pub(super) mod service;
mod sweep;

pub(super) use sweep::swept;

use crate::args::{DaemonCommand, ServiceCommand};
use belljar_spec::SandboxError;
pub(crate) use e2b::e2b;
use serde::Serialize;
pub(crate) use serve::serve;
use std::path::PathBuf;

pub(crate) fn daemon(command: DaemonCommand) -> Result<u8, SandboxError> {
    match command {
        DaemonCommand::Service { command: ServiceCommand::Install(options) } => service::install(&options),
        DaemonCommand::Service { command: ServiceCommand::Uninstall(options) } => {
            service::uninstall(&options)
        }
        DaemonCommand::Stop => super::upkeep::stop_daemon(),
        DaemonCommand::Grants { command } => grants::grants(command),
        DaemonCommand::Sweep(options) => sweep::sweep(&options),
    }
}

/// Where sandboxes and grants are kept.
pub(super) fn directory() -> Result<PathBuf, SandboxError> {
    Ok(belljar_state::state_directory()?.join("fleet"))
}

/// Prints data for a program.
fn print_json(value: &impl Serialize) -> Result<u8, SandboxError> {
    let text = serde_json::to_string_pretty(value).expect("plain data can be written as JSON");
    super::print(format!("{text}\n").as_bytes())
}
