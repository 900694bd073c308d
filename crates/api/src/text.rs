//! Bytes as text in JSON.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// Bytes as text, with U+FFFD for what is not valid UTF-8; and as base64, where the text differs from them.
pub fn text_and_base64(bytes: Vec<u8>) -> (String, Option<String>) {
    match String::from_utf8(bytes) {
        Ok(text) => (text, None),
        Err(error) => {
            let bytes = error.as_bytes();
            (String::from_utf8_lossy(bytes).into_owned(), Some(STANDARD.encode(bytes)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_are_not_utf8_are_also_base64() {
        assert_eq!(text_and_base64(b"a\xffb".to_vec()), ("a\u{fffd}b".into(), Some("Yf9i".into())));
        assert_eq!(text_and_base64(b"ab".to_vec()), ("ab".into(), None));
    }
}
