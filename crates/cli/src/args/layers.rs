//! Words about what a sandbox changed beside its folder.

use clap::Args as ClapArgs;
use std::path::PathBuf;

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
    /// Which layer, clone or worktree of a shelf: an id or its beginning, as `belljar layers` shows them [default: the newest
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
    /// Which: an id or its beginning, at least four digits [default: the newest of the current folder]; then files and
    /// folders, with all that is in them [default: everything]. `./NAME` is always a file
    #[arg(value_name = "LAYER] [PATH")]
    pub(crate) words: Vec<PathBuf>,
}
