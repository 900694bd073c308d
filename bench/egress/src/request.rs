//! What a client sends: a real TLS hello, so that every proxy between reads what it would read anywhere. What the server
//! shall do is in it, where a client names the protocols that it speaks inside of TLS (ALPN). No cryptography follows, so
//! that only the way is measured.

use crate::Outcome;
use rustls::{ClientConfig, ClientConnection, RootCertStore};
use std::sync::Arc;

/// What the server shall do with a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wish {
    /// Answer with one byte and close.
    Byte,
    /// Send so many bytes, each copied into the kernel as a program does that makes them.
    Copied(u64),
    /// Send so many bytes without a copy: what comes from a network card costs this machine no copy either.
    Lent(u64),
    /// Send back whatever comes.
    Echo,
}

impl Wish {
    fn encode(self) -> [u8; LENGTH] {
        let (letter, bytes) = match self {
            Wish::Byte => (b'b', 0),
            Wish::Copied(bytes) => (b'c', bytes),
            Wish::Lent(bytes) => (b'l', bytes),
            Wish::Echo => (b'e', 0),
        };
        let mut encoded = [letter; LENGTH];
        encoded[1..].copy_from_slice(&bytes.to_be_bytes());
        encoded
    }

    fn decode(encoded: [u8; LENGTH]) -> Option<Wish> {
        let [letter, bytes @ ..] = encoded;
        let bytes = u64::from_be_bytes(bytes);
        match letter {
            b'b' => Some(Wish::Byte),
            b'c' => Some(Wish::Copied(bytes)),
            b'l' => Some(Wish::Lent(bytes)),
            b'e' => Some(Wish::Echo),
            _ => None,
        }
    }
}

/// A hello for this name, as rustls writes it, with the wish in it.
pub(crate) fn request(name: &str, wish: Wish) -> Outcome<Vec<u8>> {
    let mut config =
        ClientConfig::builder().with_root_certificates(RootCertStore::empty()).with_no_client_auth();
    config.alpn_protocols = vec![[MARK, &wish.encode()].concat()];
    let mut tls = ClientConnection::new(Arc::new(config), name.to_string().try_into()?)?;
    let mut bytes = Vec::new();
    while tls.wants_write() {
        tls.write_tls(&mut bytes)?;
    }
    Ok(bytes)
}

/// What has arrived of a request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Arrived {
    /// Not all of it.
    Part,
    /// All of it.
    All(Wish),
    /// Something else.
    Nonsense,
}

/// Looks at all bytes of a connection. rustls puts its hello into one record.
pub(crate) fn arrived(bytes: &[u8]) -> Arrived {
    let &[kind, _, _, high, low, ..] = bytes else { return Arrived::Part };
    if kind != HANDSHAKE {
        return Arrived::Nonsense;
    }
    let length = HEADER + usize::from(u16::from_be_bytes([high, low]));
    let Some(hello) = bytes.get(..length) else { return Arrived::Part };
    let place = hello.windows(MARK.len()).position(|piece| piece == MARK).map(|place| place + MARK.len());
    let wish =
        place.and_then(|place| hello[place..].first_chunk::<LENGTH>()).and_then(|wish| Wish::decode(*wish));
    wish.map_or(Arrived::Nonsense, Arrived::All)
}

/// What a wish begins with.
const MARK: &[u8] = b"belljar-bench ";
/// A wish: a letter and a number.
const LENGTH: usize = 9;
/// A record of TLS: its kind, its version, its length (RFC 8446, 5.1).
const HEADER: usize = 5;
const HANDSHAKE: u8 = 22;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_understood_when_all_of_it_is_there() {
        for wish in [Wish::Byte, Wish::Copied(7), Wish::Lent(u64::MAX), Wish::Echo] {
            let request = request("far.test", wish).unwrap();
            assert!(request.windows(8).any(|bytes| bytes == b"far.test"), "the name is in the clear");
            assert_eq!(arrived(&request), Arrived::All(wish));
            for length in 0..request.len() {
                assert_eq!(arrived(&request[..length]), Arrived::Part);
            }
        }
        assert_eq!(arrived(b"GET / HTTP/1.1\r\n"), Arrived::Nonsense);
    }
}
