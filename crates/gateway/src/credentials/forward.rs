//! The ways for a real value out of here: into a sandbox, if a run says so, for one variable, on the record; and to a program
//! of the host's own that no sandbox sees.

use belljar_spec::secret::SecretRef;
use belljar_vault::{SecretError, SecretStore};
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

/// The value itself, for the environment of a sandbox whose run asked for exactly that.
pub fn danger_forward(store: &dyn SecretStore, reference: &SecretRef) -> Result<OsString, SecretError> {
    let value = store.read(reference)?;
    if value.reveal().contains(&0) {
        return Err(SecretError {
            message: format!("the value of `{reference}` has a zero byte, which no variable can hold"),
            hint: "set it again".into(),
        });
    }
    Ok(OsString::from_vec(value.reveal().to_vec()))
}
