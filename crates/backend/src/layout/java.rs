//! A trust store for Java: JKS, the older of its two formats, which every version reads
//! (sun.security.provider.JavaKeyStore).

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use sha1::{Digest, Sha1};

/// A store with these certificates, which are PEM. Its password is the well-known default.
pub(super) fn store(pem: &[u8]) -> Vec<u8> {
    let certificates = certificates(pem);
    let mut store = Vec::new();
    store.extend(MAGIC.to_be_bytes());
    store.extend(VERSION.to_be_bytes());
    store.extend((certificates.len() as u32).to_be_bytes());
    for (number, der) in certificates.iter().enumerate() {
        store.extend(TRUSTED_CERTIFICATE.to_be_bytes());
        text(&mut store, &format!("belljar-{number}"));
        store.extend(0_u64.to_be_bytes()); // when it was added
        text(&mut store, "X.509");
        store.extend((der.len() as u32).to_be_bytes());
        store.extend(der);
    }
    let mut digest = Sha1::new();
    PASSWORD.encode_utf16().for_each(|unit| digest.update(unit.to_be_bytes()));
    digest.update(WHITENER);
    digest.update(&store);
    store.extend(digest.finalize());
    store
}

fn text(store: &mut Vec<u8>, text: &str) {
    store.extend((text.len() as u16).to_be_bytes());
    store.extend(text.as_bytes());
}

/// What lies between the lines of PEM; what is none is passed over.
fn certificates(pem: &[u8]) -> Vec<Vec<u8>> {
    let text = String::from_utf8_lossy(pem);
    let parts = text.split("-----BEGIN CERTIFICATE-----").skip(1);
    let bodies = parts.filter_map(|part| part.split_once("-----END CERTIFICATE-----"));
    bodies
        .filter_map(|(body, _)| {
            let body: String = body.split_whitespace().collect();
            STANDARD.decode(body).ok()
        })
        .collect()
}

const MAGIC: u32 = 0xfeed_feed;
const VERSION: u32 = 2;
const TRUSTED_CERTIFICATE: u32 = 2;
const PASSWORD: &str = "changeit";
/// Keeps the digest from being that of anything else.
const WHITENER: &[u8] = b"Mighty Aphrodite";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_has_every_certificate_and_an_end() {
        let pem = b"# a\n-----BEGIN CERTIFICATE-----\nAQID\nBA==\n-----END CERTIFICATE-----\nrubbish\n\
            -----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n";
        let store = store(pem);
        let expected = b"\xfe\xed\xfe\xed\0\0\0\x02\0\0\0\x01\0\0\0\x02\0\x09belljar-0\0\0\0\0\0\0\0\0\0\x05X.509\0\0\0\x04\x01\x02\x03\x04";
        assert_eq!(store[..expected.len()], expected[..]);
        assert_eq!(store.len(), expected.len() + 20);
    }
}
