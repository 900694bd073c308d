//! One credential of a sandbox: its placeholder, and every value that it had in the sandbox's life.

use super::forms::Forms;
use super::placeholder;
use super::sought::Known;
use belljar_spec::secret::Credential;
use belljar_vault::{Secret, SecretError};
use std::sync::Arc;

pub(super) struct Bound {
    pub(super) credential: Credential,
    pub(super) placeholder: String,
    /// The placeholder, as it is looked for.
    pub(super) sought: Arc<Forms>,
    /// Where every stream of the sandbox finds what must not pass.
    known: Arc<Known>,
}

impl Bound {
    /// With the value that it has now, for its shape.
    pub(super) fn new(
        credential: Credential,
        value: &Secret,
        known: &Arc<Known>,
    ) -> Result<Bound, SecretError> {
        check(&credential, value)?;
        let placeholder = placeholder::like(value)?;
        let sought = Arc::new(Forms::of(placeholder.as_bytes(), placeholder.as_bytes()));
        let known = Arc::clone(known);
        known.remember(value, placeholder.as_bytes());
        Ok(Bound { credential, placeholder, sought, known })
    }

    /// The value that it has by now.
    pub(super) fn changed(&self, value: &Secret) -> Result<(), SecretError> {
        check(&self.credential, value)?;
        self.known.remember(value, self.placeholder.as_bytes());
        Ok(())
    }
}

/// A value that could not be told apart in an answer, or that no request can carry, is none.
fn check(credential: &Credential, value: &Secret) -> Result<(), SecretError> {
    let wrong = |what: String, hint: &str| SecretError {
        message: format!("the value of {} ({}) {what}", credential.source, credential.name),
        hint: hint.into(),
    };
    if value.len() < SHORTEST {
        let what = format!("has only {} bytes, too few to be told apart in an answer", value.len());
        return Err(wrong(what, "use a secret of 8 bytes or more"));
    }
    if value.len() > MAX_HEADER_BYTES {
        return Err(wrong(
            format!("has {} bytes, more than a header can carry", value.len()),
            "use a shorter secret",
        ));
    }
    if !value.reveal().iter().all(u8::is_ascii_graphic) {
        let what = "has a space, a line break or another letter that no header can carry".into();
        return Err(wrong(what, "set it again, with nothing but the key itself"));
    }
    Ok(())
}

/// Shorter text is found where it is not the secret.
const SHORTEST: usize = 8;
/// Servers refuse longer headers.
const MAX_HEADER_BYTES: usize = 8 * 1024;
