//! Words about what a sandbox changed beside its folder.

use super::PublishArgs;
use clap::{Args as ClapArgs, Subcommand};
use std::path::PathBuf;

#[derive(Debug, Subcommand)]
pub(crate) enum ChangesCommand {
    /// List unapplied changes of sandboxes
    #[command(alias = "ls", after_help = "Examples:\n  belljar changes list\n  belljar changes list --json")]
    List(LayersArgs),
    /// Discard what a sandbox changed beside its folder
    #[command(after_help = "Examples:\n  belljar changes discard\n  belljar changes discard 3f2a --yes")]
    Discard(DiscardArgs),
    /// Push what was committed in a clone, and open a pull request if you say so
    #[command(
        after_help = "Nothing leaves before this: a run with --clone only collects commits. Examples:\n  \
        belljar changes publish 3f2a9c0d11e8b7a4 --token secret:github\n  \
        belljar changes publish 3f2a9c0d11e8b7a4 --to fix/login --token secret:github --pull-request 'Fix the login'"
    )]
    Publish(PublishArgs),
}

impl ChangesCommand {
    /// Whether a program is listening.
    pub(crate) fn wants_json(&self) -> bool {
        match self {
            ChangesCommand::List(options) => options.json,
            ChangesCommand::Discard(options) => options.json,
            ChangesCommand::Publish(options) => options.json,
        }
    }
}

#[derive(Debug, ClapArgs)]
pub(crate) struct DiffArgs {
    #[command(flatten)]
    pub(crate) what: LayerArgs,
    /// Only which files, one a line: A added, M modified, D deleted, R renamed, T another type, P other permissions
    #[arg(long, conflicts_with_all = ["stat", "patch"])]
    pub(crate) names: bool,
    /// How many lines of each file
    #[arg(long)]
    pub(crate) stat: bool,
    /// The changes themselves, as `git apply` and `patch -p1` take them [default]
    #[arg(long)]
    pub(crate) patch: bool,
    /// Print one JSON object; lines are counted with --stat, the patch is in it with --patch
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct ApplyArgs {
    #[command(flatten)]
    pub(crate) what: LayerArgs,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct DiscardArgs {
    /// Which layer, clone or worktree of a managed clone: an id or its beginning, as `belljar changes list` shows them [default: the newest
    /// layer of the current folder]
    pub(crate) layer: Option<String>,
    /// Do not ask
    #[arg(short, long)]
    pub(crate) yes: bool,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct LayersArgs {
    /// Print one JSON array
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct LayerArgs {
    /// Which: an id or its beginning, at least four digits [default: the newest of the current folder], or MANAGED_CLONE:BRANCH for the
    /// uncommitted work on a branch; then files and folders, with all that is in them [default: everything]. `./NAME` is
    /// always a file
    #[arg(value_name = "LAYER] [PATH")]
    pub(crate) words: Vec<PathBuf>,
}
