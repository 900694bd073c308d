//! Takes real values out of what a server answers. Pure: bytes in, as many bytes out, in any pieces.

use super::forms::{Forms, Hit};
use hyper::body::Bytes;
use hyper::header::{HeaderMap, HeaderValue};
use std::sync::Arc;

/// Replaces every known value by its placeholder. The same whatever the pieces are; only what may be the beginning of a
/// value waits for the next.
pub(crate) struct Redact {
    values: Vec<Arc<Forms>>,
    /// The end of what came, that may be a beginning.
    held: Vec<u8>,
    /// The same, as it will be given out if it is none.
    masked: Vec<u8>,
}

impl Redact {
    pub(crate) fn new(values: Vec<Arc<Forms>>) -> Redact {
        Redact { values, held: Vec::new(), masked: Vec::new() }
    }

    /// Takes the next piece, and gives what can be given.
    pub(crate) fn feed(&mut self, piece: Bytes) -> Bytes {
        if piece.is_empty() {
            return piece;
        }
        // Most pieces are whole, clean, and passed on as they are.
        if self.held.is_empty() {
            let hits = self.hits(&piece);
            let begun = self.begun(&piece);
            if hits.is_empty() {
                let end = piece.len() - begun;
                self.hold(&piece[end..], &piece[end..]);
                return piece.slice(..end);
            }
            let mut masked = piece.to_vec();
            self.mask(&hits, &mut masked);
            return self.give(piece.to_vec(), masked, begun);
        }
        let mut text = std::mem::take(&mut self.held);
        let mut masked = std::mem::take(&mut self.masked);
        text.extend_from_slice(&piece);
        masked.extend_from_slice(&piece);
        let hits = self.hits(&text);
        self.mask(&hits, &mut masked);
        let begun = self.begun(&text);
        self.give(text, masked, begun)
    }

    /// Nothing more comes: gives what was waiting.
    pub(crate) fn finish(&mut self) -> Bytes {
        self.held.clear();
        std::mem::take(&mut self.masked).into()
    }

    /// Takes values out of headers.
    pub(crate) fn headers(&self, headers: &mut HeaderMap) {
        for value in headers.values_mut() {
            let text = value.as_bytes();
            let hits = self.hits(text);
            if hits.is_empty() {
                continue;
            }
            let mut masked = text.to_vec();
            self.mask(&hits, &mut masked);
            *value = HeaderValue::from_bytes(&masked).unwrap_or(HeaderValue::from_static("redacted"));
        }
    }

    fn give(&mut self, text: Vec<u8>, mut masked: Vec<u8>, begun: usize) -> Bytes {
        let end = text.len() - begun;
        self.hold(&text[end..], &masked[end..]);
        masked.truncate(end);
        masked.into()
    }

    fn hold(&mut self, text: &[u8], masked: &[u8]) {
        self.held.extend_from_slice(text);
        self.masked.extend_from_slice(masked);
    }

    fn begun(&self, text: &[u8]) -> usize {
        self.values.iter().map(|forms| forms.begun(text)).max().unwrap_or(0)
    }

    /// By where they begin: of two that overlap, the later is written over the earlier, in whatever pieces they came.
    fn hits(&self, text: &[u8]) -> Vec<Hit> {
        let mut hits = Vec::new();
        let mut first = 0;
        for forms in &self.values {
            forms.hits(text, first, &mut hits);
            first += forms.len();
        }
        hits.sort();
        hits
    }

    fn mask(&self, hits: &[Hit], masked: &mut [u8]) {
        for hit in hits {
            let put = self.put(hit.form);
            if let Some(place) = masked.get_mut(hit.at..hit.at + put.len()) {
                place.copy_from_slice(put);
            }
        }
    }

    fn put(&self, mut form: usize) -> &[u8] {
        for forms in &self.values {
            if form < forms.len() {
                return forms.put(form);
            }
            form -= forms.len();
        }
        &[]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn redact() -> Redact {
        let values =
            [("0123456789ab", "zyxwvutsrqpo"), ("456789abcdef", "KKKKKKKKKKKK"), ("aabaabaac", "LMNOPQRST")];
        let forms = values.iter().map(|(value, mask)| Arc::new(Forms::of(value.as_bytes(), mask.as_bytes())));
        Redact::new(forms.collect())
    }

    fn in_pieces(text: &[u8], cuts: &[usize]) -> Vec<u8> {
        let mut redact = redact();
        let mut out = Vec::new();
        let mut from = 0;
        for cut in cuts.iter().copied().chain([text.len()]) {
            let cut = cut.clamp(from, text.len());
            out.extend_from_slice(&redact.feed(Bytes::copy_from_slice(&text[from..cut])));
            from = cut;
        }
        out.extend_from_slice(&redact.finish());
        out
    }

    #[test]
    fn a_value_is_replaced_wherever_it_is_cut() {
        let text = b"key=0123456789ab; again 0123456789ab.";
        for at in 0..=text.len() {
            assert_eq!(in_pieces(text, &[at]), b"key=zyxwvutsrqpo; again zyxwvutsrqpo.", "{at}");
        }
        let bytewise: Vec<usize> = (0..text.len()).collect();
        assert_eq!(in_pieces(text, &bytewise), b"key=zyxwvutsrqpo; again zyxwvutsrqpo.");
    }

    #[test]
    fn only_what_may_be_a_beginning_waits() {
        let mut redact = redact();
        assert_eq!(redact.feed(Bytes::from_static(b"data: {\"a\":1}\n\n")), "data: {\"a\":1}\n\n");
        assert_eq!(redact.feed(Bytes::from_static(b"x 0123")), "x ");
        assert_eq!(redact.feed(Bytes::from_static(b" y")), "0123 y");
        assert_eq!(redact.finish(), "");
        assert_eq!(redact.feed(Bytes::from_static(b"01234")), "");
        assert_eq!(redact.finish(), "01234");
    }

    #[test]
    fn a_header_is_redacted_too() {
        let mut headers = HeaderMap::new();
        headers.insert("x-echo", HeaderValue::from_static("Bearer 0123456789ab"));
        headers.insert("x-other", HeaderValue::from_static("as it was"));
        redact().headers(&mut headers);
        assert_eq!(headers["x-echo"], "Bearer zyxwvutsrqpo");
        assert_eq!(headers["x-other"], "as it was");
    }

    proptest! {
        /// Text made of pieces of values, so that they often meet, overlap and are cut.
        #[test]
        fn pieces_change_nothing(
            parts in prop::collection::vec(prop_oneof![
                Just("0123456789ab"), Just("456789abcdef"), Just("cdef"), Just("0123"), Just("aab"), Just("aac"),
                Just("MDEyMzQ1Njc4OWFi"), Just("AxMjM0NTY3ODlhY"), Just("x"), Just(" ")], 0..12),
            cuts in prop::collection::vec(0usize..120, 0..10),
        ) {
            let text = parts.concat();
            let mut cuts = cuts;
            cuts.sort();
            let whole = in_pieces(text.as_bytes(), &[]);
            let pieces = in_pieces(text.as_bytes(), &cuts);
            prop_assert_eq!(&whole, &pieces);
            prop_assert_eq!(whole.len(), text.len());
            let whole = String::from_utf8_lossy(&whole).into_owned();
            prop_assert!(!whole.contains("0123456789ab") && !whole.contains("456789abcdef"), "{}", whole);
        }
    }
}
