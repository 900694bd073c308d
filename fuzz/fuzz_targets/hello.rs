//! The first message of TLS. The first byte says how long the records are that the rest is put into.
#![no_main]

use belljar_gateway::hello::{Hello, MAX, read};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (u8, &[u8])| {
    let (record, bytes) = input;
    as_it_is(bytes);
    if !bytes.is_empty() && bytes.len() < MAX / 8 {
        in_records(bytes, usize::from(record) + 1);
    }
});

/// A verdict does not change when more bytes come.
fn as_it_is(bytes: &[u8]) {
    let verdict = read(bytes);
    for end in [bytes.len() / 2, bytes.len().saturating_sub(1)] {
        match read(&bytes[..end]) {
            Hello::Incomplete => {}
            Hello::Malformed(_) => assert!(matches!(verdict, Hello::Malformed(_))),
            earlier @ Hello::Complete(_) => assert_eq!(earlier, verdict),
        }
    }
}

/// A body in records of any length says the same as in one, and nothing before its last byte has come.
fn in_records(body: &[u8], length: usize) {
    let message = [&[1][..], &(body.len() as u32).to_be_bytes()[1..], body].concat();
    let cut = |length: usize| -> Vec<u8> {
        let records = message
            .chunks(length)
            .map(|payload| [&[22, 3, 1][..], &(payload.len() as u16).to_be_bytes(), payload].concat());
        records.collect::<Vec<_>>().concat()
    };
    let bytes = cut(length);
    assert_eq!(read(&bytes), read(&cut(1 << 14)));
    assert_eq!(read(&bytes[..bytes.len() - 1]), Hello::Incomplete);
    if let Hello::Complete(hello) = read(&bytes) {
        assert!(hello.server_name.is_none_or(|name| name.bytes().all(|byte| byte.is_ascii_graphic())));
        assert!(hello.alpn.iter().all(|name| !name.is_empty()));
    }
}
