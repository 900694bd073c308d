//! The words about the MCP server.

use super::SandboxOptions;
use clap::Args as ClapArgs;
use std::path::PathBuf;

#[derive(Debug, ClapArgs)]
pub(crate) struct McpArgs {
    /// The folder [default: the current one, or the repository that it is in]
    #[arg(value_name = "FOLDER", conflicts_with = "workspace")]
    pub(crate) folder: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) sandbox_options: SandboxOptions,
}
