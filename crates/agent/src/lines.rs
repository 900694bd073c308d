//! Cuts what an agent writes into lines, whatever pieces it comes in, and says which of them are events.
//!
//! The bytes are the agent's, or those of any program that it started: nothing in them is believed, nothing in them fails,
//! and what is kept of them has a limit. Pure; [`crate::stream`] calls it.

use serde_json::Value;

/// A line, for what it is.
#[derive(Debug, Clone, PartialEq)]
pub enum Piece {
    /// It is a JSON object.
    Event(Value),
    /// It is anything else. Bytes that are no UTF-8 are replaced.
    Text(String),
    /// It was longer than [`MAX_LINE`]: so many bytes were passed over.
    Dropped(u64),
}

/// Where output is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ends {
    /// At the end of each line.
    Newline,
    /// At its end: all of it is one.
    Never,
}

/// Bytes in, lines out. Lines with nothing on them are left out.
#[derive(Debug)]
pub struct Lines {
    ends: Ends,
    limit: usize,
    /// What has come of a line that is not whole yet.
    part: Vec<u8>,
    /// The line is too long: so much of it has come.
    passed: u64,
    torn: bool,
}

impl Lines {
    pub fn new(ends: Ends) -> Lines {
        Lines { ends, limit: MAX_LINE, part: Vec::new(), passed: 0, torn: false }
    }

    /// Takes what has come, and gives each line that is whole now.
    pub fn feed(&mut self, bytes: &[u8], each: &mut dyn FnMut(Piece)) {
        let mut rest = bytes;
        while let Some(at) = self.end_in(rest) {
            self.take(&rest[..at]);
            self.close(each);
            rest = &rest[at + 1..];
        }
        self.take(rest);
    }

    /// Nothing comes any more: a last line without an end is one too.
    pub fn end(&mut self, each: &mut dyn FnMut(Piece)) {
        let begins_as_event = self.passed > 0 || begins_as_object(&self.part);
        let mut is_event = false;
        self.close(&mut |piece| {
            is_event = matches!(piece, Piece::Event(_));
            each(piece);
        });
        self.torn = begins_as_event && !is_event;
    }

    /// Whether the output broke off within an event.
    pub fn torn(&self) -> bool {
        self.torn
    }

    fn end_in(&self, bytes: &[u8]) -> Option<usize> {
        match self.ends {
            Ends::Newline => bytes.iter().position(|byte| *byte == b'\n'),
            Ends::Never => None,
        }
    }

    fn take(&mut self, bytes: &[u8]) {
        if self.passed > 0 {
            self.passed = self.passed.saturating_add(bytes.len() as u64);
        } else if self.part.len() + bytes.len() > self.limit {
            self.passed = (self.part.len() + bytes.len()) as u64;
            self.part = Vec::new();
        } else {
            self.part.extend_from_slice(bytes);
        }
    }

    fn close(&mut self, each: &mut dyn FnMut(Piece)) {
        if self.passed > 0 {
            each(Piece::Dropped(std::mem::take(&mut self.passed)));
            return;
        }
        // Given back, not kept: one long line would be held for the rest of the run.
        let line = std::mem::take(&mut self.part);
        if let Some(piece) = read(line.strip_suffix(b"\r").unwrap_or(&line)) {
            each(piece);
        }
    }
}

/// What a line is; nothing if it is blank.
fn read(line: &[u8]) -> Option<Piece> {
    if line.trim_ascii().is_empty() {
        return None;
    }
    // Replaced before it is read: one bad byte in a file that a tool printed does not cost the event.
    let text = String::from_utf8_lossy(line);
    if begins_as_object(line) && !is_intricate(&text) {
        // Nesting deeper than serde_json's limit is no event either.
        if let Ok(event @ Value::Object(_)) = serde_json::from_str(&text) {
            return Some(Piece::Event(event));
        }
    }
    Some(Piece::Text(text.into_owned()))
}

fn begins_as_object(line: &[u8]) -> bool {
    line.trim_ascii_start().first() == Some(&b'{')
}

/// Whether it has more values than any event has. A value of three bytes takes up to 200 times as much in memory, so the
/// length alone is no limit.
fn is_intricate(line: &str) -> bool {
    // A line has fewer values than bytes.
    if line.len() <= MAX_VALUES {
        return false;
    }
    let (mut values, mut in_string, mut escaped) = (0, false, false);
    for byte in line.bytes() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            b'[' | b'{' | b',' if !in_string => values += 1,
            _ => {}
        }
    }
    values > MAX_VALUES
}

