//! What a sandbox holds in place of a secret: text of the same shape, so that programs that look at a key before they use
//! it accept it, and worthless by itself.

use super::forms::filled;
use belljar_sys::rustix::rand::{GetRandomFlags, getrandom};
use belljar_vault::{Secret, SecretError};

/// A placeholder for a value: the same length, the same known beginning, a letter for a letter and a digit for a digit.
/// A value with too little to vary gets a longer one.
pub(crate) fn like(value: &Secret) -> Result<String, SecretError> {
    let mut numbers = [0u8; 4 * 1024];
    getrandom(&mut numbers, GetRandomFlags::empty()).map_err(|errno| SecretError {
        message: format!("no placeholder can be made: the system has no randomness: {errno}"),
        hint: "see to it that /dev/urandom can be read".into(),
    })?;
    let mut at = 0;
    let mut draw = || {
        let number =
            numbers.get(at..at + 4).and_then(|four| four.try_into().ok()).map_or(0, u32::from_ne_bytes);
        at += 4;
        if at == numbers.len() {
            // A very long value. It is only a placeholder by now; the first 32,000 bits were enough for that.
            at = 0;
        }
        number
    };
    Ok(shaped(value.reveal(), &mut draw))
}

/// The same, with numbers from elsewhere.
fn shaped(value: &[u8], draw: &mut dyn FnMut() -> u32) -> String {
    let kept = prefix(value);
    for _ in 0..TRIES {
        let made = vary(value, kept, draw);
        if !shares_a_piece(&value[kept..], &made.as_bytes()[kept..]) {
            return made;
        }
    }
    // A value that hardly varies at all (`--------`) cannot keep its shape.
    let plain = filled(b"a", value.len().max(kept + FEWEST));
    vary(&[&value[..kept], &plain[kept..]].concat(), kept, draw)
}

fn vary(value: &[u8], kept: usize, draw: &mut dyn FnMut() -> u32) -> String {
    let rest = &value[kept..];
    let is = |letters: &[u8]| {
        rest.iter()
            .all(|byte| !byte.is_ascii_alphanumeric() || byte.is_ascii_digit() || letters.contains(byte))
    };
    let (lower, upper): (&[u8], &[u8]) =
        (if is(b"abcdef") { b"abcdef" } else { LOWER }, if is(b"ABCDEF") { b"ABCDEF" } else { UPPER });
    let mut made: Vec<u8> = value[..kept].to_vec();
    let mut bits = 0.0;
    let mut pick = |letters: &[u8], made: &mut Vec<u8>| {
        made.push(letters[draw() as usize % letters.len()]);
        bits += (letters.len() as f64).log2();
    };
    for byte in rest {
        match byte {
            b'0'..=b'9' => pick(b"0123456789", &mut made),
            b'a'..=b'z' => pick(lower, &mut made),
            b'A'..=b'Z' => pick(upper, &mut made),
            _ => made.push(*byte),
        }
    }
    while bits < BITS {
        made.push(LOWER[draw() as usize % LOWER.len()]);
        bits += (LOWER.len() as f64).log2();
    }
    made.into_iter().map(char::from).collect()
}

/// How much of the beginning says what kind of key it is, and is no part of the secret.
fn prefix(value: &[u8]) -> usize {
    let known = KNOWN.iter().find(|known| value.starts_with(known.as_bytes())).map(|known| known.len());
    let word = || {
        let letters = value.iter().take_while(|byte| byte.is_ascii_alphabetic()).count();
        let ends = value.get(letters).is_some_and(|byte| matches!(byte, b'-' | b'_'));
        // A group of letters in a UUID looks like a word; three letters do not give one away.
        if ends && (2..=4).contains(&letters) && value.len() >= letters + FEWEST { letters + 1 } else { 0 }
    };
    known.unwrap_or_else(word).min(value.len())
}

fn shares_a_piece(value: &[u8], made: &[u8]) -> bool {
    value.windows(PIECE).any(|piece| made.windows(PIECE).any(|other| piece == other))
}

