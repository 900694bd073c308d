//! The words about how files get in and changes out.

use belljar_spec::git::{BranchName, RefPattern};
use belljar_spec::workspace::{HidePattern, ProtectedPath};
use clap::{Args as ClapArgs, ValueEnum};
use std::path::PathBuf;

#[derive(Debug, Default, Clone, ClapArgs)]
#[command(next_help_heading = "Workspace")]
pub(crate) struct WorkspaceArgs {
    /// Leave the folder as it is and keep all changes in a layer: `belljar diff` shows them, `belljar apply` applies them,
    /// `belljar changes discard` discards them
    #[arg(long, conflicts_with_all = ["branch", "clone"])]
    pub(super) overlay: bool,
    /// Continue with the changes of this layer
    #[arg(long, value_name = "ID", conflicts_with_all = ["branch", "clone"])]
    pub(super) layer: Option<String>,
    /// Work in a clone of this repository that belljar keeps, on this branch; `git push` inside brings commits back to the
    /// branch here. With --clone: the branch to clone
    #[arg(long, value_name = "NAME")]
    pub(super) branch: Option<BranchName>,
    /// Let the host clone this repository, and work on that; the sandbox never sees what it took to get it
    #[arg(long, value_name = "URL", visible_alias = "repo")]
    pub(super) clone: Option<String>,
    /// Clone only so many commits back
    #[arg(long, value_name = "NUMBER", requires = "clone", value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) depth: Option<u32>,
    /// Make this path of the workspace read-only inside, whether it is there or not; .git/hooks, .git/config, .husky and
    /// .belljar never change anyway; may be repeated
    #[arg(long, value_name = "PATH")]
    pub(super) protect: Vec<ProtectedPath>,
    /// Hide this file or folder of the workspace inside: a name at any depth (`.env`, `*.pem`), or a path from the top of the
    /// workspace (`config/keys`); may be repeated
    #[arg(long, value_name = "PATH")]
    pub(super) hide: Vec<HidePattern>,
    /// Show this file of variables, such as `.env`, with a placeholder in the place of each value: a name at any depth, or a path
    /// from the top of the workspace; may be repeated
    #[arg(long, value_name = "PATH")]
    pub(super) placeholders: Vec<HidePattern>,
    /// Let `git push` go to these branches: `agent/*`, `!main`; may be repeated [default: the sandbox's own branch of the
    /// repository here; over the network all but main and master]
    #[arg(long, value_name = "PATTERN")]
    pub(super) push: Vec<RefPattern>,
    /// Which git directory the sandbox has in a folder that is a repository: `private` is one of its own, and commits come out
    /// through checks; `share` lets it write the folder's own .git, which git here believes
    #[arg(long, value_name = "HOW", default_value = "private", conflicts_with_all = ["branch", "clone"])]
    pub(super) git: GitArg,
    /// Tell agents what the *.md of this directory say, behind what the repository's AGENTS.md says; may be repeated
    #[arg(long, value_name = "DIR")]
    pub(super) agent_context: Vec<PathBuf>,
}

/// Which git directory a sandbox has.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum GitArg {
    // Not documented for clap: help of each value would spread the whole page.
    #[default]
    Private,
    Share,
}
