//! An image, from its registry.
//!
//! ```text
//! manifest ─> (index ─> this machine's manifest) ─> configuration ─> missing layers: fetch ─┐ several at once
//!                                                                     name <── unpack <──────┘ one by one, meanwhile
//! ```

use super::Store;
use super::layers::{self, Made};
use super::names::{self, Record, milliseconds};
use crate::digest::Digest;
use crate::document::{Descriptor, Document, ImageConfig, Manifest};
use crate::error::ImageError;
use crate::image::Image;
use crate::limits::{DOCUMENT, Limits};
use crate::options::PullOptions;
use crate::platform::Platform;
use crate::progress::Progress;
use crate::reference::Reference;
use crate::registry::{Client, endpoints, fetch_blob};
use belljar_spec::ImageName;
use futures_util::StreamExt;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, Read};
use std::panic::resume_unwind;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;
use tokio::sync::mpsc;
use tokio::task::spawn_blocking;

impl Store {
    /// Gets an image from its registry, or what is missing of it; afterwards the name stands for it.
    pub async fn pull(
        &self,
        name: &ImageName,
        options: &PullOptions,
        progress: Arc<dyn Progress>,
    ) -> Result<Image, ImageError> {
        // Built here, so no registry has it: the owner of such a name at Docker's registry would be asked for it.
        if name.registry().is_none()
            && name.repository().starts_with(OURS)
            && !name.repository().contains('/')
        {
            return Err(ImageError::Dockers(name.to_string()));
        }
        let reference = Reference::of(name);
        // A removal waits until this lock is given back.
        let hold = self.shared()?;
        let mut candidates = endpoints(&reference, options).into_iter().peekable();
        loop {
            let endpoint = candidates.next().expect("the registry itself is always asked");
            let client = Client::new(endpoint, &reference, options, &*progress)?;
            match self.pull_from(&client, &reference, options, &progress).await {
                Ok(record) => {
                    names::write(&self.names(), &reference, &record)?;
                    let image = self.image(name.clone(), record)?;
                    drop(hold);
                    return image.ok_or_else(|| ImageError::Damaged(name.to_string()));
                }
                // Another endpoint may have it. One that sends something else than was asked for is not asked again.
                Err(error) if candidates.peek().is_some() && is_absence(&error) => {
                    progress.again(&error.to_string())
                }
                Err(error) => return Err(error),
            }
        }
    }

    async fn pull_from(
        &self,
        client: &Client<'_>,
        reference: &Reference,
        options: &PullOptions,
        progress: &Arc<dyn Progress>,
    ) -> Result<Record, ImageError> {
        let (digest, manifest) = find_manifest(client, reference, &options.limits).await?;
        let config = configuration(client, &manifest.config).await?;
        let diff_ids = config.diff_ids(manifest.layers.len())?;
        let layers: BTreeMap<&Digest, &Descriptor> = diff_ids.iter().zip(&manifest.layers).collect();
        let missing = layers.iter().filter(|(layer, blob)| !self.has(layer, &blob.digest));
        let jobs: Vec<(&Digest, &Descriptor)> = missing.map(|(layer, blob)| (*layer, *blob)).collect();
        progress.found(layers.len(), jobs.len(), jobs.iter().map(|(_, blob)| blob.size).sum());
        self.fetch_and_make(client, &jobs, options, progress).await?;
        self.check_size(diff_ids, &options.limits)?;
        Ok(Record {
            name: reference.to_string(),
            digest,
            layers: diff_ids.to_vec(),
            run: config.config.clone().unwrap_or_default(),
            since: milliseconds(SystemTime::now()),
        })
    }

