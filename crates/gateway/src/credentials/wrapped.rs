//! Base64 on several lines, as encoders write it in mail (RFC 2045), in PEM and in JSON, joined so that it can be searched. Pure.

use super::held::is_base64;

/// Letters of base64 that belong together.
pub(super) struct Joined {
    pub(super) letters: Vec<u8>,
    /// Where each of them stands in the text.
    pub(super) bindings: Vec<usize>,
}

impl Joined {
    /// All that is around these line breaks, as far as a form of `longest` letters may reach.
    pub(super) fn all(text: &[u8], breaks: &[(usize, usize)], longest: usize) -> Vec<Joined> {
        let mut all = Vec::new();
        let mut rest = breaks;
        while let Some((first, _)) = rest.first() {
            let follows =
                |pair: &[(usize, usize)]| text[pair[0].1..pair[1].0].iter().all(|byte| is_base64(*byte));
            let count = 1 + rest.windows(2).take_while(|pair| follows(pair)).count();
            let (group, others) = rest.split_at(count);
            rest = others;
            let before =
                text[..*first].iter().rev().take(longest).take_while(|byte| is_base64(**byte)).count();
            let last = group[group.len() - 1].1;
            let after = text[last..].iter().take(longest).take_while(|byte| is_base64(**byte)).count();
            let mut joined = Joined { letters: Vec::new(), bindings: Vec::new() };
            let mut from = first - before;
            for (start, end) in group.iter().copied().chain([(last + after, 0)]) {
                joined.letters.extend_from_slice(&text[from..start]);
                joined.bindings.extend(from..start);
                from = end;
            }
            all.push(joined);
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_joined_and_their_places_known() {
        let text = b".aaa\nbbb\r\nccc. ddd\neee";
        let all = Joined::all(text, &[(4, 5), (8, 10), (18, 19)], 10);
        let found: Vec<&[u8]> = all.iter().map(|joined| &joined.letters[..]).collect();
        assert_eq!(found, [&b"aaabbbccc"[..], b"dddeee"]);
        for joined in &all {
            let again: Vec<u8> = joined.bindings.iter().map(|binding| text[*binding]).collect();
            assert_eq!(again, joined.letters);
        }
        assert_eq!(Joined::all(text, &[(4, 5)], 2)[0].letters, b"aabb");
    }
}
