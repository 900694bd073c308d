//! An image, from a file: what `docker save` writes, or an OCI layout in an archive. For machines without a network, and no
//! less hostile than a registry.

mod archive;

use super::layers;
use super::names::{self, Record, milliseconds};
use super::pull::{choose, must_be, must_be_described, must_have, suiting};
use super::{Store, files};
use crate::digest::{Digest, Hasher};
use crate::document::{Descriptor, Document, ImageConfig};
use crate::error::ImageError;
use crate::image::Image;
use crate::limits::{DOCUMENT, Limits};
use crate::progress::Progress;
use crate::reference::Reference;
use archive::Members;
use belljar_spec::ImageName;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::SystemTime;

impl Store {
    /// Takes an image from an archive; afterwards the name stands for it. An archive with several images must have one that is
    /// called so.
    pub fn import(
        &self,
        archive: &Path,
        name: &ImageName,
        limits: &Limits,
        progress: &dyn Progress,
    ) -> Result<Image, ImageError> {
        let reference = Reference::of(name);
        let _hold = self.shared()?;
        let place = self.blobs().join(format!("import-{}", files::unique()));
        let members = Members::unpack(archive, &place, limits)?;
        let found = match members.find("manifest.json") {
            Some(_) => saved(&members, &reference, limits)?,
            None => layout(&members, &reference, limits)?,
        };
        let ids = found.config.diff_ids(found.layers.len())?.to_vec();
        let jobs: BTreeMap<&Digest, &String> = ids.iter().zip(&found.layers).collect();
        let mut missing = Vec::new();
        for (layer, member) in &jobs {
            let (file, _) = members.open(member)?;
            let (blob, _) = Hasher::of_reader(file).map_err(ImageError::store("read", member.as_str()))?;
            if !self.has(layer, &blob) {
                missing.push((*layer, *member, blob));
            }
        }
        progress.found(ids.len(), missing.len(), 0);
        let (mut made, mut left) = (Vec::new(), limits.image_bytes);
        for (layer, member, blob) in &missing {
            let (file, size) = members.open(member)?;
            let within = Limits { layer_bytes: limits.layer_bytes.min(left), ..limits.clone() };
            let new = layers::make(&self.layers(), layer, blob, file, size, &within)?;
            left = left.saturating_sub(new.found.taken);
            progress.unpacked(layer, size, size);
            made.push(new);
        }
        layers::finish(&self.layers(), &made)?;
        self.check_size(&ids, limits)?;
        let record = Record {
            name: reference.to_string(),
            digest: found.digest,
            layers: ids,
            run: found.config.config.unwrap_or_default(),
            since: milliseconds(SystemTime::now()),
        };
        names::write(&self.names(), &reference, &record)?;
        self.image(name.clone(), record)?.ok_or_else(|| ImageError::Damaged(name.to_string()))
    }
}

/// An image in an archive.
struct Found {
    digest: Digest,
    config: ImageConfig,
    /// The members that its layers are in, the lowest first.
    layers: Vec<String>,
}

/// `manifest.json` of `docker save`.
#[derive(Deserialize)]
struct Saved {
    #[serde(rename = "Config")]
    config: String,
    #[serde(rename = "RepoTags", default)]
    tags: Option<Vec<String>>,
    #[serde(rename = "Layers")]
    layers: Vec<String>,
}

fn saved(members: &Members, reference: &Reference, limits: &Limits) -> Result<Found, ImageError> {
    let all: Vec<Saved> = serde_json::from_slice(&members.read("manifest.json", DOCUMENT)?)
        .map_err(|error| members.refused(format!("its manifest.json: {error}")))?;
    let is_called_so = |image: &&Saved| {
        let names = image.tags.iter().flatten().filter_map(|tag| tag.parse::<ImageName>().ok());
        names.map(|name| Reference::of(&name)).any(|name| name == *reference)
    };
    let image = match all.as_slice() {
        [only] => only,
        several => {
            several.iter().find(is_called_so).ok_or_else(|| none_of(several.len(), members, reference))?
        }
    };
    if image.layers.is_empty() || image.layers.len() > limits.layers {
        return Err(members.refused(format!("its image has no layers, or more than {}", limits.layers)));
    }
    let bytes = members.read(&image.config, DOCUMENT)?;
    // There is no manifest with a digest; docker calls this one the image's id.
    let digest = Digest::of(&bytes);
    if let Some(expected) = &reference.digest {
        must_be("image's id", expected, &digest)?;
    }
    Ok(Found { digest, config: suiting(ImageConfig::parse(&bytes)?)?, layers: image.layers.clone() })
}

