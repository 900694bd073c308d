//! What a command that gets a terminal is told about ours.

/// `TERM` and `COLORTERM` of our environment, where they are plain names: programs look files up by them.
pub(super) fn terminal_variables() -> Vec<(&'static str, String)> {
    let ours = |name: &'static str| Some((name, std::env::var(name).ok().filter(|value| is_plain(value))?));
    ["TERM", "COLORTERM"].into_iter().filter_map(ours).collect()
}

fn is_plain(value: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_.+-".contains(&byte);
    !value.is_empty()
        && value.len() <= MAX_VALUE_BYTES
        && value.bytes().all(is_plain)
        && !value.starts_with('.')
}

/// Far more than any name in terminfo(5) has.
const MAX_VALUE_BYTES: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plain_name_is_no_path_and_no_sequence() {
        for (value, expected) in [
            ("xterm-256color", true),
            ("screen.xterm-new", true),
            ("rxvt-unicode+x", true),
            ("truecolor", true),
            ("", false),
            ("../x", false),
            (".x", false),
            ("a b", false),
            ("\x1b[2J", false),
        ] {
            assert_eq!(is_plain(value), expected, "{value:?}");
        }
        assert!(!is_plain(&"x".repeat(65)));
    }
}
