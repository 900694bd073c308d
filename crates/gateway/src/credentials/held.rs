//! What of a stream has to wait for what follows it, told by kinds of letters and lengths alone.
//!
//! What waits can be seen inside: by the sizes of pieces, and by what does not come. If it depended on whether the end of a text is
//! the beginning of a value, a program inside could have a server repeat its guesses, and learn the value letter by letter. So
//! everything waits that *could* stand in a form of a value, whatever it is. White space never does, so that lines and events
//! pass as they come; a line break within base64 does, and one is taken for that only behind a long line of base64. Pure.

use std::ops::Range;

/// Which letters may stand in a value, however it is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Class {
    /// Letters that no program escapes (RFC 3986, 2.3), and those of base64: what nearly all keys are made of.
    #[default]
    Plain,
    /// Every visible one.
    Visible,
}

impl Class {
    /// The same, or a wider one, if this text needs that.
    pub(crate) fn with(self, form: &[u8]) -> Class {
        if form.iter().all(|byte| self.has(*byte)) { self } else { Class::Visible }
    }

    pub(crate) fn has(self, byte: u8) -> bool {
        match self {
            Class::Plain => is_base64(byte) || matches!(byte, b'.' | b'~'),
            Class::Visible => byte.is_ascii_graphic(),
        }
    }
}

/// The longest pieces of a text that are of one class.
pub(crate) fn runs(text: &[u8], class: Class) -> impl Iterator<Item = Range<usize>> {
    let mut from = 0;
    std::iter::from_fn(move || {
        let start = from + text[from..].iter().position(|byte| class.has(*byte))?;
        let length = text[start..].iter().position(|byte| !class.has(*byte));
        from = length.map_or(text.len(), |length| start + length);
        Some(start..from)
    })
}

/// In either of its alphabets, without padding.
pub(crate) fn is_base64(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'-' | b'_')
}

/// How far a form may reach, if the longest has so many letters, and the longest in base64 so many, with line breaks between them.
pub(crate) fn reach(longest: usize, in_base64: usize) -> usize {
    let breaks = in_base64 / SHORTEST_LINE + 1;
    match longest.max(in_base64 + breaks * MAX_BREAK_BYTES) {
        _ if longest == 0 => 0,
        length => length.next_power_of_two(),
    }
}

/// Follows a stream byte by byte, and knows where the text begins that has to wait.
#[derive(Debug, Default)]
pub(crate) struct Scan {
    /// How many bytes there were, since the last [`Scan::forget`].
    at: usize,
    /// Where the letters of a class begin that the text ends with.
    run: usize,
    /// Letters of base64 on this line.
    letters: usize,
    /// Where lines of base64 begin, of which this is not the first.
    lines: Option<usize>,
    /// Where this line begins, and where it ended.
    line: usize,
    ended: usize,
    step: Step,
    /// Line breaks within base64, from their first byte to behind their last.
    breaks: Vec<(usize, usize)>,
}

/// How far a line break behind a long line of base64 has come.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Step {
    #[default]
    Outside,
    /// `\r`.
    Return,
    /// A backslash, as in JSON.
    Escape,
    /// The letters `\r`.
    EscapedReturn,
    /// The letters `\r\`.
    EscapeAgain,
    /// All of it, and so many blanks.
    Broken(usize),
}

impl Scan {
    pub(crate) fn feed(&mut self, text: &[u8], class: Class) {
        for byte in text {
            self.next(*byte, class);
            self.at += 1;
        }
    }

    /// Where the text begins that has to wait.
    pub(crate) fn waits_from(&self) -> usize {
        let lines = match (self.lines, self.step) {
            (Some(lines), _) => lines,
            (None, Step::Outside) => self.at,
            (None, _) => self.line,
        };
        self.run.min(lines).min(self.at)
    }

    /// Line breaks within base64.
    pub(crate) fn breaks(&self) -> &[(usize, usize)] {
        &self.breaks
    }

    /// So many bytes are gone, and no longer counted.
    pub(crate) fn forget(&mut self, bytes: usize) {
        for binding in [&mut self.at, &mut self.run, &mut self.line, &mut self.ended] {
            *binding = binding.saturating_sub(bytes);
        }
        self.lines = self.lines.map(|lines| lines.saturating_sub(bytes));
        self.breaks.retain(|(start, _)| *start >= bytes);
        for (start, end) in &mut self.breaks {
            (*start, *end) = (*start - bytes, *end - bytes);
        }
    }

