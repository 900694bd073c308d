//! Foreign text, fit to be shown.

use serde::{Deserialize, Deserializer, Serialize};
use std::fmt;

/// Text from a foreign source: what is not printable is escaped, and its length is limited. It cannot move a cursor, start
/// a line or fill a log.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct Printable(String);

/// As it was written; escaped again where its writer did not.
impl<'de> Deserialize<'de> for Printable {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Printable, D::Error> {
        Ok(Printable::escaped(&String::deserialize(deserializer)?))
    }
}

impl Printable {
    /// The most bytes that one has.
    pub const MAX: usize = 255;

    /// Escapes what came; what is too long ends in `...`.
    pub fn new(bytes: &[u8]) -> Printable {
        let mut text = String::new();
        for chunk in bytes.utf8_chunks() {
            for character in chunk.valid().chars() {
                match character {
                    // Everything else may be invisible, turn the direction of writing, or look like something it is not.
                    '\\' => text.push_str("\\\\"),
                    ' '..='~' => text.push(character),
                    _ => text.extend(character.escape_default()),
                }
                if text.len() > Printable::MAX {
                    return Printable::cut(text);
                }
            }
            for byte in chunk.invalid() {
                text.push_str(&format!("\\x{byte:02x}"));
            }
        }
        if text.len() > Printable::MAX { Printable::cut(text) } else { Printable(text) }
    }

    /// Text whose writer has escaped what is not printable; escaped again if that is not so.
    pub fn escaped(text: &str) -> Printable {
        if !text.bytes().all(|byte| (b' '..=b'~').contains(&byte)) {
            return Printable::new(text.as_bytes());
        }
        if text.len() > Printable::MAX { Printable::cut(text.into()) } else { Printable(text.into()) }
    }

    /// As text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    fn cut(mut text: String) -> Printable {
        // Only ASCII is in it: every byte is a boundary.
        text.truncate(Printable::MAX - 3);
        text.push_str("...");
        Printable(text)
    }
}

impl fmt::Display for Printable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<&str> for Printable {
    fn from(text: &str) -> Printable {
        Printable::new(text.as_bytes())
    }
}

/// Whether a terminal would obey it instead of showing it: controls, what turns text around (`trojan source`), and what
/// cannot be seen, in which text hides.
pub fn is_control(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
        || matches!(c, '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{3164}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_moves_a_cursor_stays() {
        for (bytes, expected) in [
            (&b"plain.example"[..], "plain.example"),
            (b"a\nb\x1b[2J", "a\\nb\\u{1b}[2J"),
            (b"\xff\x00", "\\xff\\u{0}"),
            ("\u{202e}moc".as_bytes(), "\\u{202e}moc"),
            (b"c:\\n", "c:\\\\n"),
        ] {
            assert_eq!(Printable::new(bytes).as_str(), expected);
        }
    }

    #[test]
    fn what_is_escaped_is_not_escaped_again() {
        assert_eq!(Printable::escaped(r"a\027[31m.example").as_str(), r"a\027[31m.example");
        assert_eq!(Printable::escaped("a\u{1b}").as_str(), r"a\u{1b}");
        assert_eq!(Printable::escaped(&"x".repeat(300)).as_str().len(), Printable::MAX);
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_become_short_printable_text(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..600)) {
            let text = Printable::new(&bytes);
            proptest::prop_assert!(text.as_str().len() <= Printable::MAX);
            proptest::prop_assert!(text.as_str().bytes().all(|byte| (b' '..=b'~').contains(&byte)));
        }
    }
}
