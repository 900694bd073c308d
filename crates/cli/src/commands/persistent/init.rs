//! `belljar sandbox init`: a folder made ready for a sandbox that stays.

use super::print_json;
use super::repository::Repository;
use super::shell_rc;
use super::templates::REPOSITORY;
use crate::args::{InitArgs, workspace};
use crate::commands::build::own_image;
use belljar_config::{self as config, Standing};
use belljar_image_build::{DOCKERFILE, TEMPLATE};
use belljar_spec::{ErrorCode, SandboxError};
use serde_json::json;
use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write};
use std::path::Path;

pub(crate) fn init(options: InitArgs) -> Result<u8, SandboxError> {
    let repository = Repository::of(&workspace(options.folder)?, None)?;
    repository.judge()?;
    let made = write_new(&repository.folder, "config.toml", REPOSITORY)?;
    let dockerfile = match options.dockerfile {
        true => Some(write_new(&repository.folder, "Dockerfile", TEMPLATE)?),
        false => None,
    };
    let proposal = config::propose(&repository.folder)?;
    // Only we had a hand in what was written just now.
    if made && proposal.standing != Standing::Trusted {
        proposal.keep()?;
    }
    let trusted = made || proposal.standing == Standing::Trusted;
    let volumes = shell_rc::prepare(&repository)?;
    let image = own_image(&options.image, || Ok(repository.folder.clone()), options.json)?;
    if options.json {
        return print_json(&json!({
            "folder": repository.text(),
            "key": repository.key(),
            "config": { "file": proposal.file, "made": made, "trusted": trusted },
            "dockerfile_made": dockerfile,
            "volumes_made": volumes,
            "image": image.map(|image| image.to_string()),
        }));
    }
    match (made, trusted) {
        (true, _) => eprintln!("belljar: wrote {}, which says nothing yet: look at it", proposal.name()),
        (false, true) => eprintln!("belljar: {} was there, and counts", proposal.name()),
        (false, false) => {
            eprintln!("belljar: {} was there, and does not count yet", proposal.name());
            eprintln!("  hint: look at it, then say `belljar config trust`");
        }
    }
    match dockerfile {
        Some(true) => {
            eprintln!(
                "belljar: wrote {DOCKERFILE}, which changes nothing yet: `belljar images build` builds it"
            )
        }
        Some(false) => eprintln!("belljar: {DOCKERFILE} was there, and stays"),
        None => {}
    }
    match volumes.as_slice() {
        [] => eprintln!("belljar: its volumes were there"),
        made => eprintln!("belljar: made its volumes for {}", made.join(" and ")),
    }
    if let Some(image) = image {
        let tag = image.tag().unwrap_or("latest");
        eprintln!("belljar: {image} is ready: `belljar start --base-tag {tag}` starts a sandbox from it");
    }
    eprintln!("belljar: `belljar start` starts its sandbox, `belljar shell` opens a shell in it");
    Ok(0)
}

/// Writes a file of the repository's folder for belljar if there is none; says whether it did.
fn write_new(folder: &Path, name: &str, text: &str) -> Result<bool, SandboxError> {
    let directory = folder.join(".belljar");
    let file = directory.join(name);
    let failed = |error: std::io::Error| {
        ErrorCode::StateFailed
            .error(format!("cannot write `{}`: {error}", file.display()))
            .hint("see to it that you can write in the folder")
            .caused_by(error)
    };
    match fs::create_dir(&directory) {
        Ok(()) => {}
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
        Err(error) => return Err(failed(error)),
    }
    // A link in the place of the folder would make us write elsewhere.
    if !fs::symlink_metadata(&directory).map_err(failed)?.is_dir() {
        return Err(failed(std::io::Error::other("`.belljar` is no folder")));
    }
    match OpenOptions::new().write(true).create_new(true).open(&file) {
        Ok(mut new) => new.write_all(text.as_bytes()).map(|()| true).map_err(failed),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(false),
        Err(error) => Err(failed(error)),
    }
}
