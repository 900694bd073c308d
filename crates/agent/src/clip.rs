//! Texts that are too long, cut where a person sees it.

use std::borrow::Cow;

/// The text; or so many bytes of it, to the end of a character, and how much is missing.
pub(crate) fn clip(text: &str, limit: usize) -> Cow<'_, str> {
    if text.len() <= limit {
        return Cow::Borrowed(text);
    }
    let (kept, rest) = text.split_at(text.floor_char_boundary(limit));
    Cow::Owned(format!("{kept}{}", missing(rest.chars().count() as u64)))
}

/// What stands where characters are missing.
pub(crate) fn missing(characters: u64) -> String {
    format!("…[truncated {characters} chars]")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_cut_between_characters_and_says_how_much_is_missing() {
        let cases = [
            ("hello", 5, "hello"),
            ("hello", 4, "hell…[truncated 1 chars]"),
            ("aéb", 2, "a…[truncated 2 chars]"),
            ("aéb", 3, "aé…[truncated 1 chars]"),
            ("𝄞", 3, "…[truncated 1 chars]"),
            ("", 0, ""),
        ];
        for (text, limit, expected) in cases {
            assert_eq!(clip(text, limit), expected, "{text} to {limit}");
        }
    }
}
