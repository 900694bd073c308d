//! The value of a secret, while it is needed. It cannot be printed or written anywhere by accident: a caller that wants the bytes has to
//! ask for them by name, and `./dev lint` lists the crates that may.

use aws_lc_rs::constant_time::verify_slices_are_equal;
use belljar_spec::Hint;
use belljar_spec::secret::SecretRef;
use std::io::{self, Read};
use zeroize::Zeroizing;

/// A value that must not leave the host. Its memory is cleared when it is dropped.
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

    /// Reads a value to its end, without the line break that a file or a pipe has behind it. It is longer than [`MAX`]
    /// at most by one byte, which says that there is more.
    pub fn read_from(source: impl Read) -> io::Result<Secret> {
        // Enough from the start: growing would leave a copy behind.
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

    /// How long it is.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Is there nothing in it?
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// One that is text, without white space behind it: a token for a git host.
    pub fn from_text(text: &str) -> Secret {
        Secret::new(text.trim_end().as_bytes().to_vec())
    }

    /// The value as text; empty if it is none.
    pub fn reveal_text(&self) -> &str {
        std::str::from_utf8(&self.0).unwrap_or_default()
    }

    /// The value itself: to be put into a request, to be sealed, or to be looked for.
    pub fn reveal(&self) -> &[u8] {
        &self.0
    }
}

/// In a time that does not depend on where they differ.
impl PartialEq for Secret {
    fn eq(&self, other: &Secret) -> bool {
        verify_slices_are_equal(&self.0, &other.0).is_ok()
    }
}

impl Eq for Secret {}

/// The most bytes that a value has: the longest private keys have a tenth of it.
pub const MAX: usize = 64 << 10;

/// Where values are kept. Asked at every use, so that a secret that was changed counts without a restart.
pub trait SecretStore: Send + Sync {
    /// The value now.
    fn read(&self, reference: &SecretRef) -> Result<Secret, SecretError>;
}

impl dyn SecretStore + '_ {
    /// A value that is text, for a clone or a push that the host does. It goes neither into arguments nor into files.
    pub fn read_text(&self, reference: &SecretRef) -> Result<Secret, SecretError> {
        let value = self.read(reference)?;
        let text = std::str::from_utf8(value.reveal()).map_err(|_| SecretError {
            message: format!("the value of `{reference}` is not valid UTF-8"),
            hint: "set it again".into(),
        })?;
        Ok(Secret::from_text(text))
    }
}

/// Why there is no value: what happened, to what, and what to do.
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