    fn next(&mut self, byte: u8, class: Class) {
        if !class.has(byte) {
            self.run = self.at + 1;
        }
        if self.step == Step::Outside {
            self.ended = self.at;
        }
        self.step = match (self.step, byte) {
            (Step::Outside, _) if is_base64(byte) => {
                if self.letters == 0 {
                    self.line = self.at;
                }
                self.letters += 1;
                return;
            }
            (Step::Outside, b'\r') if self.is_long() => Step::Return,
            (Step::Outside, b'\\') if self.is_long() => Step::Escape,
            (Step::Outside, b'\n') if self.is_long() => Step::Broken(0),
            (Step::Outside, _) => return self.end(),
            (Step::Return, b'\n') | (Step::Escape | Step::EscapeAgain, b'n') => Step::Broken(0),
            (Step::Escape, b'r') => Step::EscapedReturn,
            (Step::EscapedReturn, b'\\') => Step::EscapeAgain,
            (Step::Broken(blanks), b' ' | b'\t') if blanks < MAX_BLANKS => Step::Broken(blanks + 1),
            (Step::Broken(_), _) if is_base64(byte) => {
                self.breaks.push((self.ended, self.at));
                self.lines.get_or_insert(self.line);
                (self.line, self.letters) = (self.at, 1);
                Step::Outside
            }
            (Step::Return | Step::Escape | Step::EscapedReturn | Step::EscapeAgain | Step::Broken(_), _) => {
                self.end();
                return self.next(byte, class);
            }
        };
    }

    fn is_long(&self) -> bool {
        self.letters >= SHORTEST_LINE
    }

    fn end(&mut self) {
        (self.letters, self.lines, self.step) = (0, None, Step::Outside);
    }
}

/// The shortest line of base64 that another one follows: encoders write 60, 64 or 76 letters a line. Ordinary lines that end
/// with so many letters are rare: only they wait for the next.
const SHORTEST_LINE: usize = 40;
/// Indentation, as in YAML.
const MAX_BLANKS: usize = 16;
/// `\r\n`, in four letters, and blanks.
const MAX_BREAK_BYTES: usize = 4 + MAX_BLANKS;

#[cfg(test)]
mod tests {
    use super::*;

    fn waiting(text: &str) -> usize {
        let mut scan = Scan::default();
        scan.feed(text.as_bytes(), Class::Plain);
        text.len() - scan.waits_from()
    }

    #[test]
    fn what_waits_is_told_by_kinds_of_letters() {
        let line = "x".repeat(60);
        for (text, expected) in [
            ("", 0),
            ("data: 1\n\n", 0),
            ("a word", 4),
            ("{\"key\":\"abc", 3),
            ("{\"key\":\"abc\"}", 0),
            ("short\n", 0),
            ("short\nnext", 4),
            (&format!("{line}\n"), 61),
            (&format!("{line}\n\n"), 0),
            (&format!("{line}\n."), 1),
            (&format!("{line}\r"), 61),
            (&format!("{line}\r\n"), 62),
            (&format!("{line}\r\nabc"), 65),
            (&format!("{line}\\"), 61),
            (&format!("{line}\\n"), 62),
            (&format!("{line}\\r\\n    abc"), 71),
            (&format!("{line}\\t"), 1),
            (&format!("{line}\n{line}\nabc"), 125),
            (&format!("{line}\nshort\nabc"), 3),
        ] {
            assert_eq!(waiting(text), expected, "{text:?}");
        }
    }

    #[test]
    fn a_value_of_other_letters_makes_all_of_them_wait() {
        assert_eq!(Class::Plain.with(b"sk-AZaz09_.~"), Class::Plain);
        assert_eq!(Class::Plain.with(b"pass:word"), Class::Visible);
        assert_eq!(Class::Visible.with(b"abc"), Class::Visible);
    }

    #[test]
    fn a_length_is_rounded_up() {
        assert_eq!((reach(0, 0), reach(40, 54), reach(41, 55)), (0, 128, 128));
    }
}
