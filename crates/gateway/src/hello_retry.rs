//! A server of TLS may have its client begin again (HelloRetryRequest, RFC 8446 §4.1.4), and many of them believe the
//! second hello about whom it is for. So nothing that follows the first one reaches the server before its answer is
//! known, and a second one is read like the first.
//!
//! Pure; called by `connection`.

use crate::bytes;
use crate::hello::{self, Hello, MAJOR, MAX, RECORD_HANDSHAKE, RECORD_HEADER};

/// What a server's first bytes say to a hello.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answer {
    /// Too few to tell.
    Undecided,
    /// It goes on, or does not; a second hello would be an error to it.
    GoesOn,
    /// It wants another hello.
    Again,
}

/// Looks at all that the server has said. The message that asks is a server's hello with a number of its own, and
/// shorter than any record that a client may ask for is (RFC 8449 §4).
pub(crate) fn answer(said: &[u8]) -> Answer {
    let record = [Some(RECORD_HANDSHAKE), Some(MAJOR), None, None, None];
    let message = [Some(MESSAGE_SERVER_HELLO), None, None, None, Some(MAJOR), None];
    let expected = record.into_iter().chain(message).chain(AGAIN.map(Some));
    let mut compared = 0;
    for (byte, expected) in said.iter().zip(expected) {
        if expected.is_some_and(|expected| expected != *byte) {
            return Answer::GoesOn;
        }
        compared += 1;
    }
    if compared == RECORD_HEADER + MESSAGE_START + AGAIN.len() { Answer::Again } else { Answer::Undecided }
}

/// Reads the second hello from all that followed the first one. Before it there may be a message for the sake of old
/// machines on the way, and data that was sent too early and that the server passes over.
pub(crate) fn second(followed: &[u8]) -> Hello {
    let mut rest = followed;
    while let Some(kind @ (CHANGE_CIPHER | APPLICATION_DATA)) = rest.first().copied() {
        let mut body = rest.get(RECORD_HEADER - 2..).unwrap_or_default();
        let Some(payload) = bytes::vector16(&mut body) else {
            return if followed.len() < MAX { Hello::Incomplete } else { Hello::Malformed(TOO_LONG) };
        };
        if kind == CHANGE_CIPHER && payload != [1] {
            return Hello::Malformed("there is something strange before the second client hello");
        }
        rest = body;
    }
    match hello::read(rest) {
        Hello::Incomplete if followed.len() >= MAX => Hello::Malformed(TOO_LONG),
        other => other,
    }
}

const TOO_LONG: &str = "the second client hello does not come";
const MESSAGE_SERVER_HELLO: u8 = 2;
/// Type, length (three bytes), version (two bytes).
const MESSAGE_START: usize = 6;
const CHANGE_CIPHER: u8 = 20;
const APPLICATION_DATA: u8 = 23;
/// Where a server's hello has a random number, this one has the hash of "HelloRetryRequest" (RFC 8446 §4.1.3).
const AGAIN: [u8; 32] = [
    0xcf, 0x21, 0xad, 0x74, 0xe5, 0x9a, 0x61, 0x11, 0xbe, 0x1d, 0x8c, 0x02, 0x1e, 0x65, 0xb8, 0x91, 0xc2,
    0xa2, 0x11, 0x16, 0x7a, 0xbb, 0x8c, 0x5e, 0x07, 0x9e, 0x09, 0xe2, 0xc8, 0xa8, 0x33, 0x9c,
];

#[cfg(test)]
mod tests {
    use super::*;

    fn server_hello(random: &[u8; 32]) -> Vec<u8> {
        [&[22, 3, 3, 0, 56, 2, 0, 0, 52, 3, 3][..], random, &[0; 18]].concat()
    }

    /// Without a name; nothing of it matters here.
    fn client_hello() -> Vec<u8> {
        let body = [&[3, 3][..], &[7; 32], &[0, 0, 2, 0x13, 1, 1, 0]].concat();
        let length = body.len() as u8;
        [&[22, 3, 1, 0, length + 4, 1, 0, 0, length][..], &body].concat()
    }

    #[test]
    fn only_the_number_of_a_retry_is_one() {
        let again = server_hello(&AGAIN);
        for length in 0..again.len() {
            let expected = if length < 43 { Answer::Undecided } else { Answer::Again };
            assert_eq!(answer(&again[..length]), expected, "{length}");
        }
        let mut other = AGAIN;
        other[31] ^= 1;
        assert_eq!(answer(&server_hello(&other)), Answer::GoesOn);
        assert_eq!(answer(&server_hello(&[0; 32])[..12]), Answer::GoesOn);
        for said in [&b"\x15\x03\x03"[..], b"HTTP/1.1", b"\x16\x02", b"\x16\x03\x03\0\x38\x0b"] {
            assert_eq!(answer(said), Answer::GoesOn, "{said:?}");
        }
    }

    #[test]
    fn a_second_hello_is_found_behind_what_may_come_before_it() {
        let hello = client_hello();
        let (change, early) = ([20, 3, 3, 0, 1, 1], [23, 3, 3, 0, 3, 9, 9, 9]);
        let changes: [&[u8]; 4] = [&[], &change, &early, &[&change[..], &early, &early].concat()];
        for before in changes {
            let whole = [before, &hello].concat();
            assert_eq!(second(&whole), hello::read(&hello));
            for length in 0..whole.len() {
                assert_eq!(second(&whole[..length]), Hello::Incomplete, "{length} of {whole:?}");
            }
        }
        for before in [&[20, 3, 3, 0, 2, 1, 1][..], &[20, 3, 3, 0, 1, 2], &[21, 3, 3, 0, 2, 1, 0]] {
            assert!(matches!(second(&[before, &hello].concat()), Hello::Malformed(_)), "{before:?}");
        }
        let endless: Vec<u8> = std::iter::repeat_n(early, MAX / 8 + 1).flatten().collect();
        assert!(matches!(second(&endless), Hello::Malformed(_)));
    }
}
