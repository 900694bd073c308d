//! A look into an image of the daemon's: its environment, its users, and the CAs that it trusts. The daemon shows files of
//! a container only, so one is made and never started; what was seen is kept under the image's id, which never means
//! another image.

use super::container_dir::{ContainerDir, ID_LABEL, OWNER_LABEL};
use crate::layout::{DaemonImage, LOOKED_AT, LOOKED_FOR, RootTree};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use belljar_docker::bollard::models::{ContainerCreateBody, CreateImageInfo, HostConfig, ImageInspect};
use belljar_docker::bollard::query_parameters::{
    ContainerArchiveInfoOptionsBuilder, CreateContainerOptionsBuilder, CreateImageOptionsBuilder,
    DownloadFromContainerOptionsBuilder,
};
use belljar_docker::{Daemon, is_missing, refused};
use belljar_spec::{CommandLine, ErrorCode, ImageName, SandboxError, hint};
use belljar_state::{Survives, create_private, write_atomic};
use futures_util::TryStreamExt;
use std::collections::{BTreeSet, HashMap};
use std::ffi::OsString;
use std::fs;
use std::path::Path;

/// The root that an image of the daemon's is, fetched if the daemon does not have it. `containers` is where containers are
/// put together.
pub fn image_root(image: &ImageName, containers: &Path) -> Result<RootTree, SandboxError> {
    let daemon = super::daemon()?;
    let inspected = find(&daemon, image, &mut |_, _| {})?;
    let id = inspected.id.clone().unwrap_or_default();
    let digits = id.strip_prefix("sha256:").filter(|digits| digits.chars().all(|c| c.is_ascii_hexdigit()));
    let Some(digits) = digits else {
        let message = format!("the Docker daemon calls `{image}` `{id}`, which is no digest");
        return Err(ErrorCode::StartFailed.error(message).hint("`docker image inspect` says more"));
    };
    let config = inspected.config.unwrap_or_default();
    let variable = |text: &String| {
        let (name, value) = text.split_once('=')?;
        Some((OsString::from(name), OsString::from(value)))
    };
    let environment = config.env.unwrap_or_default().iter().filter_map(variable).collect();
    let volumes = config.volumes.unwrap_or_default();
    let volumes = volumes.iter().filter_map(|place| plain(place)).collect();
    let seen = containers.join("images").join(digits);
    let known = match remembered(&seen) {
        Some(known) => known,
        None => {
            let known = look(&daemon, &id, containers)?;
            remember(&seen, &known);
            known
        }
    };
    Ok(RootTree { environment, known, image: Some(DaemonImage { id, volumes }), ..RootTree::default() })
}

/// Has the daemon fetch an image that it does not have, and tells `told` how many bytes are there, and of how many.
pub fn fetch_image(
    image: &ImageName,
    progress: &mut (dyn FnMut(u64, u64) + Send),
) -> Result<(), SandboxError> {
    let daemon = super::daemon()?;
    find(&daemon, image, progress).map(drop)
}

/// The image, fetched if it is missing.
fn find(
    daemon: &Daemon,
    image: &ImageName,
    progress: &mut (dyn FnMut(u64, u64) + Send),
) -> Result<ImageInspect, SandboxError> {
    let name = image.to_string();
    let inspect = || daemon.try_run(async |client| client.inspect_image(&name).await);
    match inspect() {
        Ok(found) => return Ok(found),
        Err(error) if !is_missing(&error) => return Err(refused("look at an image", &error)),
        Err(_) => {}
    }
    let tag = image.digest().or(image.tag()).unwrap_or_default();
    let registry = image.registry().map(|registry| format!("{registry}/")).unwrap_or_default();
    let options = CreateImageOptionsBuilder::default()
        .from_image(&format!("{registry}{}", image.repository()))
        .tag(tag)
        .build();
    let pulled = daemon.try_follow(async |client| {
        let mut layers = HashMap::new();
        let mut steps = client.create_image(Some(options), None, None);
        while let Some(step) = steps.try_next().await? {
            note(step, &mut layers);
            let sum = |which: fn(&(u64, u64)) -> u64| layers.values().map(which).sum();
            progress(sum(|(have, _)| *have), sum(|(_, of)| *of));
        }
        Ok(())
    });
    pulled.and_then(|()| inspect()).map_err(|error| {
        let why = refused("fetch it", &error).message;
        let message = format!("the image `{image}` is not here: {why}");
        ErrorCode::ImageMissing.error(message).hint(hint!(
            "check its name; fetch it yourself (`docker pull`), after `docker login` if its \
                 registry asks who you are; or make it ({})",
            CommandLine::Build
        ))
    })
}

