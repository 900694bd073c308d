//! An archive, counted and hashed as it goes by. Everything in a layer costs bytes of its archive, so this one bound holds for
//! names, attributes and files alike; and for what an imported archive has beside the image.

use super::error::UnpackError;
use crate::digest::{Digest, Hasher};
use crate::limits::Limits;
use std::io::{self, Read};

/// No more than there may be.
pub(crate) struct Bounded<R> {
    inner: R,
    read: u64,
    most: u64,
    dense: Dense,
}

/// From where on a ratio counts, and what is the most then.
struct Dense {
    most: u64,
    ratio: u64,
}

/// A bound that was hit, on its way through an `io::Error`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Hit {
    #[error("too large")]
    TooLarge(u64),
    #[error("too dense")]
    TooDense(u64),
}

impl<R: Read> Bounded<R> {
    /// At most so many bytes, and only so many times as many as what it was packed into has.
    pub(crate) fn new(inner: R, most: u64, packed: u64, limits: &Limits) -> Bounded<R> {
        let dense = packed.saturating_mul(limits.ratio).max(limits.ratio_from);
        Bounded { inner, read: 0, most, dense: Dense { most: dense, ratio: limits.ratio } }
    }

    pub(super) fn into_inner(self) -> R {
        self.inner
    }
}

impl<R: Read> Read for Bounded<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.inner.read(buffer)?;
        self.read = self.read.saturating_add(length as u64);
        if self.read > self.most {
            return Err(io::Error::other(Hit::TooLarge(self.most)));
        }
        if self.read > self.dense.most {
            return Err(io::Error::other(Hit::TooDense(self.dense.ratio)));
        }
        Ok(length)
    }
}

impl Hit {
    /// The bound that an error stands for, if it does.
    pub(crate) fn of(error: &io::Error) -> Option<Hit> {
        error.get_ref()?.downcast_ref::<Hit>().copied()
    }
}

/// With a digest of all that went by.
pub(super) struct Hashed<R> {
    inner: R,
    hasher: Hasher,
}

impl<R: Read> Hashed<R> {
    pub(super) fn new(inner: R) -> Hashed<R> {
        Hashed { inner, hasher: Hasher::new() }
    }

    pub(super) fn digest(self) -> Digest {
        self.hasher.finish()
    }
}

impl<R: Read> Read for Hashed<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.inner.read(buffer)?;
        self.hasher.update(&buffer[..length]);
        Ok(length)
    }
}

/// Why a layer is refused, if an error is a bound that it hit.
pub(super) fn hit(error: &io::Error) -> Option<UnpackError> {
    Hit::of(error).map(|hit| match hit {
        Hit::TooLarge(most) => UnpackError::TooLarge(most),
        Hit::TooDense(ratio) => UnpackError::TooDense(ratio),
    })
}
