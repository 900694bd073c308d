//! The words about agents that run outside.

use super::SandboxOptions;
use clap::{Args as ClapArgs, ValueEnum};
use std::path::PathBuf;

#[derive(Debug, ClapArgs)]
pub(crate) struct IntegrateArgs {
    /// Which agent
    #[arg(value_name = "AGENT")]
    pub(crate) agent: OutsideAgent,
    /// The folder [default: the current one, or the repository that it is in]
    #[arg(value_name = "FOLDER", conflicts_with = "workspace")]
    pub(crate) folder: Option<PathBuf>,
    /// Write the settings into the agent's file, and make the folder's sandbox; without it the settings are printed
    #[arg(long)]
    pub(crate) write: bool,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) sandbox_options: SandboxOptions,
}

/// An agent that runs outside, and runs the commands of its model inside.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum OutsideAgent {
    Claude,
    Codex,
    Opencode,
    Pi,
    Gemini,
}
