//! Takes real values out of what a server answers. Pure: bytes in, as many bytes out, in any pieces.
//!
//! Which pieces go out, and when, depends on kinds of letters and on lengths, never on a value: see `held`.

use super::held::Scan;
use super::sought::Known;
use hyper::body::Bytes;
use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use std::collections::VecDeque;
use std::sync::Arc;

/// Replaces every known value by its placeholder, in one stream. What comes out is the same whatever the pieces are.
pub struct Redact {
    known: Arc<Known>,
    scan: Scan,
    /// The end of what came, that may be part of a value.
    held: Vec<u8>,
    /// The same, as it will be given out.
    masked: Vec<u8>,
    /// What stands between letters of the text and is none of it: behind so many bytes of what is held.
    between: VecDeque<(usize, Bytes)>,
}

impl Redact {
    /// For a stream in which all of these are looked for.
    pub fn new(known: &Arc<Known>) -> Redact {
        Redact {
            known: Arc::clone(known),
            scan: Scan::default(),
            held: Vec::new(),
            masked: Vec::new(),
            between: VecDeque::new(),
        }
    }

    /// The same values, for another stream.
    pub(crate) fn another(&self) -> Redact {
        Redact::new(&self.known)
    }

    /// Takes the next piece, and gives what can be given.
    pub fn feed(&mut self, piece: Bytes) -> Bytes {
        if piece.is_empty() {
            return piece;
        }
        let sought = self.known.now();
        self.scan.feed(&piece, sought.class());
        let length = self.held.len() + piece.len();
        // All that may be part of a value, but no more than one can have.
        let end = self.scan.waits_from().max((length + 1).saturating_sub(sought.reach())).min(length);
        let mut piece = piece;
        if self.held.is_empty() && self.between.is_empty() {
            // Most pieces have no value in them, and are passed on without a copy.
            let hits = sought.hits(&piece, self.scan.breaks());
            if hits.is_empty() {
                let rest = piece.split_off(end);
                self.held.extend_from_slice(&rest);
                self.masked.extend_from_slice(&rest);
                self.scan.forget(end);
                return piece;
            }
            self.masked.extend_from_slice(&piece);
            sought.mask(&hits, &mut self.masked);
            self.held.extend_from_slice(&piece);
        } else {
            self.held.extend_from_slice(&piece);
            self.masked.extend_from_slice(&piece);
            let hits = sought.hits(&self.held, self.scan.breaks());
            sought.mask(&hits, &mut self.masked);
        }
        self.give(end)
    }

    /// Takes bytes that stand between letters of the text, as the head of a frame does. They are passed on as they are. `None`
    /// where too much waits already that is no text: a server may send frames without any, and without end.
    pub(crate) fn pass(&mut self, bytes: &Bytes) -> Option<Bytes> {
        if self.held.is_empty() {
            return Some(bytes.clone());
        }
        // A frame for each letter that waits, and some more.
        if self.between.len() >= self.held.len() + MAX_EMPTY_FRAMES {
            return None;
        }
        self.between.push_back((self.held.len(), bytes.clone()));
        Some(Bytes::new())
    }

    /// Whether there is something that was not given yet.
    pub(crate) fn is_waiting(&self) -> bool {
        !self.held.is_empty()
    }

    /// Nothing more comes of this text: gives what was waiting. What is fed next is another text.
    pub fn finish(&mut self) -> Bytes {
        let rest = self.give(self.held.len());
        self.scan = Scan::default();
        rest
    }

    /// Takes values out of headers. One whose name has a value in it is left out.
    pub(crate) fn headers(&self, headers: &mut HeaderMap) {
        let sought = self.known.now();
        let names: Vec<HeaderName> =
            headers.keys().filter(|name| sought.is_in_name(name.as_str())).cloned().collect();
        for name in names {
            headers.remove(name);
        }
        for value in headers.values_mut() {
            let mut whole = self.another();
            let masked = [whole.feed(Bytes::copy_from_slice(value.as_bytes())), whole.finish()].concat();
            if masked != value.as_bytes() {
                *value = HeaderValue::from_bytes(&masked).unwrap_or(HeaderValue::from_static("redacted"));
            }
        }
    }

    /// Gives so many bytes of what is held, and what stands between them.
    fn give(&mut self, end: usize) -> Bytes {
        self.scan.forget(end);
        self.held.drain(..end);
        let given: Vec<u8> = self.masked.drain(..end).collect();
        if self.between.is_empty() {
            return given.into();
        }
        let mut out = Vec::with_capacity(given.len() + FRAME);
        let mut from = 0;
        while let Some((at, bytes)) = self.between.pop_front_if(|(at, _)| *at <= end) {
            out.extend_from_slice(&given[from..at]);
            out.extend_from_slice(&bytes);
            from = at;
        }
        out.extend_from_slice(&given[from..]);
        self.between.iter_mut().for_each(|(at, _)| *at -= end);
        out.into()
    }
}