/// The longest line that is read. Agents print whole files, and pi its whole session, on one line; a line is held in
/// memory until it ends.
pub const MAX_LINE: usize = 16 << 20;

/// The most values in an event: one that has as many takes some 80 MiB while it is looked at.
const MAX_VALUES: usize = 1 << 17;

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn cut(lines: &mut Lines, bytes: &[u8], by: usize) -> Vec<Piece> {
        let mut pieces = Vec::new();
        bytes.chunks(by).for_each(|chunk| lines.feed(chunk, &mut |piece| pieces.push(piece)));
        lines.end(&mut |piece| pieces.push(piece));
        pieces
    }

    fn text(text: &str) -> Piece {
        Piece::Text(text.into())
    }

    #[test]
    fn lines_are_what_they_are_however_they_come() {
        let nested = format!("{}{}", r#"{"a":"#.repeat(200), "}".repeat(200));
        let cases: [(&[u8], Vec<Piece>); 11] = [
            (b"", vec![]),
            (b"\n\r\n  \n", vec![]),
            (b"one\ntwo", vec![text("one"), text("two")]),
            (b"one\r\ntwo\r\n", vec![text("one"), text("two")]),
            (b"{\"a\":1}\n [1]\n", vec![Piece::Event(json!({"a": 1})), text(" [1]")]),
            (b"  {}\r\n{\n", vec![Piece::Event(json!({})), text("{")]),
            (b"{\"a\":\"\xff\"}", vec![Piece::Event(json!({"a": "\u{fffd}"}))]),
            (b"\xff\xfe\n\0\x1b[31m\x07\n", vec![text("\u{fffd}\u{fffd}"), text("\0\x1b[31m\x07")]),
            (b"{\"a\":NaN}\n{\"a\":1e999}", vec![text("{\"a\":NaN}"), text("{\"a\":1e999}")]),
            (b"a\rb\n", vec![text("a\rb")]),
            (nested.as_bytes(), vec![text(&nested)]),
        ];
        for (bytes, expected) in cases {
            for by in [1, 2, 7, 1000] {
                assert_eq!(cut(&mut Lines::new(Ends::Newline), bytes, by), expected, "{bytes:?} by {by}");
            }
        }
    }

    #[test]
    fn a_line_that_is_too_long_is_passed_over_to_its_end() {
        for by in [1, 3, 100] {
            let mut lines = Lines { limit: 4, ..Lines::new(Ends::Newline) };
            let expected = [text("abcd"), Piece::Dropped(5), text("x"), Piece::Dropped(9)];
            assert_eq!(cut(&mut lines, b"abcd\nabcde\nx\n123456789", by), expected);
            assert!(lines.torn() && lines.part.capacity() <= 8);
        }
    }

    #[test]
    fn an_event_that_breaks_off_is_noticed() {
        let cases: [(&[u8], bool); 5] = [
            (b"{\"a\":", true),
            (b"{}\n{", true),
            (b"{}\n{}", false),
            (b"{}\nand so", false),
            (b"{\n", false),
        ];
        for (bytes, torn) in cases {
            let mut lines = Lines::new(Ends::Newline);
            cut(&mut lines, bytes, 2);
            assert_eq!(lines.torn(), torn, "{bytes:?}");
        }
    }

    #[test]
    fn output_as_a_whole_may_have_many_lines() {
        let bytes = b"{\n  \"a\": {}\n}\n";
        assert_eq!(cut(&mut Lines::new(Ends::Never), bytes, 3), [Piece::Event(json!({"a": {}}))]);
        let mut short = Lines { limit: 5, ..Lines::new(Ends::Never) };
        assert_eq!(cut(&mut short, bytes, 3), [Piece::Dropped(14)]);
    }

    #[test]
    fn an_event_of_very_many_values_is_text() {
        let many = format!("{{\"a\":[{}0]}}", "{},".repeat(MAX_VALUES));
        assert!(matches!(read(many.as_bytes()), Some(Piece::Text(_))));
        // As long, but in one string.
        let long = json!({"a": "{},".repeat(MAX_VALUES), "b": "\\\""});
        assert_eq!(read(long.to_string().as_bytes()), Some(Piece::Event(long)));
    }
}
