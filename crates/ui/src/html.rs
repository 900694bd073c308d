//! Text in pages. What comes from sandboxes, folders and names is text, whatever it looks like.

use std::fmt::{self, Display, Write};

/// Escaped wherever it stands: between tags, and in attributes with double quotes.
pub(crate) struct Text<T>(pub(crate) T);

impl<T: Display> Display for Text<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        struct Escaping<'a, 'f>(&'a mut fmt::Formatter<'f>);
        impl Write for Escaping<'_, '_> {
            fn write_str(&mut self, text: &str) -> fmt::Result {
                text.chars().try_for_each(|letter| match letter {
                    '&' => self.0.write_str("&amp;"),
                    '<' => self.0.write_str("&lt;"),
                    '>' => self.0.write_str("&gt;"),
                    '"' => self.0.write_str("&quot;"),
                    '\'' => self.0.write_str("&#39;"),
                    // Letters that turn text around could make a name look like another.
                    letter if letter.is_control() || is_turning(letter) => self.0.write_char('\u{fffd}'),
                    letter => self.0.write_char(letter),
                })
            }
        }
        write!(Escaping(f), "{}", self.0)
    }
}

fn is_turning(letter: char) -> bool {
    matches!(letter, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{200e}' | '\u{200f}' | '\u{061c}')
}

/// A form that is one button.
pub(crate) fn button(action: &str, back: &str, fields: &[(&str, &str)], label: &str, class: &str) -> String {
    let mut form = format!(
        r#"<form method="post" action="{}"><input type="hidden" name="back" value="{}">"#,
        Text(action),
        Text(back)
    );
    for (name, value) in fields {
        // A string can always be written to.
        let _ = write!(form, r#"<input type="hidden" name="{}" value="{}">"#, Text(name), Text(value));
    }
    let _ = write!(form, r#"<button class="{}">{}</button></form>"#, Text(class), Text(label));
    form
}

/// In the largest unit that says something.
pub(crate) fn age(since_ms: i64, now_ms: i64) -> String {
    match (now_ms - since_ms).max(0) / 1000 {
        seconds @ 0..60 => format!("{seconds} s"),
        seconds @ 60..3600 => format!("{} min", seconds / 60),
        seconds @ 3600..172_800 => format!("{} h", seconds / 3600),
        seconds => format!("{} days", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_stays_text() {
        let hostile = "<script>alert('x')</script>\" onclick=\"x & \u{202e}gpj.exe\u{1b}[0m";
        let shown = Text(hostile).to_string();
        for letter in ['<', '>', '"', '\'', '\u{202e}', '\u{1b}'] {
            assert!(!shown.contains(letter), "{shown}");
        }
        let form = button("/x\"y", "/", &[("rule", "\"><b>")], "<b>", "quiet");
        assert!(!form.contains("<b>") && !form.contains("x\"y"), "{form}");
    }
}
