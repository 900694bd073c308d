//! The words about the golden root.

use belljar_spec::GoldenTier;
use clap::{Args as ClapArgs, Subcommand};

#[derive(Debug, Subcommand)]
pub(crate) enum GoldenCommand {
    /// Build it, if it is not there
    Build(GoldenBuildArgs),
    /// Build a new one; running sandboxes keep theirs
    Rebuild(GoldenBuildArgs),
    /// Say what is there
    Status(GoldenStatusArgs),
    /// Remove it; what sandboxes still use stays until they are gone
    Rm,
}

#[derive(Debug, Default, ClapArgs)]
pub(crate) struct GoldenBuildArgs {
    /// Where Alpine and its packages come from [default: BELLJAR_GOLDEN_MIRROR, the configuration's, or Alpine's own]
    #[arg(long, value_name = "URL")]
    pub(crate) mirror: Option<String>,
    /// How much is in it: base (Alpine as it comes), small (bash, Python, git, curl), full (Node.js and more too)
    /// [default: full]
    #[arg(long, value_name = "TIER")]
    pub(crate) tier: Option<GoldenTier>,
    /// Another release than the one that belljar comes with: `3.24.1`
    #[arg(long, value_name = "VERSION")]
    pub(crate) release: Option<String>,
    /// The digest of that release's minirootfs, learned elsewhere than from the mirror
    #[arg(long, value_name = "DIGEST")]
    pub(crate) sha256: Option<String>,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct GoldenStatusArgs {
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

impl GoldenCommand {
    pub(crate) fn wants_json(&self) -> bool {
        matches!(self, GoldenCommand::Status(GoldenStatusArgs { json: true }))
    }
}
