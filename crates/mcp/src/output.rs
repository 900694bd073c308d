//! What a command wrote, as much of it as a model should read at once: the beginning and the end.

use std::collections::VecDeque;

/// The beginning and the end of output that may be large.
#[derive(Debug, Default)]
pub(crate) struct Output {
    first: Vec<u8>,
    last: VecDeque<u8>,
    /// Bytes between the two that were dropped.
    dropped: u64,
}

impl Output {
    pub(crate) fn add(&mut self, bytes: &[u8]) {
        let room = FIRST_BYTES - self.first.len();
        let (begins, rest) = bytes.split_at(room.min(bytes.len()));
        self.first.extend_from_slice(begins);
        self.last.extend(rest);
        let excess = self.last.len().saturating_sub(LAST_BYTES);
        self.last.drain(..excess);
        self.dropped += excess as u64;
    }

    /// As text. A character that was cut in two is left out.
    pub(crate) fn text(mut self) -> String {
        if self.dropped == 0 {
            self.first.extend(self.last);
            return String::from_utf8_lossy(&self.first).into_owned();
        }
        let last: Vec<u8> = self.last.into_iter().skip_while(|byte| byte & 0xc0 == 0x80).collect();
        let (first, last) = (String::from_utf8_lossy(&self.first), String::from_utf8_lossy(&last));
        let first = first.trim_end_matches('\u{fffd}');
        format!("{first}\n[... {} bytes are not shown ...]\n{last}", self.dropped)
    }
}

/// About 10,000 tokens in all, of which a model reads the end more often than the beginning.
const FIRST_BYTES: usize = 8 * 1024;
const LAST_BYTES: usize = 24 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(pieces: &[&[u8]]) -> String {
        let mut output = Output::default();
        pieces.iter().for_each(|piece| output.add(piece));
        output.text()
    }

    #[test]
    fn little_output_is_shown_as_it_is() {
        assert_eq!(shown(&[]), "");
        assert_eq!(shown(&[b"one\n", b"two\n"]), "one\ntwo\n");
        let whole = "x".repeat(FIRST_BYTES + LAST_BYTES);
        assert_eq!(shown(&[whole.as_bytes()]), whole);
    }

    #[test]
    fn of_much_output_the_beginning_and_the_end_are_shown() {
        let middle = "x".repeat(FIRST_BYTES + LAST_BYTES);
        let text = shown(&[b"begin", middle.as_bytes(), b"end"]);
        assert!(text.starts_with("begin") && text.ends_with("end"), "{text}");
        assert!(text.contains("\n[... 8 bytes are not shown ...]\n"), "{text}");
    }

    #[test]
    fn a_character_is_not_cut_in_two() {
        let text = shown(&["\u{20ac}".repeat(FIRST_BYTES + LAST_BYTES).as_bytes()]);
        assert!(!text.contains('\u{fffd}'), "{text}");
    }
}
