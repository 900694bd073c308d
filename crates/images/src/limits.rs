//! How much of an image is too much. A registry decides what it sends; these decide what is taken.

use std::time::Duration;

/// Bounds on an image. What is beyond is refused, and is not used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Of one layer, unpacked: files, names and attributes.
    pub layer_bytes: u64,
    /// Of all layers of an image, unpacked.
    pub image_bytes: u64,
    /// Files, directories and links of one layer.
    pub entries: u64,
    /// Of an image. overlayfs takes 500; docker makes at most 127.
    pub layers: usize,
    /// How many times larger than its blob a layer may be, once it is larger than `ratio_from`. Gzip cannot do more than 1032;
    /// zstd can do millions.
    pub ratio: u64,
    /// Small layers may be as dense as they like: a file of zeros is an ordinary thing.
    pub ratio_from: u64,
    /// What stays free on the disk.
    pub reserve: u64,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            layer_bytes: 64 << 30,
            image_bytes: 128 << 30,
            entries: 2_000_000,
            layers: 127,
            ratio: 200,
            ratio_from: 1 << 30,
            reserve: 512 << 20,
        }
    }
}

/// Layers that a sandbox can mount over each other: their names have to fit into one word for the kernel.
pub(crate) const MOUNTED: usize = 100;
/// A manifest, an index or a configuration: the distribution specification asks registries for 4 MiB.
pub(crate) const DOCUMENT: u64 = 4 << 20;
/// What a registry says when it refuses, and a token.
pub(crate) const ANSWER: u64 = 64 << 10;
/// For a document, with all that is tried again; and for everything that comes before the first byte of something longer.
pub(crate) const DOCUMENT_TIME: Duration = Duration::from_secs(5 * 60);
