//! `belljar agent`: agents in sandboxes. One file a command, and what they share: what is shown of a run, and how it ends.

mod attend;
mod conversation;
mod ending;
mod list;
mod login;
mod logs;
mod own;
mod phases;
mod request;
mod run;
mod runs;
mod screen;
mod sentence;
mod shell;

use super::persistent::agent_config;
use crate::args::{AgentCommand, AgentConfigCommand};
use crate::failure::exit_code;
use belljar_spec::{ErrorCode, SandboxError};
use serde_json::json;
use std::path::PathBuf;

pub(crate) fn agent(command: AgentCommand) -> Result<u8, SandboxError> {
    match command {
        AgentCommand::Run(options) => {
            let as_lines = options.json;
            run::run(*options).or_else(|error| failed(error, as_lines))
        }
        AgentCommand::Phases(options) => {
            let as_lines = options.json;
            phases::phases(*options).or_else(|error| failed(error, as_lines))
        }
        AgentCommand::Shell(options) => shell::shell(*options),
        AgentCommand::List(options) => list::list(&options),
        AgentCommand::Runs(options) => runs::runs(&options),
        AgentCommand::Logs(options) => logs::logs(&options),
        AgentCommand::Login(options) => login::login(&options),
        AgentCommand::Config { command: AgentConfigCommand::Codex(options) } => agent_config::codex(options),
        AgentCommand::Config { command: AgentConfigCommand::Claude(options) } => {
            agent_config::claude(options)
        }
    }
}

/// A program that reads lines gets a line, also where there is no run to tell of.
fn failed(error: SandboxError, as_lines: bool) -> Result<u8, SandboxError> {
    if !as_lines {
        return Err(error);
    }
    let line = json!({ "type": "error", "error": crate::failure::as_json(&error) });
    super::print(format!("{line}\n").as_bytes())?;
    Ok(exit_code(&error))
}

/// Where runs are kept.
fn state() -> Result<PathBuf, SandboxError> {
    belljar_state::state_directory().map_err(|error| {
        ErrorCode::StateFailed
            .error(format!("runs cannot be kept: {error}"))
            .hint(error.hint())
            .caused_by(error)
    })
}
