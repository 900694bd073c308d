//! The words about a sandbox that is only shown.

use super::{OwnImageArgs, SandboxOptions};
use clap::Args as ClapArgs;
use std::path::PathBuf;

#[derive(Debug, ClapArgs)]
pub(crate) struct ShowRunArgs {
    /// The folder [default: the current one]
    #[arg(value_name = "FOLDER", conflicts_with = "workspace")]
    pub(crate) folder: Option<PathBuf>,
    /// The sandbox of one command, also where the folder has one that is kept
    #[arg(long)]
    pub(crate) once: bool,
    #[command(flatten)]
    pub(crate) image: OwnImageArgs,
    #[command(flatten)]
    pub(crate) sandbox_options: SandboxOptions,
    /// Print one JSON object [default]
    #[arg(long, conflicts_with = "command_line")]
    pub(crate) json: bool,
    /// Print the command that builds the sandbox instead: bwrap's can be run, with a shell where belljar starts its guest; Docker's
    /// is for reading, since what it mounts is made at a start
    #[arg(long)]
    pub(crate) command_line: bool,
}