/// The longest first, where one begins another.
const KNOWN: [&str; 24] = [
    "sk-ant-api03-",
    "sk-ant-admin01-",
    "sk-ant-oat01-",
    "sk-ant-",
    "sk-or-v1-",
    "sk-svcacct-",
    "sk-admin-",
    "sk-proj-",
    "sk-",
    "github_pat_",
    "ghp_",
    "gho_",
    "ghu_",
    "ghs_",
    "ghr_",
    "tvly-prod-",
    "tvly-dev-",
    "tvly-",
    "glpat-",
    "xoxb-",
    "xoxp-",
    "npm_",
    "pypi-",
    "hf_",
];
/// As hard to guess as a key must be.
const BITS: f64 = 64.0;
/// The longest piece of a value that may be in its placeholder by chance is shorter.
const PIECE: usize = 8;
/// What has to follow a word, for it to be only the beginning of a key.
const FEWEST: usize = 16;
const TRIES: usize = 16;
const LOWER: &[u8] = b"abcdefghijklmnopqrstuvwxyz";
const UPPER: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ";

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn made(value: &str) -> String {
        like(&Secret::new(value.as_bytes().to_vec())).expect("randomness")
    }

    #[test]
    fn the_known_beginning_stays_and_the_rest_goes() {
        for (value, kept) in [
            ("sk-ant-api03-AbCdEf0123456789_-AbCdEf0123456789AA", "sk-ant-api03-"),
            ("sk-proj-AbCdEf0123456789AbCdEf0123456789", "sk-proj-"),
            ("sk-or-v1-0123456789abcdef0123456789abcdef", "sk-or-v1-"),
            ("ghp_0123456789abcdefghijABCDEFGHIJ012345", "ghp_"),
            ("github_pat_11ABCDEFG0abcdefghijkl_0123456789abcdefghij", "github_pat_"),
            ("tvly-dev-0123456789abcdefghijABCD", "tvly-dev-"),
            ("abc_0123456789abcdefghij", "abc_"),
            ("3f2a1b9c-0123-4567-89ab-0123456789ab", ""),
            ("abcdefab-0123-4567-89ab-0123456789ab", ""),
        ] {
            let made = made(value);
            assert_eq!(made.len(), value.len());
            assert!(made.starts_with(kept), "{made}");
            assert_ne!(made.as_bytes()[kept.len()..][..6], value.as_bytes()[kept.len()..][..6], "{made}");
            for (was, is) in value.bytes().zip(made.bytes()) {
                let kind =
                    |byte: u8| (byte.is_ascii_digit(), byte.is_ascii_lowercase(), byte.is_ascii_uppercase());
                assert_eq!(kind(was), kind(is), "{value} {made}");
            }
        }
    }

    #[test]
    fn hexadecimal_stays_hexadecimal() {
        for value in ["0123456789abcdef0123456789abcdef", "0123456789ABCDEF0123456789ABCDEF"] {
            let made = made(value);
            assert!(made.bytes().all(|byte| value.as_bytes().contains(&byte)), "{made}");
        }
    }

    #[test]
    fn a_short_value_gets_a_long_placeholder() {
        assert!(made("12345678").len() >= 16);
        assert!(made("--------------------").len() >= 20);
    }

    #[test]
    fn no_two_are_alike() {
        let value = "ghp_0123456789abcdefghijABCDEFGHIJ012345";
        assert_ne!(made(value), made(value));
    }

    proptest! {
        #[test]
        fn no_piece_of_the_value_is_in_it(value in "(sk-|ghp_|)[!-~]{8,80}") {
            let made = made(&value);
            let kept = prefix(value.as_bytes());
            prop_assert!(made.is_ascii() && made.len() >= value.len());
            prop_assert!(!shares_a_piece(&value.as_bytes()[kept..], &made.as_bytes()[kept..]), "{} {}", value, made);
        }
    }
}
