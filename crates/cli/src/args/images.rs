//! Words about images.

use super::age::age;
use belljar_spec::ImageName;
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
    #[arg(long, value_name = "AGE", value_parser = age)]
    pub(crate) unused: Option<Duration>,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

impl ImagesArgs {
    pub(crate) fn wants_json(&self) -> bool {
        match &self.command {
            None => self.json,
            Some(ImagesCommand::Pull(options)) => options.json,
            Some(ImagesCommand::Import(options)) => options.json,
            Some(ImagesCommand::Rm(_)) => false,
            Some(ImagesCommand::Gc(options)) => options.json,
        }
    }
}
