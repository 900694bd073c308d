//! The vault's key: its source, and encryption of values.

use super::VaultError;
use super::contents::{Entry, FORMAT};
use super::vault_dir::{self, VaultDir};
use crate::Secret;
use aws_lc_rs::aead::{AES_256_GCM, Aad, Nonce, RandomizedNonceKey};
use aws_lc_rs::{hmac, rand};
use belljar_spec::secret::SecretName;
use data_encoding::{BASE64, BASE64_NOPAD, HEXLOWER, HEXLOWER_PERMISSIVE};
use std::fmt;
use std::path::PathBuf;
use zeroize::Zeroizing;

/// The source of the key; the first one that is set counts.
#[derive(Clone)]
pub enum KeySource {
    /// `BELLJAR_VAULT_KEY` holds it.
    Variable(Zeroizing<Vec<u8>>),
    /// `BELLJAR_VAULT_KEY_FILE` names its file.
    Named(PathBuf),
    /// A file beside the vault, made with the first secret.
    Beside(PathBuf),
}

impl KeySource {
    /// From the environment, else the file in the vault's folder.
    pub(super) fn real(place: &VaultDir) -> KeySource {
        use std::os::unix::ffi::OsStringExt;
        if let Some(text) = std::env::var_os(KEY_VARIABLE) {
            return KeySource::Variable(Zeroizing::new(text.into_vec()));
        }
        match named_key_file() {
            Some(path) => KeySource::Named(path),
            None => KeySource::Beside(place.key()),
        }
    }

    /// The key; `None` if the file beside the vault does not exist yet.
    pub(super) fn read(&self) -> Result<Option<Key>, VaultError> {
        let (text, found) = match self {
            KeySource::Variable(text) => (text.clone(), true),
            KeySource::Named(path) | KeySource::Beside(path) => {
                match vault_dir::read_private(path, MAX_KEY_FILE)? {
                    Some(text) => (text, true),
                    None => (Zeroizing::default(), false),
                }
            }
        };
        match (self, found) {
            (KeySource::Beside(_), false) => Ok(None),
            (KeySource::Named(path), false) => Err(VaultError::NoKeyFile { path: path.clone() }),
            _ => Key::parse(&text).map(Some).ok_or_else(|| VaultError::NotAKey { from: self.to_string() }),
        }
    }
}

impl fmt::Display for KeySource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KeySource::Variable(_) => f.write_str("the variable BELLJAR_VAULT_KEY"),
            KeySource::Named(path) | KeySource::Beside(path) => write!(f, "{}", path.display()),
        }
    }
}

/// The key's file, if it is outside of the vault's folder: no sandbox may be given it either.
pub fn named_key_file() -> Option<PathBuf> {
    std::env::var_os(FILE_VARIABLE).map(PathBuf::from)
}

/// 256 bits that encrypt values. Its memory is cleared on drop.
pub struct Key(Zeroizing<[u8; LENGTH]>);

impl Key {
    /// Makes a random key.
    pub fn random() -> Result<Key, VaultError> {
        let mut bytes = Zeroizing::new([0; LENGTH]);
        rand::fill(&mut bytes[..]).map_err(|_| VaultError::NoRandomness)?;
        Ok(Key(bytes))
    }

    /// 64 hexadecimal digits, or 32 bytes as base64; surrounding white space is ignored.
    pub fn parse(text: &[u8]) -> Option<Key> {
        let text = text.trim_ascii();
        let decoded = match text.len() {
            64 => HEXLOWER_PERMISSIVE.decode(text),
            44 => BASE64.decode(text),
            43 => BASE64_NOPAD.decode(text),
            _ => return None,
        };
        let decoded = Zeroizing::new(decoded.ok()?);
        Some(Key(Zeroizing::new(decoded.as_slice().try_into().ok()?)))
    }

    /// As text for a file.
    pub(super) fn text(&self) -> Zeroizing<String> {
        let mut text = Zeroizing::new(String::with_capacity(2 * LENGTH + 1));
        HEXLOWER.encode_append(&self.0[..], &mut text);
        text.push('\n');
        text
    }

    /// A fingerprint that reveals nothing about it, so that a wrong key can be distinguished from a changed value.
    pub(super) fn id(&self) -> String {
        let key = hmac::Key::new(hmac::HMAC_SHA256, &self.0[..]);
        HEXLOWER.encode(&hmac::sign(&key, b"belljar vault: the name of this key").as_ref()[..8])
    }

    /// Encrypts a value: it opens only with this key, under this name, as set at this time.
    pub(super) fn seal(&self, name: &SecretName, set: u64, value: &Secret) -> Result<Entry, VaultError> {
        // With room for the tag, so that growing leaves no copy of the value in memory.
        let mut sealed = Zeroizing::new(Vec::with_capacity(value.len() + TAG));
        sealed.extend_from_slice(value.reveal());
        let nonce = self.cipher().and_then(|cipher| {
            cipher.seal_in_place_append_tag(Aad::from(meant(name, set)), &mut *sealed).ok()
        });
        let nonce = nonce.ok_or(VaultError::NoRandomness)?;
        Ok(Entry { set, nonce: *nonce.as_ref(), sealed: std::mem::take(&mut *sealed) })
    }

    /// Decrypts a value from [`Key::seal`]; nothing else.
    pub fn open(&self, name: &SecretName, entry: &Entry) -> Option<Secret> {
        let mut value = Zeroizing::new(entry.sealed.clone());
        let nonce = Nonce::assume_unique_for_key(entry.nonce);
        let length =
            self.cipher()?.open_in_place(nonce, Aad::from(meant(name, entry.set)), &mut value).ok()?.len();
        value.truncate(length);
        Some(Secret::new(std::mem::take(&mut *value)))
    }

    fn cipher(&self) -> Option<RandomizedNonceKey> {
        RandomizedNonceKey::new(&AES_256_GCM, &self.0[..]).ok()
    }
}

/// The authenticated data of a value. A name has no zero byte.
fn meant(name: &SecretName, set: u64) -> Vec<u8> {
    format!("belljar vault {FORMAT}\0{name}\0{set}").into_bytes()
}

const LENGTH: usize = 32;
/// 96 bits, as NIST SP 800-38D recommends; a random one for each value stays unique for billions of them.
pub(super) const NONCE: usize = 12;
pub(super) const TAG: usize = 16;
const MAX_KEY_FILE: usize = 4096;
const KEY_VARIABLE: &str = "BELLJAR_VAULT_KEY";
const FILE_VARIABLE: &str = "BELLJAR_VAULT_KEY_FILE";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_written_in_one_of_two_ways() {
        let key = Key::random().unwrap();
        let same = |text: &[u8]| Key::parse(text).is_some_and(|read| read.id() == key.id());
        assert!(same(key.text().as_bytes()));
        assert!(same(key.text().to_uppercase().as_bytes()));
        assert!(same(BASE64.encode(&key.0[..]).as_bytes()));
        assert!(same(format!("  {}\r\n", BASE64_NOPAD.encode(&key.0[..])).as_bytes()));
        for text in ["", "secret", &"0".repeat(63), &"0".repeat(65), &"g".repeat(64), &"!".repeat(44)] {
            assert!(Key::parse(text.as_bytes()).is_none(), "{text}");
        }
    }

    #[test]
    fn a_keys_name_does_not_hold_the_key() {
        let key = Key::random().unwrap();
        assert_eq!(key.id().len(), 16);
        assert!(!key.text().contains(&key.id()));
        assert_ne!(key.id(), Key::random().unwrap().id());
    }
}
