//! Hellos of real clients, and every way of cutting them. The files in `hellos` hold what each client sent first, in
//! hexadecimal: openssl 3.0, curl 7.88, git 2, python 3.11, node 20, java 17, rustls 0.23.

use std::io::Cursor;

use belljar_gateway::hello::{Hello, MAX, read};
use proptest::collection::vec;
use proptest::prelude::*;

#[derive(Debug)]
struct Captured {
    hex: &'static str,
    server_name: Option<&'static str>,
    encrypted: bool,
    alpn: &'static [&'static str],
}

impl Captured {
    fn bytes(&self) -> Vec<u8> {
        let digits: Vec<u32> = self.hex.chars().filter_map(|digit| digit.to_digit(16)).collect();
        digits.chunks(2).map(|pair| (pair[0] << 4 | pair[1]) as u8).collect()
    }

    /// Without the headers of records.
    fn message(&self) -> Vec<u8> {
        let bytes = self.bytes();
        let mut rest = bytes.as_slice();
        let mut message = Vec::new();
        while let [_, _, _, high, low, after @ ..] = rest {
            let (payload, after) = after.split_at(u16::from_be_bytes([*high, *low]).into());
            message.extend_from_slice(payload);
            rest = after;
        }
        message
    }
}

macro_rules! captured {
    ($file:literal, $name:expr, $encrypted:expr, $alpn:expr) => {
        Captured {
            hex: include_str!(concat!("hellos/", $file, ".hex")),
            server_name: $name,
            encrypted: $encrypted,
            alpn: &$alpn,
        }
    };
}

static CAPTURED: [Captured; 10] = [
    captured!("openssl_s_client", Some("example.com"), false, ["h2", "http/1.1"]),
    captured!("openssl_tls12_without_name", None, false, []),
    // Two records: `-max_send_frag 512`.
    captured!("openssl_split_records", Some(LONG_NAME), false, ["h2", "http/1.1"]),
    captured!("curl", Some("api.example.com"), false, ["h2", "http/1.1"]),
    captured!("curl_http1_tls12", Some("api.example.com"), false, ["http/1.1"]),
    captured!("git", Some("git.example.com"), false, ["h2", "http/1.1"]),
    captured!("python_ssl", Some("pypi.example.com"), false, []),
    captured!("node", Some("registry.example.com"), false, ["http/1.1"]),
    captured!("java", Some("maven.example.com"), false, []),
    // With a pretended encrypted hello, and a key share that withstands quantum computers.
    captured!("rustls_ech_grease", Some("hidden.example.com"), true, ["h2"]),
];

const LONG_NAME: &str = "a-label-of-thirty-two-characters.a-label-of-thirty-two-characters.\
    a-label-of-thirty-two-characters.a-label-of-thirty-two-characters.a-label-of-thirty-two-characters.\
    a-label-of-thirty-two-characters.example.com";

#[test]
fn hellos_of_real_clients_are_understood() {
    for captured in &CAPTURED {
        let Hello::Complete(hello) = read(&captured.bytes()) else { panic!("{:?}", read(&captured.bytes())) };
        assert_eq!(hello.server_name.as_deref(), captured.server_name);
        assert_eq!(hello.encrypted, captured.encrypted);
        let alpn: Vec<_> = hello.alpn.iter().map(String::from_utf8_lossy).collect();
        assert_eq!(alpn, captured.alpn);
        assert_eq!(name_for_rustls(&captured.bytes()).as_deref(), captured.server_name);
    }
}

#[test]
fn every_beginning_of_a_real_hello_is_incomplete() {
    for captured in &CAPTURED {
        let bytes = captured.bytes();
        for end in 0..bytes.len() {
            assert_eq!(read(&bytes[..end]), Hello::Incomplete, "{end} bytes");
        }
    }
}

/// The message in records of the given lengths, which are repeated as long as there is something to send.
fn in_records(message: &[u8], lengths: &[usize]) -> Vec<u8> {
    let mut rest = message;
    let mut bytes = Vec::new();
    for length in lengths.iter().cycle() {
        let (payload, after) = rest.split_at(rest.len().min(*length));
        bytes.extend_from_slice(&[22, 3, 1]);
        bytes.extend_from_slice(&(payload.len() as u16).to_be_bytes());
        bytes.extend_from_slice(payload);
        rest = after;
        if rest.is_empty() {
            break;
        }
    }
    bytes
}

/// What rustls understands, which is a server's view: the name, or that it hangs up.
fn name_for_rustls(bytes: &[u8]) -> Option<String> {
    let mut acceptor = rustls::server::Acceptor::default();
    let mut stream = Cursor::new(bytes);
    while stream.position() < bytes.len() as u64 {
        acceptor.read_tls(&mut stream).ok()?;
        if let Some(accepted) = acceptor.accept().ok()? {
            return accepted.client_hello().server_name().map(str::to_owned);
        }
    }
    None
}

