//! Commands about sandboxes that are kept. All that is done with one is asked of the daemon; what belongs to a repository on this
//! machine, its key, its volumes and what lies in them, is known here.
//!
//! ```text
//!   words ---> target: which sandbox ---> hold: found or made, with a lease ---> foreground: its command is ours
//!                 |                  \-> living: found by its shim, which needs no daemon
//!                 +- repository: key and volumes of a folder
//! ```

mod admin;
pub(super) mod agent_config;
mod attach;
mod daemon;
mod ending;
mod exec;
mod foreground;
mod forward;
mod hold;
mod init;
pub(crate) mod integrate;
mod life;
mod list;
mod living;
mod logs;
pub(crate) mod mcp;
mod ps;
mod repository;
mod rm;
pub(crate) mod shell;
mod shell_rc;
pub(crate) mod show;
mod snapshots;
mod start;
mod target;
mod templates;
pub(crate) mod tool_shell;
mod ui;
mod volume;
mod volumes;
mod work;

use super::show_run;
use crate::args::{PersistentCommand, SandboxCommand, VolumeCommand};
use belljar_spec::SandboxError;
use repository::Repository;
use serde::Serialize;
use std::path::{Path, PathBuf};

pub(crate) use ui::ui;

pub(crate) fn persistent(command: PersistentCommand) -> Result<u8, SandboxError> {
    match command {
        PersistentCommand::Start(options) => start::start(*options),
        PersistentCommand::Exec(options) => exec::exec(options),
        PersistentCommand::List(options) => list::list(&options),
        PersistentCommand::Logs(options) => logs::logs(options),
        PersistentCommand::Stop(options) => life::stop(options),
        PersistentCommand::Rm(options) => rm::rm(options),
        PersistentCommand::Snapshot(options) => snapshots::snapshot(options),
        PersistentCommand::Snapshots(options) => snapshots::snapshots(options),
        PersistentCommand::Fork(options) => snapshots::fork(options),
        PersistentCommand::Restore(options) => snapshots::restore(options),
        PersistentCommand::Undo(options) => snapshots::undo(options),
        PersistentCommand::Forward(options) => forward::forward(options),
    }
}

pub(crate) fn sandbox(command: SandboxCommand) -> Result<u8, SandboxError> {
    match command {
        SandboxCommand::Init(options) => init::init(options),
        SandboxCommand::Ps(options) => ps::ps(options),
        SandboxCommand::Attach(options) => attach::attach(options),
        SandboxCommand::Pause(options) => life::pause(options),
        SandboxCommand::Resume(options) => life::resume(options),
        SandboxCommand::Admin(options) => admin::admin(options),
        SandboxCommand::Plan(options) => show_run::show_run(*options),
    }
}

pub(crate) fn volume(command: VolumeCommand) -> Result<u8, SandboxError> {
    match command {
        VolumeCommand::List(options) => volumes::volumes(options),
        VolumeCommand::Shared(options) => volumes::shared(&options),
    }
}

/// The folder that sandboxes of this one work on: the nearest above the current one that is ready for them, if none is named.
pub(crate) fn folder(named: Option<PathBuf>) -> Result<PathBuf, SandboxError> {
    let repository = match named {
        Some(folder) => Repository::of(&folder, None)?,
        None => Repository::here(None)?,
    };
    Ok(repository.folder)
}

/// The same, of a folder whose configuration is to be changed: one that no sandbox can work on is refused.
pub(crate) fn folder_to_allow(named: Option<&Path>) -> Result<PathBuf, SandboxError> {
    let repository = match named {
        Some(folder) => Repository::of(folder, None)?,
        None => Repository::here(None)?,
    };
    repository.judge()?;
    Ok(repository.folder)
}

/// Prints data for a program.
fn print_json(value: &impl Serialize) -> Result<u8, SandboxError> {
    let text = serde_json::to_string_pretty(value).expect("plain data can be written as JSON");
    super::print(format!("{text}\n").as_bytes())
}
