//! Names that follow from keys, so that a host that starts cold finds what it had: `bj-web-3f2a9c04d1e7`.

use data_encoding::HEXLOWER;
use sha2::{Digest, Sha256};

/// The name of the sandbox with this key: a part that people can read, and one that tells keys apart. Safe in a path, in a URL and
/// as a host's name.
pub fn name_of(key: &str) -> String {
    let digest = HEXLOWER.encode(&Sha256::digest(key.as_bytes())[..DIGEST_BYTES]);
    match slug(key) {
        readable if readable.is_empty() => format!("{PREFIX}{digest}"),
        readable => format!("{PREFIX}{readable}-{digest}"),
    }
}

/// Whether this has the shape of a name. Nothing else is looked for on disk.
pub fn is_name(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    text.starts_with(PREFIX) && text.len() <= MAX_NAME_BYTES && text.bytes().all(plain)
}

/// Letters and digits of the key, words joined by single dashes. Of a long key the end is taken: that is where paths and URLs differ.
fn slug(key: &str) -> String {
    let mut slug = String::new();
    for character in key.chars() {
        if character.is_ascii_alphanumeric() {
            slug.push(character.to_ascii_lowercase());
        } else if !slug.is_empty() && !slug.ends_with('-') {
            slug.push('-');
        }
    }
    let slug = slug.trim_end_matches('-');
    slug[slug.len().saturating_sub(MAX_SLUG_CHARS)..].trim_start_matches('-').to_string()
}

const PREFIX: &str = "bj-";
const MAX_SLUG_CHARS: usize = 24;
const DIGEST_BYTES: usize = 6;
const MAX_NAME_BYTES: usize = PREFIX.len() + MAX_SLUG_CHARS + 1 + 2 * DIGEST_BYTES;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn names_can_be_read_and_stay_the_same() {
        assert_eq!(name_of("web"), "bj-web-4b5e57f6eb2f");
        let readable = |key: &str| name_of(key)[3..].rsplit_once('-').map(|(slug, _)| slug.to_string());
        assert_eq!(readable("https://example.com/Agents/One#7").as_deref(), Some("example-com-agents-one-7"));
        assert_eq!(readable("a--b__c").as_deref(), Some("a-b-c"));
        assert_eq!(readable("../../etc/passwd").as_deref(), Some("etc-passwd"));
        assert_eq!(readable("日本語"), None);
        assert_eq!(name_of("日本語").len(), 15);
    }

    #[test]
    fn what_is_no_name_is_not_looked_for() {
        for text in ["", "bj", "..", "bj-../x", "bj-A", "x-1", ".gone-bj-x", "bj-\n"] {
            assert!(!is_name(text), "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn names_are_safe_in_paths_and_urls(key in "\\PC{0,600}") {
            let name = name_of(&key);
            prop_assert!(is_name(&name), "{name}");
            prop_assert!(!name.ends_with('-') && !name.contains("--"), "{name}");
            prop_assert_eq!(name_of(&key), name);
        }

        #[test]
        fn keys_that_differ_have_names_that_differ(a in "[a-c/#-]{0,6}", b in "[a-c/#-]{0,6}") {
            prop_assert_eq!(a == b, name_of(&a) == name_of(&b));
        }
    }
}