/// Frames without text, and what is said between frames, while a text waits for what follows.
pub(crate) const MAX_EMPTY_FRAMES: usize = 1024;
/// What the heads of a few frames need.
const FRAME: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use belljar_vault::Secret;
    use data_encoding::{BASE64, BASE64_NOPAD, BASE64URL_NOPAD};
    use proptest::prelude::*;

    const VALUE: &str = "ghp_R34lS3cretV4lueQ7zx9PmK2bT5";

    fn known(values: &[(&str, &str)]) -> Arc<Known> {
        let known = Arc::new(Known::default());
        for (value, mask) in values {
            known.remember(&Secret::new(value.as_bytes().to_vec()), mask.as_bytes());
        }
        known
    }

    fn redact() -> Redact {
        Redact::new(&known(&[
            ("0123456789ab", "zyxwvutsrqpo"),
            ("456789abcdef", "KKKKKKKKKKKK"),
            ("aabaabaac", "LMNOPQRST"),
        ]))
    }

    /// What is given out for each piece, and at the end.
    fn pieces(mut redact: Redact, text: &[u8], cuts: &[usize]) -> Vec<Vec<u8>> {
        let mut out = Vec::new();
        let mut from = 0;
        for cut in cuts.iter().copied().chain([text.len()]) {
            let cut = cut.clamp(from, text.len());
            out.push(redact.feed(Bytes::copy_from_slice(&text[from..cut])).to_vec());
            from = cut;
        }
        out.push(redact.finish().to_vec());
        out
    }

    fn in_pieces(text: &[u8], cuts: &[usize]) -> Vec<u8> {
        pieces(redact(), text, cuts).concat()
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
    fn lines_and_events_pass_as_they_come() {
        let mut redact = redact();
        for event in ["data: {\"a\":1}\n\n", "data: 0123\n\n", "{\"key\":\"0123\"}", "a line\n"] {
            assert_eq!(redact.feed(Bytes::from_static(event.as_bytes())), event);
        }
        assert_eq!(redact.finish(), "");
    }

    /// The hole that let a secret be read letter by letter: only what was right waited.
    #[test]
    fn what_waits_says_nothing_of_a_guess() {
        for guess in ["0", "01", "0123", "x", "xx", "zzzz", "0123456789a", "xxxxxxxxxxx"] {
            let mut redact = redact();
            assert_eq!(redact.feed(Bytes::from(format!("zz {guess}"))), "zz ", "{guess}");
            assert_eq!(redact.finish(), guess.as_bytes());
        }
        let long = "x".repeat(1000);
        let given = redact().feed(Bytes::from(long)).len();
        assert_eq!(given, 1000 - 63, "no more waits than a value can have");
    }

    #[test]
    fn a_value_that_is_new_is_found_on_a_stream_that_is_open() {
        let known = known(&[(VALUE, "*")]);
        let mut open = Redact::new(&known);
        assert_eq!(open.feed(Bytes::from_static(b"sk-renewed-0123456789 ")), "sk-renewed-0123456789 ");
        assert_eq!(open.feed(Bytes::from_static(b"sk-renewed-")), "");
        known.remember(&Secret::new(b"sk-renewed-0123456789".to_vec()), b"+");
        let rest = [open.feed(Bytes::from_static(b"0123456789 ghp_")), open.finish()].concat();
        assert_eq!(rest, b"+++++++++++++++++++++ ghp_");
    }

    #[test]
    fn base64_on_several_lines_is_found() {
        let known = known(&[(VALUE, "*")]);
        for before in (0..60).step_by(7).chain([58, 59, 60]) {
            let text = format!("{}{VALUE}{}", "a".repeat(before), "z".repeat(90));
            let coded = [BASE64_NOPAD.encode(text.as_bytes()), BASE64URL_NOPAD.encode(text.as_bytes())];
            for (coded, width) in coded.iter().flat_map(|coded| [60, 64, 76].map(|width| (coded, width))) {
                for ends in ["\n", "\r\n", r"\n", r"\r\n", "\n    "] {
                    let lines: Vec<&[u8]> = coded.as_bytes().chunks(width).collect();
                    let wrapped = [&lines.join(ends.as_bytes())[..], b"\"}"].concat();
                    let cuts: Vec<usize> = (0..wrapped.len()).step_by(1 + before % 7).collect();
                    let whole = pieces(Redact::new(&known), &wrapped, &[]).concat();
                    assert_eq!(
                        whole,
                        pieces(Redact::new(&known), &wrapped, &cuts).concat(),
                        "{before} {width}"
                    );
                    assert_eq!(whole.len(), wrapped.len());
                    let lines = whole[..whole.len() - 2].chunks(width + ends.len());
                    let joined: Vec<u8> =
                        lines.flat_map(|line| &line[..width.min(line.len())]).copied().collect();
                    let joined = String::from_utf8(joined).unwrap().replace('-', "+").replace('_', "/");
                    let decoded = BASE64_NOPAD.decode(joined.as_bytes()).unwrap();
                    let decoded = String::from_utf8_lossy(&decoded);
                    // A letter at either end shares its bits with its neighbours.
                    assert!(
                        decoded.contains(&"*".repeat(VALUE.len() - 2)),
                        "{before} {width} {ends:?}: {decoded}"
                    );
                }
            }
        }
    }

    #[test]
    fn a_header_is_redacted_and_one_that_is_called_like_a_value_is_left_out() {
        let mut headers = HeaderMap::new();
        headers.insert("x-echo", HeaderValue::from_static("Bearer 0123456789ab"));
        headers.insert("x-other", HeaderValue::from_static("as it was"));
        headers.insert("x-0123456789AB-1".parse::<HeaderName>().unwrap(), HeaderValue::from_static("1"));
        let in_base64 = BASE64URL_NOPAD.encode(b"aabaabaac").to_ascii_lowercase();
        headers.append(in_base64.parse::<HeaderName>().unwrap(), HeaderValue::from_static("1"));
        redact().headers(&mut headers);
        assert_eq!(headers["x-echo"], "Bearer zyxwvutsrqpo");
        assert_eq!(headers["x-other"], "as it was");
        assert_eq!(headers.len(), 2, "{headers:?}");
    }

    /// Another value of the same shape: a letter for a letter, a digit for a digit.
    fn alike(value: &str, by: u8) -> String {
        let turn = |byte: u8, first: u8, count: u8| {
            char::from(first + (byte - first + by % (count - 1) + 1) % count)
        };
        value
            .bytes()
            .map(|byte| match byte {
                b'0'..=b'9' => turn(byte, b'0', 10),
                b'a'..=b'z' => turn(byte, b'a', 26),
                b'A'..=b'Z' => turn(byte, b'A', 26),
                other => char::from(other),
            })
            .collect()
    }

    /// Text that is made to tell values apart: their beginnings, in every form, on lines and across them.
    fn guesses(value: String) -> impl Strategy<Value = String> {
        let forms = [
            value.clone(),
            BASE64.encode(value.as_bytes()),
            BASE64.encode(format!("x:{value}").as_bytes()),
            value.bytes().map(|byte| format!("%{byte:02X}")).collect(),
            format!("{}\n{}", "A".repeat(58), BASE64.encode(value.as_bytes())),
        ];
        let some = (0..forms.len(), any::<prop::sample::Index>()).prop_map(move |(form, end)| {
            let form = &forms[form];
            form[..end.index(form.len())].to_string()
        });
        let one = prop_oneof![
            some,
            Just("A".repeat(60)),
            Just("\n".to_string()),
            Just(r"\n".to_string()),
            Just(" ".to_string()),
            Just("\",\"".to_string()),
            "[ -~]{0,30}",
        ];
        prop::collection::vec(one, 0..12).prop_map(|parts| parts.concat())
    }

    fn shaped() -> impl Strategy<Value = (String, String, String)> {
        let value = prop_oneof!["ghp_[A-Za-z0-9]{20,36}", "[A-Za-z0-9+/=:&\"]{8,40}", "[a-f0-9]{32}"];
        (value, any::<u8>()).prop_flat_map(|(value, by)| {
            let other = alike(&value, by);
            (Just(value.clone()), Just(other), guesses(value))
        })
    }

    proptest! {
        /// Text made of pieces of values, so that they often meet, overlap and are cut.
        #[test]
        fn pieces_change_nothing(
            parts in prop::collection::vec(prop_oneof![
                Just("0123456789ab"), Just("456789abcdef"), Just("cdef"), Just("0123"), Just("aab"), Just("aac"),
                Just("MDEyMzQ1Njc4OWFi"), Just("AxMjM0NTY3ODlhY"), Just("x"), Just(" "), Just("\n"), Just("\\n"),
                Just("AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAMDEyMz"), Just("Q1Njc4OWFi")], 0..12),
            cuts in prop::collection::vec(0usize..220, 0..10),
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

        /// A guessing program learns nothing from what is given out, and when: it is the same for every value of this
        /// shape.
        #[test]
        fn two_values_of_one_shape_give_the_same_pieces(
            (value, other, text) in shaped(), cuts in prop::collection::vec(0usize..400, 0..12),
        ) {
            let mut cuts = cuts;
            cuts.sort();
            let one = pieces(Redact::new(&known(&[(&value, "*")])), text.as_bytes(), &cuts);
            let two = pieces(Redact::new(&known(&[(&other, "*")])), text.as_bytes(), &cuts);
            let sizes = |pieces: &[Vec<u8>]| pieces.iter().map(Vec::len).collect::<Vec<_>>();
            prop_assert_eq!(sizes(&one), sizes(&two));
            // Whole forms are masked; where neither value is, the bytes are the same too.
            if one.concat() == text.as_bytes() && two.concat() == text.as_bytes() {
                prop_assert_eq!(one, two);
            }
        }
    }
}
