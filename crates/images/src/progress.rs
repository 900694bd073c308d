//! What is told while an image comes.

use crate::digest::Digest;

/// Hears what happens. Called from several threads.
pub trait Progress: Send + Sync {
    /// The manifest is here: so many layers, of which `missing` are still to be fetched, with so many bytes.
    fn found(&self, _layers: usize, _missing: usize, _bytes: u64) {}
    /// So much of a layer's blob is here.
    fn fetched(&self, _layer: &Digest, _bytes: u64, _of: u64) {}
    /// So much of a layer's blob is unpacked.
    fn unpacked(&self, _layer: &Digest, _bytes: u64, _of: u64) {}
    /// It did not work and is tried again.
    fn again(&self, _why: &str) {}
}

/// Hears nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct Silent;

impl Progress for Silent {}
