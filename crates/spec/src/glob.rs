//! Names with stars.

/// Whether `*` standing for any bytes, none too, can make the glob this name. Takes as long as both are long, multiplied:
/// either may come from an attacker who wants it to take for ever.
pub(crate) fn matches(glob: &str, name: &str) -> bool {
    let (mut glob, mut name) = (glob.as_bytes(), name.as_bytes());
    // Where the last `*` was, and what it had taken: enough to try again with one byte more.
    let mut retry: Option<(&[u8], &[u8])> = None;
    loop {
        match (glob, name) {
            ([b'*', rest @ ..], _) => {
                retry = Some((rest, name));
                glob = rest;
            }
            ([], []) => return true,
            ([literal, more @ ..], [found, rest @ ..]) if literal == found => {
                (glob, name) = (more, rest);
            }
            _ => match retry {
                Some((after, [_, rest @ ..])) => {
                    retry = Some((after, rest));
                    (glob, name) = (after, rest);
                }
                _ => return false,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_anything() {
        for (glob, name, expected) in [
            ("*", "", true),
            ("", "", true),
            ("", "a", false),
            ("a*c", "abc", true),
            ("a*c", "ac", true),
            ("a*c", "abd", false),
            ("a*b*c", "a-b-b-c", true),
            ("a*b*c", "a-c-b", false),
            ("*-mini", "gpt-mini-mini", true),
            ("**", "a", true),
            ("a", "a*", false),
        ] {
            assert_eq!(matches(glob, name), expected, "{glob} {name}");
        }
    }

    #[test]
    fn many_stars_take_no_longer() {
        // One that tries every way would not end before the sun does.
        assert!(!matches(&"a*".repeat(100), &format!("{}b", "a".repeat(99))));
        assert!(!matches(&format!("{}b", "a*".repeat(99)), &"a".repeat(200)));
    }

    proptest::proptest! {
        #[test]
        fn what_stars_were_put_into_still_matches(name in "[a-c]{0,12}", cuts in proptest::collection::vec((0usize..13, 0usize..13), 0..4)) {
            let mut glob = name.clone();
            for (from, to) in cuts {
                let (from, to) = (from.min(glob.len()), to.min(glob.len()));
                glob.replace_range(from.min(to)..from.max(to), "*");
            }
            proptest::prop_assert!(matches(&glob, &name), "{} {}", glob, name);
        }
    }
}
