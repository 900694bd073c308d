//! Escapes names and contents that an agent chose, so that a terminal or a script is not misled by them.

pub use belljar_spec::egress::is_control;
use std::fmt::Write;

/// A file's name as git writes it: unchanged, or in quotes with C escapes if it has a control character, a quote, a backslash, or
/// bytes that are not UTF-8.
pub fn name(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) if !text.chars().any(is_quoted) => text.to_string(),
        Ok(_) | Err(_) => format!("\"{}\"", escaped(bytes)),
    }
}

/// A name with a prefix, as in a patch: `a/` or `b/`.
pub(super) fn prefixed(prefix: &str, bytes: &[u8]) -> Vec<u8> {
    name(&[prefix.as_bytes(), bytes].concat()).into_bytes()
}

/// A line of a file made safe for a terminal: control characters are escaped. Tabs stay.
pub fn visible(line: &[u8]) -> String {
    let mut seen = String::with_capacity(line.len());
    for chunk in line.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '\t' => seen.push(c),
                '\0'..='\x1f' => {
                    seen.push('^');
                    seen.push(char::from(c as u8 + b'@'));
                }
                '\x7f' => seen.push_str("^?"),
                c if is_control(c) => code(&mut seen, c),
                c => seen.push(c),
            }
        }
        for byte in chunk.invalid() {
            let _ = write!(seen, "<{byte:02X}>");
        }
    }
    seen
}

/// Writing to a string cannot fail.
fn code(seen: &mut String, c: char) {
    let _ = write!(seen, "<U+{:04X}>", u32::from(c));
}

fn is_quoted(c: char) -> bool {
    is_control(c) || c == '"' || c == '\\'
}

fn escaped(bytes: &[u8]) -> String {
    let mut text = String::new();
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '\x07' => text.push_str("\\a"),
                '\x08' => text.push_str("\\b"),
                '\t' => text.push_str("\\t"),
                '\n' => text.push_str("\\n"),
                '\x0b' => text.push_str("\\v"),
                '\x0c' => text.push_str("\\f"),
                '\r' => text.push_str("\\r"),
                '"' => text.push_str("\\\""),
                '\\' => text.push_str("\\\\"),
                c if is_control(c) => octal(&mut text, c.encode_utf8(&mut [0; 4]).as_bytes()),
                c => text.push(c),
            }
        }
        octal(&mut text, chunk.invalid());
    }
    text
}

fn octal(text: &mut String, bytes: &[u8]) {
    for byte in bytes {
        let _ = write!(text, "\\{byte:03o}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_quoted_as_git_does() {
        let cases: [(&[u8], &str); 7] = [
            (b"plain name", "plain name"),
            ("na\u{ef}ve".as_bytes(), "na\u{ef}ve"),
            (b"a\nb", "\"a\\nb\""),
            (b"q\"\\", "\"q\\\"\\\\\""),
            (b"\x1b[2J", "\"\\033[2J\""),
            (b"\xff", "\"\\377\""),
            ("x\u{202e}y".as_bytes(), "\"x\\342\\200\\256y\""),
        ];
        for (bytes, text) in cases {
            assert_eq!(name(bytes), text);
        }
    }

    #[test]
    fn contents_cannot_speak_to_the_terminal() {
        let seen = visible(b"a\t\x1b]0;x\x07\r\x7f\x9b1m\xc2\x9b \xe2\x80\xae.");
        assert_eq!(seen, "a\t^[]0;x^G^M^?<9B>1m<U+009B> <U+202E>.");
        for hidden in
            ['\u{ad}', '\u{61c}', '\u{180e}', '\u{3164}', '\u{fff9}', '\u{fffb}', '\u{e0000}', '\u{e007f}']
        {
            let seen = visible(hidden.to_string().as_bytes());
            assert_eq!(seen, format!("<U+{:04X}>", u32::from(hidden)));
        }
    }
}
