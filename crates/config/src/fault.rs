//! Errors in a file: the line, the problem, and the correction.

use crate::origin::Position;
use belljar_spec::{ErrorCode, SandboxError};
use std::path::Path;

/// An error at a line. The message contains the fix, unless one follows with `hint`.
pub(crate) fn at(place: &Position, what: impl std::fmt::Display) -> SandboxError {
    ErrorCode::ConfigInvalid.error(format!("{place}: {what}"))
}

/// Foreign text, made safe to print: it cannot move a cursor, start a line or turn the direction of writing. Letters of all
/// languages stay, unlike in `Printable`: paths and reasons are for people.
pub(crate) fn plain(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}' => {
                shown.extend(character.escape_default());
            }
            _ if character.is_control() => shown.extend(character.escape_default()),
            _ => shown.push(character),
        }
    }
    shown
}

/// A path, safe to show.
pub(crate) fn shown(path: &Path) -> String {
    plain(&path.to_string_lossy())
}

/// A path as an argument that can be pasted into a shell.
pub(crate) fn argument(path: &Path) -> String {
    let text = shown(path);
    let harmless =
        |c: char| c.is_alphanumeric() || matches!(c, '/' | '.' | '_' | '-' | '+' | ',' | '@' | '~');
    match text.chars().all(harmless) && !text.starts_with(['-', '~']) {
        true => text,
        false => format!("'{}'", text.replace('\'', r"'\''")),
    }
}

/// The most similar of some words, if one is similar enough.
pub fn nearest<'a>(word: &str, known: &[&'a str]) -> Option<&'a str> {
    // A short word is similar to everything.
    let near = |candidate: &&str| 1 + candidate.len() / 4;
    let distance = |candidate: &&str| strsim::damerau_levenshtein(word, candidate);
    known.iter().copied().filter(|word| distance(word) <= near(word)).min_by_key(distance)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_moves_no_cursor() {
        assert_eq!(plain("über\x1b[2J\n\u{202e}x"), "über\\u{1b}[2J\\n\\u{202e}x");
    }

    #[test]
    fn an_argument_survives_the_shell() {
        for (path, expected) in [
            ("/srv/project-1", "/srv/project-1"),
            ("/srv/my project", "'/srv/my project'"),
            ("/srv/$(id)", "'/srv/$(id)'"),
            ("/srv/it's", r"'/srv/it'\''s'"),
        ] {
            assert_eq!(argument(Path::new(path)), expected);
        }
    }

    #[test]
    fn a_slip_finds_its_word() {
        let known = ["mode", "groups", "allow", "does_not_match"];
        for (word, expected) in [
            ("group", Some("groups")),
            ("grouops", Some("groups")),
            ("alow", Some("allow")),
            ("does-not-match", Some("does_not_match")),
            ("Mode", Some("mode")),
            ("zebra", None),
        ] {
            assert_eq!(nearest(word, &known), expected, "{word}");
        }
    }
}
