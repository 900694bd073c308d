//! What comes of an answer tells nothing of a secret: two values of one shape give pieces of the same sizes, for any text in any
//! pieces, and neither value is ever in them. The text is made of what the fuzzer says and of pieces of both values.
#![no_main]

use belljar_gateway::{Known, Redact};
use belljar_vault::Secret;
use libfuzzer_sys::fuzz_target;
use std::sync::Arc;

/// A letter for a letter, a digit for a digit; the last ones have letters that programs escape.
const VALUES: [[&str; 2]; 4] = [
    ["ghp_R34lS3cretV4lueQ7zx9PmK2bT5", "ghp_Q21kR8bqdsU9ktdP0yw4OlJ7aS6"],
    ["0123456789abcdef", "9876543210fedcba"],
    ["aabaabaacaab", "zzyzzyzzxzzy"],
    ["a+b/c=\"d\"&e<f>", "z+y/x=\"w\"&v<u>"],
];

fuzz_target!(|input: (u8, Vec<(u8, Vec<u8>)>)| {
    let (which, parts) = input;
    let values = VALUES[usize::from(which) % VALUES.len()];
    let pieces: Vec<Vec<u8>> = parts.iter().map(|(kind, bytes)| piece(values, *kind, bytes)).collect();
    let whole = pieces.concat();
    let [one, two] = values.map(|value| {
        let out = redacted(value, &pieces);
        let all = out.concat();
        assert_eq!(all, redacted(value, std::slice::from_ref(&whole)).concat(), "pieces change nothing");
        assert_eq!(all.len(), whole.len());
        assert!(!all.windows(value.len()).any(|window| window == value.as_bytes()), "a value came through");
        out
    });
    let sizes = |out: &[Vec<u8>]| out.iter().map(Vec::len).collect::<Vec<_>>();
    assert_eq!(sizes(&one), sizes(&two), "what waits depends on a value");
});

/// Bytes as they are, or a part of a value, as it is or in base64, or what encoders put between lines.
fn piece(values: [&str; 2], kind: u8, bytes: &[u8]) -> Vec<u8> {
    let number = |at: usize| bytes.get(at).copied().map_or(0, usize::from);
    let part = |text: &[u8]| {
        let from = number(0) % (text.len() + 1);
        text[from..from + number(1) % (text.len() - from + 1)].to_vec()
    };
    let value = values[number(2) % 2].as_bytes();
    match kind % 8 {
        0 | 1 => part(value),
        2 => value.to_vec(),
        3 => base64(&[&vec![b'x'; number(0)], value, &vec![b'y'; number(1)]].concat()),
        4 => part(&base64(&[&vec![b'x'; number(3)], value].concat())),
        5 => [&b"\n"[..], b"\r\n", b"\\n", b"\\r\\n", b"\n  "][number(0) % 5].to_vec(),
        _ => bytes.to_vec(),
    }
}

fn redacted(value: &str, pieces: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let known = Arc::new(Known::default());
    known.remember(&Secret::new(value.into()), b"*");
    let mut redact = Redact::new(&known);
    let mut out: Vec<Vec<u8>> =
        pieces.iter().map(|piece| redact.feed(piece.clone().into()).to_vec()).collect();
    out.push(redact.finish().to_vec());
    out
}

/// RFC 4648, 4, without padding.
fn base64(bytes: &[u8]) -> Vec<u8> {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = Vec::new();
    for three in bytes.chunks(3) {
        let number = three
            .iter()
            .chain(&[0; 3][three.len()..])
            .fold(0u32, |number, byte| number << 8 | u32::from(*byte));
        let letter = |at: usize| LETTERS[(number >> (18 - 6 * at) & 63) as usize];
        out.extend((0..=three.len()).map(letter));
    }
    out
}