    /// Fetches several layers at once, and unpacks them one after the other as they come. Those that were made count, whatever
    /// becomes of the others.
    async fn fetch_and_make(
        &self,
        client: &Client<'_>,
        jobs: &[(&Digest, &Descriptor)],
        options: &PullOptions,
        progress: &Arc<dyn Progress>,
    ) -> Result<(), ImageError> {
        let (fetched, to_make) = mpsc::unbounded_channel::<Fetched>();
        let fetching = async move {
            let mut running = futures_util::stream::iter(jobs)
                .map(|(layer, blob)| {
                    let path = self.blob_place(client, layer, blob);
                    let is_here = || self.has(layer, &blob.digest);
                    async move {
                        let reserve = options.limits.reserve;
                        let file = fetch_blob(client, blob, layer, &path, reserve, &is_here).await?;
                        let (layer, blob) = ((*layer).clone(), (*blob).clone());
                        Ok(file.map(|file| Fetched { layer, blob, path, file }))
                    }
                })
                .buffer_unordered(AT_ONCE);
            while let Some(done) = running.next().await {
                // Another process made this layer meanwhile.
                let Some(done) = done? else { continue };
                // The channel is closed after unpacking failed, and that error is reported.
                if fetched.send(done).is_err() {
                    break;
                }
            }
            Ok(())
        };
        let mut made = Vec::new();
        let making = self.make_all(to_make, &mut made, &options.limits, progress);
        let (all, outcome) = tokio::join!(fetching, making);
        let (made, blobs): (Vec<Made>, Vec<PathBuf>) = made.into_iter().unzip();
        layers::finish(&self.layers(), &made)?;
        for path in blobs {
            let _ = fs::remove_file(path);
        }
        outcome.and(all)
    }