/// How much of each layer is there, by what the daemon says while it fetches them.
fn note(step: CreateImageInfo, layers: &mut HashMap<String, (u64, u64)>) {
    let (Some(layer), Some(status)) = (step.id, step.status) else { return };
    let progress = step.progress_detail.unwrap_or_default();
    let [have, of] =
        [progress.current, progress.total].map(|bytes| u64::try_from(bytes.unwrap_or(0)).unwrap_or(0));
    let known = layers.entry(layer).or_default();
    match status.as_str() {
        "Downloading" => *known = (have, of),
        "Download complete" => known.0 = known.1,
        _ => {}
    }
}

/// What is in a container of this image, at the places that matter.
fn look(daemon: &Daemon, image: &str, containers: &Path) -> Result<Vec<(String, Vec<u8>)>, SandboxError> {
    with_container(daemon, image, containers, |name| Ok(look_around(daemon, name)))
}

/// Something done with a container of this image that has nothing mounted in it, and is gone afterwards.
fn with_container<T>(
    daemon: &Daemon,
    image: &str,
    containers: &Path,
    work: impl FnOnce(&str) -> Result<T, SandboxError>,
) -> Result<T, SandboxError> {
    let id = belljar_state::new_id()?;
    // As for every container: the lock tells a sweep that the container is in use.
    let place = ContainerDir::make(containers, id)?;
    let name = super::container_dir::container_name(&id.to_string());
    let labels = HashMap::from([
        (ID_LABEL.to_string(), id.to_string()),
        (OWNER_LABEL.to_string(), place.owner().to_string()),
    ]);
    let body = ContainerCreateBody {
        image: Some(image.to_string()),
        entrypoint: Some(vec!["/".into()]),
        labels: Some(labels),
        host_config: Some(HostConfig { network_mode: Some("none".into()), ..HostConfig::default() }),
        ..ContainerCreateBody::default()
    };
    let options = CreateContainerOptionsBuilder::default().name(&name).build();
    let created = daemon.run("make a container to look into", async |client| {
        client.create_container(Some(options), body).await
    });
    let done = created.and_then(|_| work(&name));
    daemon.remove_container(&name)?;
    done
}

fn look_around(daemon: &Daemon, name: &str) -> Vec<(String, Vec<u8>)> {
    let content = |path: &&str| {
        let options = DownloadFromContainerOptionsBuilder::default().path(path).build();
        let archive = daemon.try_run(async |client| {
            let mut chunks = client.download_from_container(name, Some(options));
            let mut archive = Vec::new();
            // What is larger is cut off, and then it is no file.
            while archive.len() <= LARGEST + HEADERS
                && let Some(chunk) = chunks.try_next().await?
            {
                archive.extend_from_slice(&chunk);
            }
            Ok(archive)
        });
        Some((plain(path)?, first_file(&archive.ok()?)?.to_vec()))
    };
    let presence = |path: &&str| {
        let options = ContainerArchiveInfoOptionsBuilder::default().path(path).build();
        let found =
            daemon.try_run(async |client| client.get_container_archive_info(name, Some(options)).await);
        Some((plain(path)?, found.ok().map(|_| Vec::new())?))
    };
    LOOKED_AT.iter().filter_map(content).chain(LOOKED_FOR.iter().filter_map(presence)).collect()
}

/// Refuses an image with a link on the way to one of these places: the runtime would follow it, and mount elsewhere.
pub(super) fn refuse_links(
    daemon: &Daemon,
    image: &str,
    places: &BTreeSet<&str>,
    containers: &Path,
) -> Result<(), SandboxError> {
    let seen = containers.join("images").join(format!("{}.plain", image.trim_start_matches("sha256:")));
    let mut known: BTreeSet<String> =
        fs::read(&seen).ok().and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default();
    let is_new = |place: &&&str| !known.contains(**place);
    let new: Vec<&str> = places.iter().filter(is_new).copied().collect();
    if new.is_empty() {
        return Ok(());
    }
    with_container(daemon, image, containers, |name| {
        new.iter().try_for_each(|place| match link_on_the_way(daemon, name, place)? {
            Some(link) => Err(led_away(place, &link)),
            None => Ok(()),
        })
    })?;
    known.extend(new.into_iter().map(String::from));
    write_aside(&seen, serde_json::to_vec(&known));
    Ok(())
}

