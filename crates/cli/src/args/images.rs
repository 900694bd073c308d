//! Words about images.

use super::{BuildArgs, BuildBaseArgs, GoldenCommand};
use belljar_spec::{ImageName, parse_age};
use clap::{Args as ClapArgs, Subcommand};
use std::path::PathBuf;
use std::time::Duration;

#[derive(Debug, ClapArgs)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct ImagesArgs {
    #[command(subcommand)]
    pub(crate) command: Option<ImagesCommand>,
    /// Print one JSON array
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ImagesCommand {
    /// List images, as without a command
    #[command(alias = "ls")]
    List(ImagesListArgs),
    /// Get an image from its registry, or what is missing of it
    #[command(after_help = "Examples:\n  \
        belljar images pull alpine:3.22\n  \
        belljar images pull ghcr.io/owner/app@sha256:…")]
    Pull(ImagesPullArgs),
    /// Take an image from a file: what `docker save` wrote, or an OCI layout in an archive
    #[command(
        after_help = "Example:\n  docker save alpine:3.22 -o alpine.tar; belljar images import alpine.tar alpine:3.22"
    )]
    Import(ImagesImportArgs),
    /// Forget images; what only they had goes with the next `belljar images gc`
    Rm(ImagesRmArgs),
    /// Remove what no image has and no sandbox uses
    #[command(after_help = "Examples:\n  belljar images gc --dry-run\n  belljar images gc --unused 30d")]
    Gc(ImagesGcArgs),
    /// Build the image of a repository from its .belljar/Dockerfile, with Docker
    #[command(
        after_help = "Without that file the base image is used as it is, which is said. The folder is what the image is made from, \
        without .git and what .dockerignore names. Examples:\n  \
        belljar images build\n  \
        belljar images build ~/web --base-tag stable\n\n\
        Exit codes: 0 built, or nothing to build; 1 a step failed; 125 belljar or Docker failed."
    )]
    Build(BuildArgs),
    /// Build belljar-base with Docker: the image with tools and agents that others are made from
    #[command(
        after_help = "Node 24 on Debian; git, gh, git-delta, editors and the usual tools; Claude Code, Codex, opencode and ast-grep. \
        A step that fails fails the build: an image is whole, or there is none.\n\n\
        Examples:\n  \
        belljar images build-base\n  \
        belljar images build-base --tag stable --claude-code-version 2.1.3 --codex-version ^0.9\n  \
        belljar images build-base --pull-from registry.example.com:5000 --npm-registry https://npm.example.com\n  \
        belljar images build-base --base my/node:24   # an image that the daemon has: nothing is pulled\n\n\
        Exit codes: 0 built; 1 a step failed; 125 belljar or Docker failed."
    )]
    BuildBase(Box<BuildBaseArgs>),
    /// Build and manage the Alpine root filesystem (`--root golden`)
    #[command(
        after_help = "`--root golden` builds it on first use. The archive is believed only with a digest that does not come from the \
        mirror; packages are installed inside a sandbox that reaches the mirror and nothing else.\n\n\
        Examples:\n  \
        belljar images golden build\n  \
        belljar images golden build --tier small --mirror https://mirror.example.com/alpine\n  \
        belljar run --root golden -- python3 --version"
    )]
    Golden {
        #[command(subcommand)]
        command: GoldenCommand,
    },
}

#[derive(Debug, ClapArgs)]
pub(crate) struct ImagesListArgs {
    /// Print one JSON array
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct ImagesPullArgs {
    /// Its name, with a tag or a digest
    #[arg(value_name = "IMAGE")]
    pub(crate) name: ImageName,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct ImagesImportArgs {
    /// The archive, packed or not
    pub(crate) file: PathBuf,
    /// What it will be called here
    #[arg(value_name = "NAME:TAG")]
    pub(crate) name: ImageName,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct ImagesRmArgs {
    /// Their names
    #[arg(value_name = "IMAGE", required = true)]
    pub(crate) names: Vec<ImageName>,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct ImagesGcArgs {
    /// Say what would be removed, and remove nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Also images that no sandbox was started from for so long: `12h`, `30d`
    #[arg(long, value_name = "AGE", value_parser = parse_age)]
    pub(crate) unused: Option<Duration>,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

impl ImagesArgs {
    pub(crate) fn wants_json(&self) -> bool {
        match &self.command {
            None => self.json,
            Some(ImagesCommand::List(options)) => options.json,
            Some(ImagesCommand::Pull(options)) => options.json,
            Some(ImagesCommand::Import(options)) => options.json,
            Some(ImagesCommand::Rm(_)) => false,
            Some(ImagesCommand::Gc(options)) => options.json,
            Some(ImagesCommand::Build(options)) => options.how.json,
            Some(ImagesCommand::BuildBase(options)) => options.how.json,
            Some(ImagesCommand::Golden { command }) => command.wants_json(),
        }
    }
}
