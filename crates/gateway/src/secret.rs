//! The value of a secret, while the gateway needs it. It cannot be printed or written anywhere by accident: whoever
//! wants the bytes has to ask for them by name, and only this crate can.

use belljar_spec::secret::SecretRef;
use zeroize::Zeroizing;

/// A value that must not leave the host. Its memory is cleared when it is dropped.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Zeroizing<Vec<u8>>);

impl Secret {
    /// Takes a value.
    pub fn new(value: Vec<u8>) -> Secret {
        Secret(Zeroizing::new(value))
    }

    /// How long it is.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Is there nothing in it?
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The value itself: to be put into a request, to be sealed, or to be looked for.
    pub(crate) fn reveal(&self) -> &[u8] {
        &self.0
    }
}

/// Where values are kept. Asked at every use, so that a secret that was changed counts without a restart.
pub trait SecretStore: Send + Sync {
    /// The value now.
    fn read(&self, reference: &SecretRef) -> Result<Secret, SecretError>;
}

/// Why there is no value: what happened, to what, and what to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct SecretError {
    pub message: String,
    pub hint: String,
}
