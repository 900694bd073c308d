//! The value of a secret, while it is needed. It cannot be printed or written anywhere by accident: a caller that needs the bytes
//! has to call a method by name, and `./dev lint` lists the crates that may.

use aws_lc_rs::constant_time::verify_slices_are_equal;
use belljar_spec::Hint;
use belljar_spec::secret::SecretRef;
use std::io::{self, Read};
use zeroize::Zeroizing;

/// A value that must not leave the host. Its memory is cleared on drop.
///
/// It has no `Debug`, no `Display` and no `Serialize`, so that it cannot end up in a message, a log or a file:
///
/// ```compile_fail,E0277
/// println!("{:?}", belljar_vault::Secret::new(b"value".to_vec()));
/// ```
#[derive(Clone)]
pub struct Secret(Zeroizing<Vec<u8>>);

impl Secret {
    /// Takes a value.
    pub fn new(value: Vec<u8>) -> Secret {
        Secret(Zeroizing::new(value))
    }

    /// Reads a value to its end, without the final line break of a file or a pipe. It is longer than [`MAX`] by at most one byte,
    /// which means that there is more.
    pub fn read_from(source: impl Read) -> io::Result<Secret> {
        // Full capacity from the start: growing would leave a copy behind.
        let most = MAX + b"\r\n".len() + 1;
        let mut value = Zeroizing::new(Vec::with_capacity(most));
        source.take(most as u64).read_to_end(&mut value)?;
        if value.last() == Some(&b'\n') {
            value.pop();
            if value.last() == Some(&b'\r') {
                value.pop();
            }
        }
        value.truncate(MAX + 1);
        Ok(Secret(value))
    }

    /// Its length in bytes.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Is it empty?
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Makes one from text, without trailing white space: a token for a git host.
    pub fn from_text(text: &str) -> Secret {
        Secret::new(text.trim_end().as_bytes().to_vec())
    }

    /// The value as text; empty if it is not UTF-8.
    pub fn reveal_text(&self) -> &str {
        std::str::from_utf8(&self.0).unwrap_or_default()
    }

    /// Whether it begins like this: what kind of token it is, which the value itself says.
    pub fn begins_with(&self, prefix: &[u8]) -> bool {
        self.reveal().starts_with(prefix)
    }

    /// Whether a text has the value in it: what is written down must not.
    pub fn is_within(&self, text: &[u8]) -> bool {
        !self.0.is_empty() && text.windows(self.0.len()).any(|window| window == self.0.as_slice())
    }

    /// The value itself: to be put into a request, encrypted, or searched for.
    pub fn reveal(&self) -> &[u8] {
        &self.0
    }
}

/// Compares in constant time.
impl PartialEq for Secret {
    fn eq(&self, other: &Secret) -> bool {
        verify_slices_are_equal(&self.0, &other.0).is_ok()
    }
}

impl Eq for Secret {}

/// The maximum length of a value: the longest private keys have a tenth of it.
pub const MAX: usize = 64 << 10;

/// A store of values. Read at every use, so that a changed secret counts without a restart.
pub trait SecretStore: Send + Sync {
    /// The present value.
    fn read(&self, reference: &SecretRef) -> Result<Secret, SecretError>;
}

impl dyn SecretStore + '_ {
    /// A text value, for a clone or a push on the host. It goes neither into arguments nor into files.
    pub fn read_text(&self, reference: &SecretRef) -> Result<Secret, SecretError> {
        let value = self.read(reference)?;
        let text = std::str::from_utf8(value.reveal()).map_err(|_| SecretError {
            message: format!("the value of `{reference}` is not valid UTF-8"),
            hint: "set it again".into(),
        })?;
        Ok(Secret::from_text(text))
    }
}

/// Why there is no value: what happened, to which secret, and what to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct SecretError {
    pub message: String,
    pub hint: Hint,
}

/// Does not compile if the type has the trait: there would be two of `absent` then.
macro_rules! has_no {
    ($type:ty: $($trait:path),+) => {$(
        const _: fn() = || {
            trait Absent<Whether> {
                fn absent() {}
            }
            struct Present;
            impl<T: ?Sized> Absent<()> for T {}
            impl<T: ?Sized + $trait> Absent<Present> for T {}
            <$type as Absent<_>>::absent();
        };
    )+};
}

has_no!(Secret: std::fmt::Debug, std::fmt::Display, serde::Serialize, AsRef<[u8]>, std::ops::Deref, Copy);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_read_without_its_line_break() {
        let cases: [(&[u8], &[u8]); 6] = [
            (b"value", b"value"),
            (b"value\n", b"value"),
            (b"value\r\n", b"value"),
            (b"value\n\n", b"value\n"),
            (b"\n", b""),
            (b"-----BEGIN-----\nx\n-----END-----\n", b"-----BEGIN-----\nx\n-----END-----"),
        ];
        for (written, value) in cases {
            assert!(Secret::read_from(written).unwrap().reveal() == value, "{written:?}");
        }
    }

    #[test]
    fn a_value_that_is_too_long_is_seen_to_be() {
        let length = |written: usize| Secret::read_from(io::repeat(b'x').take(written as u64)).unwrap().len();
        assert_eq!(length(MAX), MAX);
        assert_eq!(length(MAX + 1), MAX + 1);
        assert_eq!(length(usize::MAX), MAX + 1);
        let ended = [vec![b'x'; MAX], b"\r\n".to_vec()].concat();
        assert_eq!(Secret::read_from(&ended[..]).unwrap().len(), MAX);
    }
}
