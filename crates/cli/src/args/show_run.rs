//! The words about a sandbox that is only shown.

use super::PlaceArgs;
use clap::Args as ClapArgs;

#[derive(Debug, ClapArgs)]
pub(crate) struct ShowRunArgs {
    #[command(flatten)]
    pub(crate) place: PlaceArgs,
    /// Print the command that builds the wall instead, ready for a shell; belljar builds all but bwrap's itself
    #[arg(long)]
    pub(crate) command_line: bool,
}
