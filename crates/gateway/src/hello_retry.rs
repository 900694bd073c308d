//! A TLS server may ask its client for a second hello (HelloRetryRequest, RFC 8446 §4.1.4), and many servers take the
//! server name from the second hello. So nothing that follows the first hello reaches the server before its answer is
//! known, and a second hello is read like the first.
//!
//! Pure; called by `dialogue`. How the server cuts its answer into records, and which records of other types it puts before
//! it, makes no difference.

use crate::bytes;
use crate::hello::{self, Hello, MAJOR, MAX, RECORD_HANDSHAKE, RECORD_HEADER};
use std::ops::RangeInclusive;

/// What a server's first bytes say to a hello.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answer {
    /// Too few to tell.
    Undecided,
    /// It continues, or does not; a second hello would be an error to it.
    GoesOn,
    /// It wants another hello.
    Again,
}

/// Looks at all that the server has said so far.
pub(crate) fn answer(bytes: &[u8]) -> Answer {
    let mut message = ServerHelloStart::default();
    let mut rest = bytes;
    loop {
        match rest {
            [] => return Answer::Undecided,
            // A record of another type before the answer does not make it another answer.
            [kind] if RECORD_TYPES.contains(kind) => return Answer::Undecided,
            [kind, MAJOR, ..] if RECORD_TYPES.contains(kind) => {}
            _ => return Answer::GoesOn,
        }
        let Some((&[kind, _, _, high, low], body)) = rest.split_first_chunk::<RECORD_HEADER>() else {
            return Answer::Undecided;
        };
        let length = usize::from(u16::from_be_bytes([high, low]));
        let (payload, after) = body.split_at(body.len().min(length));
        if kind == RECORD_HANDSHAKE {
            for byte in payload {
                if let Some(answer) = message.feed(*byte) {
                    return answer;
                }
            }
        }
        rest = after;
    }
}

/// The beginning of the first handshake message that counts, gathered from any number of records.
#[derive(Default)]
struct ServerHelloStart {
    gathered: usize,
}

impl ServerHelloStart {
    /// Looks at one more byte; `None` while more are needed.
    fn feed(&mut self, byte: u8) -> Option<Answer> {
        let fits = match self.gathered {
            0 if byte == MESSAGE_HELLO_REQUEST => {
                // A message without content (RFC 5246 §7.4.1.1), which clients ignore while they negotiate.
                self.gathered = HELLO_REQUEST_AT;
                return None;
            }
            0 => byte == MESSAGE_SERVER_HELLO,
            at @ HELLO_REQUEST_AT.. => {
                let is_last = at == HELLO_REQUEST_AT + HELLO_REQUEST_LENGTH - 1;
                self.gathered = if is_last { 0 } else { at + 1 };
                return (byte != 0).then_some(Answer::GoesOn);
            }
            at => match at.checked_sub(MESSAGE_START) {
                // Length and version: whatever they are, the number behind them decides.
                None => true,
                Some(at) => AGAIN.get(at) == Some(&byte),
            },
        };
        self.gathered += 1;
        match fits {
            false => Some(Answer::GoesOn),
            true => (self.gathered == MESSAGE_START + AGAIN.len()).then_some(Answer::Again),
        }
    }
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
const MESSAGE_HELLO_REQUEST: u8 = 0;
/// The length of one: three bytes of zero.
const HELLO_REQUEST_LENGTH: usize = 3;
/// Beyond any place in a server's hello.
const HELLO_REQUEST_AT: usize = 1 << 16;
const MESSAGE_SERVER_HELLO: u8 = 2;
/// Type, length (three bytes), version (two bytes).
const MESSAGE_START: usize = 6;
/// All that TLS has ever had (RFC 8446 §B.1, RFC 6520, RFC 9146, RFC 9147).
const RECORD_TYPES: RangeInclusive<u8> = CHANGE_CIPHER..=26;
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
        for bytes in [&b"HTTP/1.1"[..], b"\x1b\x03\x03", b"\x16\x02", b"\x16\x03\x03\0\x38\x0b"] {
            assert_eq!(answer(bytes), Answer::GoesOn, "{bytes:?}");
        }
    }

    /// A handshake message in records of this size.
    fn in_records(message: &[u8], size: usize) -> Vec<u8> {
        let record = |piece: &[u8]| [&[22, 3, 3, 0, piece.len() as u8][..], piece].concat();
        message.chunks(size).flat_map(record).collect()
    }

    #[test]
    fn a_retry_in_pieces_or_behind_other_records_is_one() {
        let (again, other) = (server_hello(&AGAIN), server_hello(&[9; 32]));
        let before: [&[u8]; 7] = [
            b"",
            // A heartbeat.
            b"\x18\x03\x03\0\x01\x01",
            b"\x14\x03\x03\0\x01\x01",
            b"\x15\x03\x03\0\x02\x01\x5a",
            b"\x15\x03\x03\0\x02\x02\x28\x15\x03\x03\0\x02\x01\0",
            b"\x16\x03\x03\0\0",
            // HelloRequest, torn over two records.
            b"\x16\x03\x03\0\x02\0\0\x16\x03\x03\0\x02\0\0",
        ];
        for before in before {
            for size in [1, 2, 5, 37, 38, 56] {
                let bytes = [before, &in_records(&again[5..], size)].concat();
                assert_eq!(answer(&bytes), Answer::Again, "{size} behind {before:?}");
                let decided = (0..bytes.len()).find(|length| answer(&bytes[..*length]) != Answer::Undecided);
                let decided = decided.map(|length| answer(&bytes[..length]));
                assert!(decided.is_none_or(|answer| answer == Answer::Again), "{size} behind {before:?}");
                let bytes = [before, &in_records(&other[5..], size)].concat();
                assert_eq!(answer(&bytes), Answer::GoesOn, "{size} behind {before:?}");
            }
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
