//! The words about images that Docker builds.

use belljar_image_build::{DEFAULT_FROM, GIT_DELTA, How, NPM, VersionRequest, WebAddress};
use belljar_spec::ImageName;
use clap::Args as ClapArgs;
use std::path::PathBuf;

#[derive(Debug, ClapArgs)]
pub(crate) struct BuildBaseArgs {
    /// What it is called: belljar-base:TAG
    #[arg(long, value_name = "TAG", default_value = "latest", value_parser = tag)]
    pub(crate) tag: String,
    /// The image that it is made from: one with node, and with apt or with every tool. One that the daemon has is not pulled
    #[arg(long, value_name = "IMAGE", default_value = DEFAULT_FROM)]
    pub(crate) base: ImageName,
    /// A registry that has what Docker's has, to pull the image from: host[:port][/path]
    #[arg(long, value_name = "MIRROR")]
    pub(crate) pull_from: Option<String>,
    /// Ask whether there is a newer image of that name
    #[arg(long)]
    pub(crate) pull: bool,
    #[command(flatten)]
    pub(crate) versions: VersionArgs,
    #[command(flatten)]
    pub(crate) how: HowArgs,
}

/// Exact versions are taken as they are. `latest`, other tags and ranges like `^2.1` are looked up first, so that the same versions
/// are the same build.
#[derive(Debug, ClapArgs)]
#[command(
    next_help_heading = "Versions: exact ones, or tags and ranges like latest and ^2.1, which are looked up first"
)]
pub(crate) struct VersionArgs {
    /// Claude Code
    #[arg(long, value_name = "V", default_value = "latest")]
    pub(crate) claude_code_version: VersionRequest,
    /// Codex
    #[arg(long, value_name = "V", default_value = "latest")]
    pub(crate) codex_version: VersionRequest,
    /// opencode
    #[arg(long, value_name = "V", default_value = "latest")]
    pub(crate) opencode_version: VersionRequest,
    /// ast-grep
    #[arg(long, value_name = "V", default_value = "latest")]
    pub(crate) ast_grep_version: VersionRequest,
    /// git-delta, as its makers have it [default: the package of the base's distribution]
    #[arg(long, value_name = "V")]
    pub(crate) git_delta_version: Option<VersionRequest>,
    /// The registry of npm's packages, here and during the build
    #[arg(long, value_name = "URL", default_value = NPM)]
    pub(crate) npm_registry: WebAddress,
    /// Authorities to trust besides the system's, here and in the image: a file of PEM
    #[arg(long, value_name = "FILE")]
    pub(crate) ca: Option<PathBuf>,
    /// Where git-delta's makers have it: a repository with releases
    #[arg(long, value_name = "URL", default_value = GIT_DELTA)]
    pub(crate) git_delta_from: WebAddress,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct BuildArgs {
    /// The folder [default: the current one]
    #[arg(value_name = "FOLDER")]
    pub(crate) folder: Option<PathBuf>,
    /// Which base: belljar-base:TAG
    #[arg(long, value_name = "TAG", default_value = "latest", value_parser = tag)]
    pub(crate) base_tag: String,
    #[command(flatten)]
    pub(crate) how: HowArgs,
}

/// The image of the folder itself, for commands that make its sandbox.
#[derive(Debug, Default, Clone, ClapArgs)]
#[command(next_help_heading = "The folder's own image, for the backend docker")]
pub(crate) struct OwnImageArgs {
    /// Build it first, as `belljar images build` does, and use it
    #[arg(long)]
    pub(crate) build: bool,
    /// Use the one on belljar-base:TAG, which was built before unless `--build` is given too [default: latest]
    #[arg(long, value_name = "TAG", value_parser = tag)]
    pub(crate) base_tag: Option<String>,
}

impl OwnImageArgs {
    pub(crate) fn is_given(&self) -> bool {
        self.build || self.base_tag.is_some()
    }
}

#[derive(Debug, ClapArgs)]
#[command(next_help_heading = "Building")]
pub(crate) struct HowArgs {
    /// Do every step anew
    #[arg(long)]
    pub(crate) no_cache: bool,
    /// The network of the build's steps, as Docker knows it: host, none or a name [default: the daemon's]
    #[arg(long, value_name = "NETWORK", value_parser = network)]
    pub(crate) network: Option<String>,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

impl HowArgs {
    pub(crate) fn how(&self, pull: bool) -> How {
        How { network: self.network.clone(), without_cache: self.no_cache, pull }
    }
}

fn tag(text: &str) -> Result<String, String> {
    match format!("x:{text}").parse::<ImageName>() {
        Ok(name) if name.tag() == Some(text) => Ok(text.to_string()),
        _ => Err("a tag has letters, digits, `.`, `_` and `-`, and at most 128 of them".to_string()),
    }
}

fn network(text: &str) -> Result<String, String> {
    let is_letter = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '.' | '_' | '-');
    match !text.is_empty() && text.chars().all(is_letter) {
        true => Ok(text.to_string()),
        // `container:NAME` would be the network of another container, perhaps of a sandbox.
        false => Err("a network has a name of letters, digits, `.`, `_` and `-`".to_string()),
    }
}
