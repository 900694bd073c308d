//! `belljar images`: the images of this user.

mod list;
mod progress;

use super::table::size;
use super::{block_on, build, golden, print};
use crate::args::{ImagesArgs, ImagesCommand, ImagesGcArgs, ImagesImportArgs, ImagesPullArgs, ImagesRmArgs};
use belljar_config::pull_options;
use belljar_engine::fetch_docker_image;
use belljar_images::{GcOptions, Image, Limits, PullOptions, PullPolicy, Store};
use belljar_spec::{ErrorCode, ImageName, SandboxError};
use progress::Bar;
use serde_json::json;
use std::sync::Arc;

pub(crate) fn images(options: ImagesArgs) -> Result<u8, SandboxError> {
    match options.command {
        None => list::list(&store()?, options.json),
        Some(ImagesCommand::List(options)) => list::list(&store()?, options.json),
        Some(ImagesCommand::Pull(options)) => pull(&options),
        Some(ImagesCommand::Import(options)) => import(&options),
        Some(ImagesCommand::Rm(options)) => rm(&options),
        Some(ImagesCommand::Gc(options)) => gc(&options),
        Some(ImagesCommand::Build(options)) => build::build(options),
        Some(ImagesCommand::BuildBase(options)) => build::build_base(*options),
        Some(ImagesCommand::Golden { command }) => golden::golden(command),
    }
}

fn pull(options: &ImagesPullArgs) -> Result<u8, SandboxError> {
    let how = PullOptions { policy: PullPolicy::Always, ..pull_options()? };
    let image = ensure(&store()?, &options.name, &how)?;
    had(&image, options.json)
}

/// Pulls an image that is not here.
pub(super) fn make_ready(image: &ImageName) -> Result<(), SandboxError> {
    let store = store()?;
    if store.find(image)?.is_none() {
        say_missing(image);
        ensure(&store, image, &pull_options()?)?;
    }
    Ok(())
}

fn ensure(store: &Store, image: &ImageName, how: &PullOptions) -> Result<Image, SandboxError> {
    block_on(async { Ok(store.ensure(image, how, Arc::new(Bar::new())).await?) })
}

/// Has the Docker daemon pull an image that it does not have.
pub(super) fn fetch_by_docker(image: &ImageName) -> Result<(), SandboxError> {
    let bar = Bar::new();
    let mut has_begun = false;
    fetch_docker_image(image, &mut |have, of| {
        if !std::mem::replace(&mut has_begun, true) {
            say_missing(image);
        }
        bar.bytes(have, of);
    })
}

fn say_missing(image: &ImageName) {
    eprintln!("belljar: the image {image} is not here yet: pulling it, once");
}

fn import(options: &ImagesImportArgs) -> Result<u8, SandboxError> {
    let image = store()?.import(&options.file, &options.name, &Limits::default(), &Bar::new())?;
    had(&image, options.json)
}

fn had(image: &Image, as_json: bool) -> Result<u8, SandboxError> {
    if as_json {
        let text = json!({ "name": image.name.to_string(), "digest": image.digest, "lowers": image.lowers });
        return print(format!("{text}\n").as_bytes());
    }
    print(format!("{}@{}\n", without_digest(image), image.digest).as_bytes())
}

fn without_digest(image: &Image) -> String {
    let name = image.name.to_string();
    name.split('@').next().unwrap_or_default().to_string()
}

fn rm(options: &ImagesRmArgs) -> Result<u8, SandboxError> {
    let store = store()?;
    for name in &options.names {
        if !store.remove(name)? {
            let message = format!("the image `{name}` is not here");
            return Err(ErrorCode::ImageMissing
                .error(message)
                .hint("`belljar images` lists the images of this machine"));
        }
    }
    Ok(0)
}

fn gc(options: &ImagesGcArgs) -> Result<u8, SandboxError> {
    let how = GcOptions { dry_run: options.dry_run, unused_for: options.unused };
    let collected = store()?.gc(&how)?;
    if options.json {
        let text = serde_json::to_string_pretty(&collected).expect("plain data can be written as JSON");
        return print(format!("{text}\n").as_bytes());
    }
    let verb = if options.dry_run { "would remove" } else { "removed" };
    for name in &collected.images {
        eprintln!("belljar: {verb} the image {name}");
    }
    eprintln!(
        "belljar: {verb} {} layers with {}, and {} remains of what was broken off",
        collected.layers.len(),
        size(collected.bytes),
        collected.remains
    );
    Ok(0)
}

pub(super) fn store() -> Result<Store, SandboxError> {
    let state = belljar_state::state_directory().map_err(|error| {
        ErrorCode::StateFailed
            .error(format!("there is no place for images: {error}"))
            .hint("set HOME, or XDG_STATE_HOME")
            .caused_by(error)
    })?;
    Ok(Store::open(&state.join("images"))?)
}
