//! A registry with one image, which answers as a test wants; a store to pull it to, and what is in there afterwards.

use crate::archive::{config, gzip};
use crate::registry::GZIP;
use crate::server::{Request, Server, answer};
use belljar_images::{Digest, Image, ImageError, PullOptions, Silent, Store};
use std::fs;
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;

pub(crate) fn store() -> (tempfile::TempDir, Store) {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(&folder.path().join("images")).unwrap();
    (folder, store)
}

pub(crate) fn pull(store: &Store, name: &str, options: &PullOptions) -> Result<Image, ImageError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(store.ensure(&name.parse().unwrap(), options, Arc::new(Silent)))
}

pub(crate) fn zstd(bytes: &[u8]) -> Vec<u8> {
    use ruzstd::encoding::{CompressionLevel, compress_to_vec};
    compress_to_vec(bytes, CompressionLevel::Fastest)
}

/// What is in the store but the image that a test had before.
pub(crate) fn remains(folder: &Path) -> Vec<String> {
    let mut names = Vec::new();
    for place in ["layers", "names", "blobs"] {
        let entries = fs::read_dir(folder.join("images").join(place)).unwrap();
        names.extend(entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()));
    }
    names.retain(|name| !name.ends_with(".lock"));
    names
}

/// A registry with one image of one layer, which answers as `change` wants where that answers.
pub(crate) fn served(
    layer: &[u8],
    change: impl Fn(&Request, &mut TcpStream) -> bool + Send + Sync + 'static,
) -> (Server, Digest) {
    served_as(layer, gzip(layer), change)
}

/// The same, with the layer packed so.
pub(crate) fn served_as(
    layer: &[u8],
    blob: Vec<u8>,
    change: impl Fn(&Request, &mut TcpStream) -> bool + Send + Sync + 'static,
) -> (Server, Digest) {
    let config = config(&[layer]);
    let manifest = manifest(&config, &[&blob]);
    let digest = Digest::of(manifest.as_bytes());
    let (config_digest, blob_digest) =
        (Digest::of(config.as_bytes()).to_string(), Digest::of(&blob).to_string());
    let server = Server::start(move |request, stream| {
        if change(request, stream) {
            return;
        }
        let last = request.path.rsplit('/').next().unwrap();
        let body: &[u8] = match last {
            _ if request.path.contains("/manifests/") => manifest.as_bytes(),
            last if last == config_digest => config.as_bytes(),
            last if last == blob_digest => &blob,
            _ => return answer(stream, "404 Not Found", &[], b""),
        };
        answer(stream, "200 OK", &[], body);
    });
    (server, digest)
}

pub(crate) fn manifest(config: &str, blobs: &[&[u8]]) -> String {
    let described: Vec<String> = blobs
        .iter()
        .map(|blob| {
            format!(r#"{{"mediaType":"{GZIP}","digest":"{}","size":{}}}"#, Digest::of(blob), blob.len())
        })
        .collect();
    format!(
        r#"{{"schemaVersion":2,"config":{{"digest":"{}","size":{}}},"layers":[{}]}}"#,
        Digest::of(config.as_bytes()),
        config.len(),
        described.join(",")
    )
}
