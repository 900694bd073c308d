//! Bytes that are not always text.

use crate::client::error::ClientError;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;

/// As the API writes bytes that are no text.
pub fn base64(bytes: &[u8]) -> String {
    BASE64_STANDARD.encode(bytes)
}

/// What an output event says: text, or bytes that are none.
pub fn output_bytes(text: Option<String>, base64: Option<String>) -> Result<Vec<u8>, ClientError> {
    match (base64, text) {
        (Some(encoded), _) => BASE64_STANDARD
            .decode(encoded)
            .map_err(|error| ClientError::Protocol(format!("output that is no base64: {error}"))),
        (None, text) => Ok(text.unwrap_or_default().into_bytes()),
    }
}
