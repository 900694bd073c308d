//! A layer's archive, hashed and counted as it goes by. Everything in a layer costs bytes of its archive, so this one bound
//! holds for names, attributes and files alike.

use super::error::UnpackError;
use crate::digest::{Digest, Hasher};
use crate::limits::Limits;
use std::io::{self, Read};

pub(super) struct Bounded<R> {
    inner: R,
    hasher: Hasher,
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
pub(super) enum Hit {
    #[error("too large")]
    TooLarge(u64),
    #[error("too dense")]
    TooDense(u64),
}

impl<R: Read> Bounded<R> {
    pub(super) fn new(inner: R, blob: u64, limits: &Limits) -> Bounded<R> {
        let most = blob.saturating_mul(limits.ratio).max(limits.ratio_from);
        let dense = Dense { most, ratio: limits.ratio };
        Bounded { inner, hasher: Hasher::new(), read: 0, most: limits.layer_bytes, dense }
    }

    /// Of all that went by.
    pub(super) fn digest(self) -> Digest {
        self.hasher.finish()
    }
}

impl<R: Read> Read for Bounded<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.inner.read(buffer)?;
        self.hasher.update(&buffer[..length]);
        self.read += length as u64;
        if self.read > self.most {
            return Err(io::Error::other(Hit::TooLarge(self.most)));
        }
        if self.read > self.dense.most {
            return Err(io::Error::other(Hit::TooDense(self.dense.ratio)));
        }
        Ok(length)
    }
}

/// The bound that an error stands for, if it does.
pub(super) fn hit(error: &io::Error) -> Option<UnpackError> {
    let hit = error.get_ref()?.downcast_ref::<Hit>()?;
    Some(match *hit {
        Hit::TooLarge(most) => UnpackError::TooLarge(most),
        Hit::TooDense(ratio) => UnpackError::TooDense(ratio),
    })
}