/// Hellos that no client ever sent, in one message.
fn invented() -> impl Strategy<Value = (String, Vec<u8>)> {
    let extensions = vec((1_u16..0xfe00, vec(any::<u8>(), 0..200)), 0..20);
    (
        "[a-zA-Z0-9_.-]{1,255}",
        extensions,
        any::<[u8; 32]>(),
        vec(any::<u8>(), 0..=32),
        any::<prop::sample::Index>(),
    )
        .prop_map(|(name, mut others, random, session, place)| {
            others.sort_by_key(|(kind, _)| *kind);
            others.dedup_by_key(|(kind, _)| *kind);
            others.retain(|(kind, _)| *kind != 16);
            let length = name.len() as u16;
            let list =
                [&(length + 3).to_be_bytes()[..], &[0], &length.to_be_bytes(), name.as_bytes()].concat();
            others.insert(place.index(others.len() + 1), (0, list));
            let extensions = others.iter().map(|(kind, data)| {
                [&kind.to_be_bytes()[..], &(data.len() as u16).to_be_bytes(), data].concat()
            });
            let extensions = extensions.collect::<Vec<_>>().concat();
            let body = [
                &[3, 3][..],
                &random,
                &[session.len() as u8],
                &session,
                &[0, 4, 0x13, 1, 0x13, 2, 1, 0],
                &(extensions.len() as u16).to_be_bytes(),
                &extensions,
            ];
            let body = body.concat();
            (name, [&[1][..], &(body.len() as u32).to_be_bytes()[1..], &body].concat())
        })
}

fn any_captured() -> impl Strategy<Value = &'static Captured> {
    (0..CAPTURED.len()).prop_map(|index| &CAPTURED[index])
}

proptest! {
    #[test]
    fn the_cut_into_records_makes_no_difference(
        captured in any_captured(), lengths in vec(1_usize..300, 1..20), ends in vec(any::<prop::sample::Index>(), 1..20),
    ) {
        let bytes = in_records(&captured.message(), &lengths);
        prop_assert_eq!(read(&bytes), read(&captured.bytes()));
        for end in ends {
            prop_assert_eq!(read(&bytes[..end.index(bytes.len())]), Hello::Incomplete);
        }
    }

    #[test]
    fn the_name_of_any_valid_hello_is_found(
        (name, message) in invented(), lengths in vec(1_usize..2000, 1..20), end in any::<prop::sample::Index>(),
    ) {
        let bytes = in_records(&message, &lengths);
        prop_assume!(bytes.len() < MAX);
        let Hello::Complete(hello) = read(&bytes) else { panic!("{:?}", read(&bytes)) };
        prop_assert_eq!(hello.server_name, Some(name));
        prop_assert_eq!(read(&bytes[..end.index(bytes.len())]), Hello::Incomplete);
    }

    #[test]
    fn a_server_never_understands_another_name(
        captured in any_captured(), lengths in vec(1_usize..300, 1..5),
        changes in vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
    ) {
        let mut bytes = in_records(&captured.message(), &lengths);
        for (place, value) in changes {
            let place = place.index(bytes.len());
            bytes[place] = value;
        }
        if let (Hello::Complete(hello), Some(name)) = (read(&bytes), name_for_rustls(&bytes)) {
            prop_assert_eq!(hello.server_name.map(|ours| ours.to_ascii_lowercase()), Some(name.to_ascii_lowercase()));
        }
    }

    #[test]
    fn a_verdict_stays_when_more_bytes_come(
        captured in any_captured(), lengths in vec(1_usize..300, 1..5), tail in vec(any::<u8>(), 0..100),
        change in any::<(prop::sample::Index, u8)>(),
    ) {
        let mut bytes = in_records(&captured.message(), &lengths);
        let place = change.0.index(bytes.len());
        bytes[place] = change.1;
        bytes.extend(tail);
        let mut verdict = Hello::Incomplete;
        for end in (0..bytes.len()).step_by(7).chain([bytes.len()]) {
            let now = read(&bytes[..end]);
            match verdict {
                Hello::Incomplete => {}
                Hello::Malformed(_) => prop_assert!(matches!(now, Hello::Malformed(_))),
                Hello::Complete(_) => prop_assert_eq!(&now, &verdict),
            }
            verdict = now;
        }
    }

    #[test]
    fn arbitrary_bytes_never_panic(
        bytes in vec(any::<u8>(), 0..2048), like in 0_usize..10, captured in any_captured(),
    ) {
        read(&bytes);
        // The beginning of a real one, so that the inner parts are reached too.
        let start = captured.bytes();
        read(&[&start[..start.len() * like / 10], &bytes].concat());
        read(&in_records(&[&[1, 0, (bytes.len() >> 8) as u8, bytes.len() as u8][..], &bytes].concat(), &[700]));
    }
}
