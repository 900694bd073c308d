//! The words about what belljar keeps on this machine: how much it is, what can go, and how all of it goes.

use belljar_spec::parse_age;
use clap::{Args as ClapArgs, Subcommand};
use std::time::Duration;

#[derive(Debug, Subcommand)]
pub(crate) enum UpkeepCommand {
    /// Show how much of the disk belljar takes, and for what
    #[command(after_help = "Examples:\n  belljar du\n  belljar du --json")]
    Du(DuArgs),
    /// Remove what is no longer needed: old audit logs and agent runs, unused images, prepared roots, what dead sandboxes left
    #[command(
        after_help = "What would go is listed first, and nothing that is in use goes. Work is never removed: change sets, clones, homes \
        and volumes stay, and `belljar changes discard` and `belljar rm` remove them by name.\n\n\
        Examples:\n  \
        belljar prune --dry-run\n  \
        belljar prune --older-than 7d --yes"
    )]
    Prune(PruneArgs),
    /// Stop the daemon, remove its service and all that belljar keeps on this machine, and say what stays
    #[command(
        after_help = "What goes is listed first, with changes that are not applied. While a sandbox runs, nothing is removed. The executable, \
        your configuration and the folders that you worked in stay.\n\n\
        Examples:\n  \
        belljar uninstall --dry-run\n  \
        belljar uninstall --yes"
    )]
    Uninstall(UninstallArgs),
}

impl UpkeepCommand {
    /// Whether a program is listening.
    pub(crate) fn wants_json(&self) -> bool {
        match self {
            UpkeepCommand::Du(options) => options.json,
            UpkeepCommand::Prune(options) => options.json,
            UpkeepCommand::Uninstall(_) => false,
        }
    }
}

#[derive(Debug, ClapArgs)]
pub(crate) struct DuArgs {
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct PruneArgs {
    /// What was not used for this long: hours, days, weeks or years, as in `36h`, `30d`, `8w`, `2y` [default: `retention` of your
    /// configuration, or 30d]
    #[arg(long, value_name = "AGE", value_parser = parse_age)]
    pub(crate) older_than: Option<Duration>,
    /// Only list it
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Do not ask
    #[arg(short, long)]
    pub(crate) yes: bool,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct UninstallArgs {
    /// Only list it
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Do not ask
    #[arg(short, long)]
    pub(crate) yes: bool,
}
