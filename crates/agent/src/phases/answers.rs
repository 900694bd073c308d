//! `{{NAME}}` in a prompt: what the phase of that name answered.
//!
//! An answer is text and stays text: what looks like a name in it is not looked up again. Braces around anything else are the
//! prompt's own, since prompts may be about templates.

/// The names that stand in a prompt.
pub(super) fn named(prompt: &str) -> impl Iterator<Item = &str> {
    pieces(prompt).filter_map(|piece| match piece {
        Piece::Name(name, _) => Some(name),
        Piece::Text(_) => None,
    })
}

/// The prompt, with answers in the place of names that have one.
pub(super) fn fill<'a>(prompt: &str, answer: impl Fn(&str) -> Option<&'a str>) -> String {
    let piece = |piece| match piece {
        Piece::Text(text) => text,
        Piece::Name(name, written) => answer(name).unwrap_or(written),
    };
    pieces(prompt).map(piece).collect()
}

enum Piece<'p> {
    Text(&'p str),
    /// A name, and how it is written.
    Name(&'p str, &'p str),
}

fn pieces(prompt: &str) -> impl Iterator<Item = Piece<'_>> {
    let mut rest = prompt;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let Some(start) = rest.find("{{") else {
            return Some(Piece::Text(std::mem::take(&mut rest)));
        };
        if start > 0 {
            let (text, more) = rest.split_at(start);
            rest = more;
            return Some(Piece::Text(text));
        }
        let name = rest[2..].split_once("}}").map(|(name, _)| name).filter(|name| super::file::is_name(name));
        let length = name.map_or(1, |name| name.len() + 4);
        let (written, more) = rest.split_at(length);
        rest = more;
        Some(name.map_or(Piece::Text(written), |name| Piece::Name(name, written)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_stand_where_their_phases_are_named() {
        let answer = |name: &str| match name {
            "plan" => Some("1. {{review}}"),
            "review" => Some("fine"),
            _ => None,
        };
        for (prompt, expected) in [
            ("do {{plan}}, {{review}}", "do 1. {{review}}, fine"),
            ("{{plan}}{{plan}}", "1. {{review}}1. {{review}}"),
            ("{{ plan }} {{other}} {{{review}}}", "{{ plan }} {{other}} {fine}"),
            ("{{plan", "{{plan"),
            ("{{", "{{"),
            ("é{{review}}é", "éfineé"),
            ("{{a{{review}}", "{{afine"),
            ("", ""),
        ] {
            assert_eq!(fill(prompt, answer), expected, "{prompt}");
        }
        assert_eq!(named("{{a}} {{b c}} {{d}}").collect::<Vec<_>>(), ["a", "d"]);
    }
}