fn led_away(place: &str, link: &str) -> SandboxError {
    let message =
        format!("the image has a link at `{link}`, which would lead `/{place}` of the sandbox elsewhere");
    ErrorCode::ImageRefused.error(message).hint(hint!(
        "make an image of it with a directory there ({}), or use another one",
        CommandLine::Build
    ))
}

fn link_on_the_way(daemon: &Daemon, name: &str, place: &str) -> Result<Option<String>, SandboxError> {
    for end in place.match_indices('/').map(|(end, _)| end).chain([place.len()]) {
        let part = format!("/{}", &place[..end]);
        let options = ContainerArchiveInfoOptionsBuilder::default().path(&part).build();
        let found =
            daemon.try_run(async |client| client.get_container_archive_info(name, Some(options)).await);
        match found {
            Ok(found) if !found.link_target.is_empty() => return Ok(Some(part)),
            Ok(_) => {}
            // Then there is nothing below it either.
            Err(error) if is_missing(&error) => return Ok(None),
            Err(error) => return Err(refused("look into the image", &error)),
        }
    }
    Ok(None)
}

/// The first regular file of an archive: ustar, of `pax(1)`. A stranger's image is in it, so nothing is taken for granted.
fn first_file(mut archive: &[u8]) -> Option<&[u8]> {
    loop {
        let (header, rest) = archive.split_at_checked(BLOCK)?;
        let size = std::str::from_utf8(&header[124..135]).ok()?;
        let size = usize::from_str_radix(size.trim_matches(['\0', ' ']), 8).ok()?;
        match header[156] {
            b'0' | 0 => return rest.get(..size).filter(|content| content.len() <= LARGEST),
            // What is said of the next one.
            b'x' | b'g' => archive = rest.get(size.next_multiple_of(BLOCK)..)?,
            _ => return None,
        }
    }
}

/// A place without its leading slash, if it is a plain one.
fn plain(path: &str) -> Option<String> {
    let place = path.trim_matches('/');
    let is_plain = !place.is_empty() && place.split('/').all(|part| !matches!(part, "" | "." | ".."));
    is_plain.then(|| place.to_string())
}

fn remembered(file: &Path) -> Option<Vec<(String, Vec<u8>)>> {
    let all: Vec<(String, String)> = serde_json::from_slice(&fs::read(file).ok()?).ok()?;
    all.into_iter().map(|(place, content)| Some((place, STANDARD.decode(content).ok()?))).collect()
}

/// Nothing depends on it.
fn remember(file: &Path, known: &[(String, Vec<u8>)]) {
    let all: Vec<(&String, String)> =
        known.iter().map(|(place, content)| (place, STANDARD.encode(content))).collect();
    write_aside(file, serde_json::to_vec(&all));
}

/// Whole or not at all.
fn write_aside(file: &Path, text: serde_json::Result<Vec<u8>>) {
    let (Ok(text), Some(directory)) = (text, file.parent()) else { return };
    let _ = create_private(directory).and_then(|()| write_atomic(file, &text, Survives::Kill));
}

const BLOCK: usize = 512;
/// More is no list of users; and all that a guest is told goes through its control socket in one piece.
const LARGEST: usize = 512 << 10;
/// Room for what an archive says of it.
const HEADERS: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(kind: u8, content: &[u8]) -> Vec<u8> {
        let mut entry = vec![0; BLOCK];
        entry[124..136].copy_from_slice(format!("{:011o}\0", content.len()).as_bytes());
        entry[156] = kind;
        entry.extend(content);
        entry.resize(entry.len().next_multiple_of(BLOCK), 0);
        entry
    }

    #[test]
    fn the_first_file_of_an_archive_is_read_and_nothing_else_is() {
        assert_eq!(first_file(&entry(b'0', b"root:x")), Some(&b"root:x"[..]));
        assert_eq!(first_file(&[entry(b'x', &[b'p'; 600]), entry(b'0', b"a")].concat()), Some(&b"a"[..]));
        for archive in [
            entry(b'2', b""),
            entry(b'5', b""),
            vec![0; 100],
            vec![255; 2000],
            entry(b'0', b"abc")[..512].to_vec(),
        ] {
            assert_eq!(first_file(&archive), None);
        }
    }

    #[test]
    fn what_was_seen_is_remembered() {
        let place = tempfile::tempdir().expect("a folder");
        let file = place.path().join("images/ab");
        assert_eq!(remembered(&file), None);
        let known =
            vec![("etc/passwd".to_string(), b"root\n\xff".to_vec()), ("bin/sh".to_string(), Vec::new())];
        remember(&file, &known);
        assert_eq!(remembered(&file), Some(known));
    }
}
