//! The key, should an upstream say it back: stars of the same length take its place, wherever the pieces of an answer
//! are cut.

use crate::secret::Secret;
use hyper::body::Bytes;
use hyper::header::{HeaderMap, HeaderValue};

/// Looks for one value in what passes.
pub(super) struct Redact {
    value: Secret,
    /// The end of what came, if it may be the beginning of the value.
    held: Vec<u8>,
}

impl Redact {
    /// `None` for a value so short that ordinary text would be full of it.
    pub(super) fn new(value: Secret) -> Option<Redact> {
        (value.len() >= SHORTEST).then(|| Redact { value, held: Vec::new() })
    }

    /// What may go on of what came so far.
    pub(super) fn feed(&mut self, piece: Bytes) -> Bytes {
        let value = self.value.reveal();
        if self.held.is_empty() && !piece.contains(&value[0]) {
            return piece;
        }
        let mut all = std::mem::take(&mut self.held);
        all.extend_from_slice(&piece);
        blot(&mut all, value);
        // The longest end that the value begins with.
        let most = all.len().min(value.len() - 1);
        let tail = (1..=most).rev().find(|length| value.starts_with(&all[all.len() - length..])).unwrap_or(0);
        self.held = all.split_off(all.len() - tail);
        all.into()
    }

    /// The rest.
    pub(super) fn finish(&mut self) -> Bytes {
        std::mem::take(&mut self.held).into()
    }

    /// The same for the values of headers.
    pub(super) fn headers(&self, headers: &mut HeaderMap) {
        for value in headers.values_mut() {
            let mut bytes = value.as_bytes().to_vec();
            if blot(&mut bytes, self.value.reveal()) {
                *value = HeaderValue::from_bytes(&bytes).unwrap_or(HeaderValue::from_static("*"));
            }
        }
    }
}

fn blot(bytes: &mut [u8], value: &[u8]) -> bool {
    let (mut at, mut found) = (0, false);
    while let Some(next) = bytes[at..].iter().position(|byte| *byte == value[0]) {
        at += next;
        if bytes[at..].starts_with(value) {
            bytes[at..at + value.len()].fill(b'*');
            found = true;
            at += value.len();
        } else {
            at += 1;
        }
    }
    found
}

/// No key is shorter.
const SHORTEST: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    proptest::proptest! {
        #[test]
        fn the_key_passes_in_no_cut(before in "[k-]{0,9}", after in "[k-]{0,9}", cuts in proptest::collection::vec(0usize..40, 0..6)) {
            let text = format!("{before}k-k-key-1{after}k-k-key-1");
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(text.len())).collect();
            cuts.extend([0, text.len()]);
            cuts.sort();
            let mut redact = Redact::new(Secret::new(b"k-k-key-1".to_vec())).unwrap();
            let mut said = Vec::new();
            for pair in cuts.windows(2) {
                said.extend(redact.feed(Bytes::copy_from_slice(&text.as_bytes()[pair[0]..pair[1]])));
            }
            said.extend(redact.finish());
            proptest::prop_assert_eq!(String::from_utf8(said).unwrap(), format!("{before}*********{after}*********"));
        }
    }

    #[test]
    fn what_cannot_be_the_key_is_not_held_back() {
        let mut redact = Redact::new(Secret::new(b"sk-secret".to_vec())).unwrap();
        assert_eq!(redact.feed(Bytes::from_static(b"data: hello\n\n")), "data: hello\n\n");
        assert_eq!(redact.feed(Bytes::from_static(b"data: s")), "data: ");
        assert_eq!(redact.feed(Bytes::from_static(b"o\n")), "so\n");
        let mut headers = HeaderMap::new();
        headers.insert("x", HeaderValue::from_static("Bearer sk-secret"));
        redact.headers(&mut headers);
        assert_eq!(headers["x"], "Bearer *********");
        assert!(Redact::new(Secret::new(b"short".to_vec())).is_none());
    }
}