    async fn make_all(
        &self,
        mut to_make: mpsc::UnboundedReceiver<Fetched>,
        made: &mut Vec<(Made, PathBuf)>,
        limits: &Limits,
        progress: &Arc<dyn Progress>,
    ) -> Result<(), ImageError> {
        let mut left = limits.image_bytes;
        while let Some(Fetched { layer, blob, path, file }) = to_make.recv().await {
            let within = Limits { layer_bytes: limits.layer_bytes.min(left), ..limits.clone() };
            let (layers, progress) = (self.layers(), progress.clone());
            let make = move || {
                let counted =
                    Counted { inner: file, layer: &layer, read: 0, size: blob.size, progress: &*progress };
                layers::make(&layers, &layer, &blob.digest, counted, blob.size, &within)
            };
            match spawn_blocking(make).await.unwrap_or_else(|error| resume_unwind(error.into_panic())) {
                Ok(new) => {
                    left = left.saturating_sub(new.found.taken);
                    made.push((new, path));
                }
                Err(error) => {
                    // A blob that does not unpack to its layer is of no use to a later try either.
                    let _ = fs::remove_file(&path);
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// Two manifests may disagree on what a blob unpacks to, so a file is for one blob of one layer; and for one registry,
    /// so that no pull waits for what another registry sends.
    fn blob_place(&self, client: &Client<'_>, layer: &Digest, blob: &Descriptor) -> PathBuf {
        let server = Digest::of(client.server().as_bytes());
        let name = format!("{}-{}-{}", layer.hex(), &blob.digest.hex()[..16], &server.hex()[..16]);
        self.blobs().join(name)
    }

    pub(super) fn check_size(&self, ids: &[Digest], limits: &Limits) -> Result<(), ImageError> {
        let mut bytes: u64 = 0;
        for layer in ids.iter().collect::<BTreeSet<_>>() {
            bytes = bytes.saturating_add(layers::read(&self.layers(), layer)?.map_or(0, |layer| layer.taken));
        }
        if bytes > limits.image_bytes { Err(ImageError::TooLarge(limits.image_bytes)) } else { Ok(()) }
    }
}

/// A layer, what it is made of, and where that is.
struct Fetched {
    layer: Digest,
    blob: Descriptor,
    path: PathBuf,
    /// At its beginning. The path may belong to another pull by now.
    file: File,
}

/// The manifest for this machine, and its digest.
async fn find_manifest(
    client: &Client<'_>,
    reference: &Reference,
    limits: &Limits,
) -> Result<(Digest, Manifest), ImageError> {
    let bytes = client.manifest(&reference.tag_or_digest()).await?;
    let digest = Digest::of(&bytes);
    if let Some(expected) = &reference.digest {
        must_be("manifest", expected, &digest)?;
    }
    let entries = match Document::parse(&bytes, limits)? {
        Document::Manifest(manifest) => return Ok((digest, manifest)),
        Document::Index(entries) => entries,
    };
    let chosen = choose(&entries)?;
    let bytes = client.manifest(&chosen.digest.to_string()).await?;
    must_be_described("manifest", chosen, &bytes)?;
    match Document::parse(&bytes, limits)? {
        Document::Manifest(manifest) => Ok((chosen.digest.clone(), manifest)),
        Document::Index(_) => {
            Err(ImageError::Document { what: "manifest", why: "it is an index in an index".into() })
        }
    }
}

/// The entry for this machine.
pub(super) fn choose(entries: &[Descriptor]) -> Result<&Descriptor, ImageError> {
    let here = Platform::here();
    let suiting = entries.iter().filter_map(|entry| {
        let how = match &entry.platform {
            Some(platform) => here.suits(platform)?,
            // It does not say, and is all there is.
            None if entries.len() == 1 => 9,
            None => return None,
        };
        Some((how, entry))
    });
    // The first of the best.
    suiting.min_by_key(|(how, _)| *how).map(|(_, entry)| entry).ok_or_else(|| {
        let there: BTreeSet<String> =
            entries.iter().filter_map(|entry| entry.platform.as_ref()).map(Platform::to_string).collect();
        let there: Vec<String> = there.into_iter().take(20).collect();
        let there = match there.join(", ").escape_debug().to_string() {
            nothing if nothing.is_empty() => "nothing that says which machine it is for".into(),
            there => there,
        };
        ImageError::Platform { here: here.to_string(), there }
    })
}

async fn configuration(client: &Client<'_>, config: &Descriptor) -> Result<ImageConfig, ImageError> {
    if config.size > DOCUMENT {
        let why = format!("it is larger than {DOCUMENT} bytes");
        return Err(ImageError::Document { what: "configuration", why });
    }
    let bytes = client.document(&config.digest.to_string()).await?;
    must_be_described("configuration", config, &bytes)?;
    suiting(ImageConfig::parse(&bytes)?)
}

/// A configuration of an image that runs here.
pub(super) fn suiting(config: ImageConfig) -> Result<ImageConfig, ImageError> {
    let here = Platform::here();
    match &config.platform {
        // What does not say is taken at its layers' word.
        Some(platform)
            if !platform.os.is_empty()
                && !platform.architecture.is_empty()
                && here.suits(platform).is_none() =>
        {
            let there = platform.to_string().escape_debug().to_string();
            Err(ImageError::Platform { here: here.to_string(), there })
        }
        _ => Ok(config),
    }
}

pub(super) fn must_be(what: &'static str, expected: &Digest, found: &Digest) -> Result<(), ImageError> {
    if expected == found {
        return Ok(());
    }
    Err(ImageError::Mismatch { what, expected: expected.to_string(), found: found.to_string() })
}

/// The digest and the size.
pub(super) fn must_be_described(
    what: &'static str,
    expected: &Descriptor,
    found: &[u8],
) -> Result<(), ImageError> {
    must_be(what, &expected.digest, &Digest::of(found))?;
    must_have(what, expected.size, found.len() as u64)
}

pub(super) fn must_have(what: &'static str, expected: u64, found: u64) -> Result<(), ImageError> {
    if expected == found {
        return Ok(());
    }
    let (expected, found) = (format!("{expected} bytes"), format!("{found} bytes"));
    Err(ImageError::Mismatch { what, expected, found })
}

/// Whether another endpoint may do better.
fn is_absence(error: &ImageError) -> bool {
    matches!(
        error,
        ImageError::NotFound { .. }
            | ImageError::Unreachable { .. }
            | ImageError::Unauthorized { .. }
            | ImageError::Answer { .. }
    )
}

/// A blob that says how far it is.
struct Counted<'a> {
    inner: File,
    layer: &'a Digest,
    read: u64,
    size: u64,
    progress: &'a dyn Progress,
}

impl Read for Counted<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.inner.read(buffer)?;
        self.read += length as u64;
        self.progress.unpacked(self.layer, self.read, self.size);
        Ok(length)
    }
}

/// How images are called that `belljar images build` makes.
const OURS: &str = "belljar-";
/// As docker does.
const AT_ONCE: usize = 3;
