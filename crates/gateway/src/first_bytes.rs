//! Which protocol a client speaks, told from its first bytes.
//!
//! Pure, and decided as early as it can be: [`Start::Undecided`] is said only while what came is the beginning of
//! something known, and a decision never changes when more bytes come. This is a signpost and no check: what is
//! inside of a hello or a request is read by who understands it.

use crate::hello::{LAST_MINOR, MAJOR, RECORD_HANDSHAKE};

/// What the first bytes are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    /// The beginning of one of the others.
    Undecided,
    /// A record of a TLS handshake.
    Tls,
    /// A request of HTTP/1: a registered method and a space. HTTP/2 without TLS is [`Start::Other`].
    Http,
    /// The version line of SSH.
    Ssh,
    /// A first packet of PostgreSQL's protocol. With `sslnegotiation=direct` its clients begin with TLS instead.
    Postgres(PostgresStart),
    /// None of these, and it never will be.
    Other,
}

/// What a client of PostgreSQL begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PostgresStart {
    /// It asks whether to continue in TLS; the server answers with one byte.
    TlsRequest,
    /// It asks whether to continue encrypted by GSSAPI.
    GssRequest,
    /// It logs in, in the clear.
    Startup,
    /// It cancels a query of another connection.
    Cancel,
}

/// All but empty lines before a request: servers of HTTP pass over them (RFC 9112 §2.2).
pub fn without_empty_lines(bytes: &[u8]) -> &[u8] {
    let mut rest = bytes;
    while let Some(after) = rest.strip_prefix(b"\r\n").or_else(|| rest.strip_prefix(b"\n")) {
        rest = after;
    }
    if rest == b"\r" { &[] } else { rest }
}

/// Looks at all bytes that have arrived since the connection began.
pub fn classify(bytes: &[u8]) -> Start {
    let mut undecided = false;
    for known in [tls, ssh, postgres, http] {
        match known(bytes) {
            Likeness::Is(start) => return start,
            Likeness::MayBe => undecided = true,
            Likeness::IsNot => {}
        }
    }
    if undecided { Start::Undecided } else { Start::Other }
}

enum Likeness {
    Is(Start),
    MayBe,
    IsNot,
}

fn tls(bytes: &[u8]) -> Likeness {
    match bytes {
        [] | [RECORD_HANDSHAKE] | [RECORD_HANDSHAKE, MAJOR] => Likeness::MayBe,
        [RECORD_HANDSHAKE, MAJOR, ..=LAST_MINOR, ..] => Likeness::Is(Start::Tls),
        _ => Likeness::IsNot,
    }
}

fn ssh(bytes: &[u8]) -> Likeness {
    literal(bytes, b"SSH-", Start::Ssh)
}

/// A list and not any word: `HELO x` and `USER x` begin with a word and a space too.
fn http(bytes: &[u8]) -> Likeness {
    for method in METHODS.iter().map(|method| method.as_bytes()) {
        match (bytes.strip_prefix(method), method.starts_with(bytes)) {
            (Some([b' ', ..]), _) => return Likeness::Is(Start::Http),
            (_, true) => return Likeness::MayBe,
            _ => {}
        }
    }
    Likeness::IsNot
}

/// A length, which counts itself, and a code. The lengths are the server's own bounds; they hold before the code is
/// there, so that most of what begins with zeros is told apart early.
fn postgres(bytes: &[u8]) -> Likeness {
    let Some((length, code)) = bytes.split_first_chunk::<4>() else {
        return if could_be_length(bytes) { Likeness::MayBe } else { Likeness::IsNot };
    };
    let length = u32::from_be_bytes(*length);
    let is = |start| Start::Postgres(start);
    let likenesses = [
        (8..=8, literal(code, &TLS_REQUEST, is(PostgresStart::TlsRequest))),
        (8..=8, literal(code, &GSS_REQUEST, is(PostgresStart::GssRequest))),
        (STARTUP_LENGTHS, literal(code, &STARTUP_MAJOR, is(PostgresStart::Startup))),
        (CANCEL_LENGTHS, literal(code, &CANCEL_REQUEST, is(PostgresStart::Cancel))),
    ];
    let mut result = Likeness::IsNot;
    for (lengths, likeness) in likenesses {
        match likeness {
            _ if !lengths.contains(&length) => {}
            Likeness::Is(start) => return Likeness::Is(start),
            Likeness::MayBe => result = Likeness::MayBe,
            Likeness::IsNot => {}
        }
    }
    result
}

/// Whether up to three bytes can begin a length from 8 to the last of [`STARTUP_LENGTHS`].
fn could_be_length(bytes: &[u8]) -> bool {
    let limit = STARTUP_LENGTHS.end().to_be_bytes();
    bytes <= &limit[..bytes.len().min(limit.len())]
}

fn literal(bytes: &[u8], known: &[u8], start: Start) -> Likeness {
    if bytes.starts_with(known) {
        Likeness::Is(start)
    } else if known.starts_with(bytes) {
        Likeness::MayBe
    } else {
        Likeness::IsNot
    }
}

/// IANA's registry of HTTP methods, without `PRI`, which begins HTTP/2; and `PURGE`, which caches know.
#[rustfmt::skip] // one a line would be a page
const METHODS: &[&str] = &[
    "ACL", "BASELINE-CONTROL", "BIND", "CHECKIN", "CHECKOUT", "CONNECT", "COPY", "DELETE", "GET", "HEAD", "LABEL",
    "LINK", "LOCK", "MERGE", "MKACTIVITY", "MKCALENDAR", "MKCOL", "MKREDIRECTREF", "MKWORKSPACE", "MOVE", "OPTIONS",
    "ORDERPATCH", "PATCH", "POST", "PROPFIND", "PROPPATCH", "PURGE", "PUT", "QUERY", "REBIND", "REPORT", "SEARCH",
    "TRACE", "UNBIND", "UNCHECKOUT", "UNLINK", "UNLOCK", "UPDATE", "UPDATEREDIRECTREF", "VERSION-CONTROL",
];