/// `index.json` of an OCI layout.
#[derive(Deserialize)]
struct Index {
    manifests: Vec<Descriptor>,
}

fn layout(members: &Members, reference: &Reference, limits: &Limits) -> Result<Found, ImageError> {
    if members.find("index.json").is_none() {
        return Err(members.refused("it has neither a manifest.json nor an index.json".into()));
    }
    let index: Index = serde_json::from_slice(&members.read("index.json", DOCUMENT)?)
        .map_err(|error| members.refused(format!("its index.json: {error}")))?;
    let entry = match index.manifests.as_slice() {
        [only] => only,
        several => match called_so(several, reference) {
            Some(entry) => entry,
            // Variants of one image have no names.
            None if several.iter().all(|entry| called(entry).next().is_none()) => choose(several)?,
            None => return Err(none_of(several.len(), members, reference)),
        },
    };
    let mut digest = entry.digest.clone();
    let mut document = Document::parse(&members.blob(entry)?, limits)?;
    if let Document::Index(entries) = document {
        let chosen = choose(&entries)?;
        digest = chosen.digest.clone();
        document = Document::parse(&members.blob(chosen)?, limits)?;
    }
    if let Some(expected) = &reference.digest
        && *expected != entry.digest
    {
        must_be("manifest", expected, &digest)?;
    }
    let Document::Manifest(manifest) = document else {
        return Err(members.refused("its manifest is an index in an index".into()));
    };
    let config = suiting(ImageConfig::parse(&members.blob(&manifest.config)?)?)?;
    let mut layers = Vec::new();
    for layer in &manifest.layers {
        let member = archive::blob_name(&layer.digest);
        let (file, size) = members.open(&member)?;
        must_have("blob", layer.size, size)?;
        let (found, _) = Hasher::of_reader(file).map_err(ImageError::store("read", member.as_str()))?;
        must_be("blob", &layer.digest, &found)?;
        layers.push(member);
    }
    Ok(Found { digest, config, layers })
}

fn none_of(count: usize, members: &Members, reference: &Reference) -> ImageError {
    members.refused(format!("it has {count} images, and none is called `{reference}`"))
}

/// The entry of a layout with this digest, this full name, or this tag, if a tag is all that it says.
fn called_so<'a>(entries: &'a [Descriptor], reference: &Reference) -> Option<&'a Descriptor> {
    let full = |entry: &Descriptor| -> Vec<Reference> {
        called(entry).filter_map(|name| name.parse().ok()).map(|name| Reference::of(&name)).collect()
    };
    let has_digest = |entry: &&Descriptor| reference.digest.as_ref() == Some(&entry.digest);
    let has_name = |entry: &&Descriptor| full(entry).contains(reference);
    let has_tag = |entry: &&Descriptor| {
        full(entry).is_empty() && called(entry).any(|name| Some(name) == reference.tag.as_ref())
    };
    let find = |is_it: &dyn Fn(&&'a Descriptor) -> bool| entries.iter().find(is_it);
    find(&has_digest).or_else(|| find(&has_name)).or_else(|| find(&has_tag))
}

/// What the entry of a layout is called by who wrote it: a tag or a full name.
fn called(entry: &Descriptor) -> impl Iterator<Item = &String> {
    NAMES.into_iter().filter_map(|key| entry.annotations.get(key))
}

/// The annotations that name an entry: OCI's, and containerd's.
const NAMES: [&str; 2] = ["org.opencontainers.image.ref.name", "io.containerd.image.name"];
