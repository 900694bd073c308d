//! What a sandbox holds in place of a secret: text of the same shape, so that programs that look at a key before they use
//! it accept it, and worthless by itself.

use super::forms::filled;
use belljar_sys::rustix::rand::{GetRandomFlags, getrandom};
use belljar_vault::{Secret, SecretError};

/// A placeholder for a value: the same length, the same known beginning, a letter for a letter and a digit for a digit.
/// A value with too little to vary gets a longer one.
pub(crate) fn like(value: &Secret) -> Result<String, SecretError> {
    with_numbers(|draw| shaped(value.reveal(), draw))
}

/// Where numbers come from.
pub(super) type Draw<'d> = &'d mut dyn FnMut() -> u32;

/// Calls this with random numbers.
pub(super) fn with_numbers<T>(make: impl FnOnce(Draw<'_>) -> T) -> Result<T, SecretError> {
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
    Ok(make(&mut draw))
}

/// For a value that nothing is put in for, as it is written in quotes of this kind: as long as it is, and never itself.
pub(super) fn of_no_use(value: &[u8], quote: Option<u8>, draw: Draw<'_>) -> Vec<u8> {
    let prefix_length = beginning(value);
    for _ in 0..TRIES {
        let made = written_like(value, prefix_length, quote, draw);
        if made != value && !shares_a_piece(&value[prefix_length..], &made[prefix_length..]) {
            return made;
        }
    }
    let plain = filled(b"a", value.len() - prefix_length);
    written_like(&[&value[..prefix_length], &plain[..]].concat(), prefix_length, None, draw)
}

/// How much of the beginning says what kind of value it is.
fn beginning(value: &[u8]) -> usize {
    let scheme = |name: &&&str| value.starts_with(name.as_bytes()) && value[name.len()..].starts_with(b"://");
    let known = KNOWN.iter().find(|known| value.starts_with(known.as_bytes())).map(|known| known.len());
    let scheme = || SCHEMES.iter().find(scheme).map(|name| name.len() + 3);
    known.or_else(scheme).filter(|prefix_length| *prefix_length < value.len()).unwrap_or(0)
}

/// Signs stay, unless they mean something to a program that reads them here.
fn written_like(value: &[u8], prefix_length: usize, quote: Option<u8>, draw: Draw<'_>) -> Vec<u8> {
    let (lower, upper) = alphabets(&value[prefix_length..]);
    let mut made = value[..prefix_length].to_vec();
    let mut rest = value[prefix_length..].iter();
    while let Some(byte) = rest.next() {
        let mut pick = |letters: &[u8]| letters[draw() as usize % letters.len()];
        match byte {
            b'\\' if quote == Some(b'"') => {
                let next = rest.next().copied().unwrap_or(b'n');
                let stays = matches!(next, b'n' | b'r' | b't') || next.is_ascii_punctuation();
                made.extend([b'\\', if stays { next } else { b'n' }]);
            }
            // A number that begins with 0 is another kind of number to some.
            b'0'..=b'9' => made.push(pick(b"123456789")),
            b'a'..=b'z' => made.push(pick(lower)),
            b'A'..=b'Z' => made.push(pick(upper)),
            b'"' | b'\'' | b'`' if quote.is_some_and(|quote| quote != *byte && *byte != b'`') => {
                made.push(*byte)
            }
            b'#' if quote.is_some() => made.push(*byte),
            b'$' | b'`' | b'\\' | b'"' | b'\'' | b'#' => made.push(pick(lower)),
            byte if byte.is_ascii() => made.push(*byte),
            _ => made.push(pick(lower)),
        }
    }
    made
}

/// The same, with numbers from elsewhere.
fn shaped(value: &[u8], draw: &mut dyn FnMut() -> u32) -> String {
    let prefix_length = prefix(value);
    for _ in 0..TRIES {
        let made = vary(value, prefix_length, draw);
        if !shares_a_piece(&value[prefix_length..], &made.as_bytes()[prefix_length..]) {
            return made;
        }
    }
    // A value that hardly varies at all (`--------`) cannot keep its shape.
    let plain = filled(b"a", value.len().max(prefix_length + FEWEST));
    vary(&[&value[..prefix_length], &plain[prefix_length..]].concat(), prefix_length, draw)
}

fn vary(value: &[u8], prefix_length: usize, draw: &mut dyn FnMut() -> u32) -> String {
    let rest = &value[prefix_length..];
    let (lower, upper) = alphabets(rest);
    let mut made: Vec<u8> = value[..prefix_length].to_vec();
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

/// The letters to choose from: what is hexadecimal stays so.
fn alphabets(text: &[u8]) -> (&'static [u8], &'static [u8]) {
    let is = |letters: &[u8]| {
        text.iter()
            .all(|byte| !byte.is_ascii_alphanumeric() || byte.is_ascii_digit() || letters.contains(byte))
    };
    (if is(b"abcdef") { b"abcdef" } else { LOWER }, if is(b"ABCDEF") { b"ABCDEF" } else { UPPER })
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
/// Of addresses in settings: a program that reads one refuses any other text.
const SCHEMES: [&str; 22] = [
    "amqp",
    "amqps",
    "file",
    "http",
    "https",
    "kafka",
    "ldap",
    "ldaps",
    "mariadb",
    "mongodb",
    "mongodb+srv",
    "mysql",
    "nats",
    "postgres",
    "postgresql",
    "redis",
    "rediss",
    "s3",
    "smtp",
    "smtps",
    "ws",
    "wss",
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
        for (value, prefix_length) in [
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
            assert!(made.starts_with(prefix_length), "{made}");
            assert_ne!(
                made.as_bytes()[prefix_length.len()..][..6],
                value.as_bytes()[prefix_length.len()..][..6],
                "{made}"
            );
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
            let prefix_length = prefix(value.as_bytes());
            prop_assert!(made.is_ascii() && made.len() >= value.len());
            prop_assert!(!shares_a_piece(&value.as_bytes()[prefix_length..], &made.as_bytes()[prefix_length..]), "{} {}", value, made);
        }
    }
}