/// PostgreSQL's `pqcomm.h`: `NEGOTIATE_SSL_CODE`, `NEGOTIATE_GSS_CODE`, `CANCEL_REQUEST_CODE`.
const TLS_REQUEST: [u8; 4] = 80_877_103_u32.to_be_bytes();
const GSS_REQUEST: [u8; 4] = 80_877_104_u32.to_be_bytes();
const CANCEL_REQUEST: [u8; 4] = 80_877_102_u32.to_be_bytes();
/// The high half of the version; the low one is for the server to know or refuse.
const STARTUP_MAJOR: [u8; 2] = 3_u16.to_be_bytes();
/// At least one parameter's end; at most `MAX_STARTUP_PACKET_LENGTH`.
const STARTUP_LENGTHS: std::ops::RangeInclusive<u32> = 9..=10_000;
/// A process and its key: four bytes, from version 3.2 on up to 256.
const CANCEL_LENGTHS: std::ops::RangeInclusive<u32> = 16..=268;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_lines_before_a_request_do_not_hide_it() {
        for (bytes, expected) in [
            (&b"\r\nGET / HTTP/1.1\r\n"[..], &b"GET / HTTP/1.1\r\n"[..]),
            (b"\r\n\nGET", b"GET"),
            (b"\r\n\r", b""),
            (b"\rGET", b"\rGET"),
            (b"\r\n", b""),
            (b"SSH-2.0", b"SSH-2.0"),
        ] {
            assert_eq!(without_empty_lines(bytes), expected);
        }
    }
    use proptest::prelude::*;

    const KNOWN: &[(&[u8], Start)] = &[
        (b"\x16\x03\x01", Start::Tls),
        (b"\x16\x03\x04", Start::Tls),
        (b"GET ", Start::Http),
        (b"POST ", Start::Http),
        (b"CONNECT ", Start::Http),
        (b"UPDATE ", Start::Http),
        (b"UPDATEREDIRECTREF ", Start::Http),
        (b"SSH-", Start::Ssh),
        (b"\0\0\0\x08\x04\xd2\x16\x2f", Start::Postgres(PostgresStart::TlsRequest)),
        (b"\0\0\0\x08\x04\xd2\x16\x30", Start::Postgres(PostgresStart::GssRequest)),
        (b"\0\0\0\x10\x04\xd2\x16\x2e", Start::Postgres(PostgresStart::Cancel)),
        (b"\0\0\0\x29\0\x03", Start::Postgres(PostgresStart::Startup)),
        (b"\0\0\x27\x10\0\x03", Start::Postgres(PostgresStart::Startup)),
    ];

    #[test]
    fn every_protocol_is_known_by_its_last_telling_byte() {
        for (bytes, start) in KNOWN {
            let (_, before) = bytes.split_last().unwrap();
            assert_eq!(classify(bytes), *start, "{bytes:02x?}");
            assert_eq!(classify(before), Start::Undecided, "{before:02x?}");
        }
        for method in METHODS {
            assert_eq!(classify(format!("{method} / HTTP/1.1").as_bytes()), Start::Http);
        }
    }

    #[test]
    fn the_shortest_bytes_that_are_nothing_known() {
        // Mail, news and file transfer begin with words too.
        let words: &[&[u8]] =
            &[b"g", b"GET\r", b"GET\t", b"GETS", b"PRI", b"E", b"US", b"\r", b" ", b"SSH\n", b"SSL"];
        let tls: &[&[u8]] = &[b"\x16\x02", b"\x16\x03\x05", b"\x17", b"\x80"];
        let postgres: &[&[u8]] = &[
            b"\0\x01",
            b"\0\0\x28",
            b"\0\0\x27\x11",
            b"\0\0\0\x07",
            b"\0\0\0\x08\0",
            b"\0\0\0\x09\x04",
            b"\0\0\x01\x0d\x04",
            b"\0\0\0\x29\0\x02",
            b"\0\0\0\x08\x04\xd2\x16\x2e",
        ];
        for bytes in [words, tls, postgres].concat() {
            let (_, before) = bytes.split_last().unwrap();
            assert_eq!(classify(bytes), Start::Other, "{bytes:02x?}");
            assert_eq!(classify(before), Start::Undecided, "{before:02x?}");
        }
    }

    #[test]
    fn nothing_is_undecided() {
        assert_eq!(classify(b""), Start::Undecided);
    }

    proptest! {
        #[test]
        fn a_decision_stays_when_more_bytes_come(
            known in proptest::sample::select(KNOWN), cut in 0_usize..20, tail in any::<Vec<u8>>(),
        ) {
            let bytes = [&known.0[..cut.min(known.0.len())], &tail].concat();
            let mut decided = Start::Undecided;
            for end in 0..=bytes.len() {
                let now = classify(&bytes[..end]);
                prop_assert!(decided == Start::Undecided || decided == now);
                decided = now;
            }
            // The longest beginning that is still open: `UPDATEREDIRECTREF` without its space.
            prop_assert!(decided != Start::Undecided || bytes.len() < 18);
        }
    }
}
