//! Images without a daemon: pulled from a registry or imported from a file, verified by digest, unpacked layer by layer, and
//! kept once for all sandboxes.
//!
//! Owns everything about images but how they are mounted. What comes from a registry is hostile: every length is bounded,
//! every byte is covered by a digest before it counts, and the kernel keeps what is unpacked beneath its directory. Runs no
//! program and never prompts for a password. Called by the engine; blocking.

mod compression;
mod digest;
mod disk;
mod document;
mod download;
#[cfg(test)]
mod dripping;
mod error;
mod image;
mod limits;
mod options;
mod pace;
mod platform;
mod progress;
mod reference;
mod registry;
mod store;
mod tar;
mod unpack;

pub use digest::{Digest, DigestError};
pub use disk::Full;
pub use download::Downloader;
pub use error::ImageError;
pub use image::{Image, Lease};
pub use limits::Limits;
pub use options::{GcOptions, Mirror, PullOptions, PullPolicy, Transport};
pub use platform::Platform;
pub use progress::{Progress, Silent};
pub use reference::Reference;
pub use store::{Collected, Listed, Store};
pub use unpack::{Skipped, UnpackError, Unpacked, unpack};
