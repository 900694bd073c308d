//! The content of the vault's file: for each name, an encrypted value. Another user may have written it; it is checked before use,
//! and only the key can decrypt a value.

use super::key::{NONCE, TAG};
use belljar_spec::secret::SecretName;
use data_encoding::{HEXLOWER, HEXLOWER_PERMISSIVE};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The parsed vault file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Contents {
    /// The key that encrypted the values; `None` in an empty vault.
    pub(super) key: Option<String>,
    pub(super) entries: BTreeMap<SecretName, Entry>,
}

/// An encrypted value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// When it was set, in seconds since 1970.
    pub(super) set: u64,
    pub(super) nonce: [u8; NONCE],
    /// The encrypted value, followed by the authentication tag.
    pub(super) sealed: Vec<u8>,
}

/// What is wrong with the file. Its content is not repeated: it may be a value that the user put there by hand.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Damage {
    #[error("it is not whole, or was changed, in line {line}")]
    NotOurs { line: usize },
    #[error("it has the format {0}, and this belljar knows {FORMAT}")]
    Newer(u64),
    #[error("its secret number {0} is not valid")]
    Entry(usize),
    #[error("its secret number {0} has the name of an earlier one")]
    Twice(usize),
    #[error("it is longer than {} MiB", MAX_FILE >> 20)]
    TooLong,
}

impl Contents {
    /// Parses a file.
    pub fn read(bytes: &[u8]) -> Result<Contents, Damage> {
        if bytes.len() > MAX_FILE {
            return Err(Damage::TooLong);
        }
        let not_ours = |error: serde_json::Error| Damage::NotOurs { line: error.line() };
        // The format first: a later one may have other fields.
        let Versioned { format } = serde_json::from_slice(bytes).map_err(not_ours)?;
        if format != FORMAT {
            return Err(Damage::Newer(format));
        }
        let file: File = serde_json::from_slice(bytes).map_err(not_ours)?;
        let mut contents = Contents { key: file.key, entries: BTreeMap::new() };
        for (number, written) in (1..).zip(file.secrets) {
            let (name, entry) = written.parsed().ok_or(Damage::Entry(number))?;
            if contents.entries.insert(name, entry).is_some() {
                return Err(Damage::Twice(number));
            }
        }
        Ok(contents)
    }

    /// Serializes the file.
    pub fn written(&self) -> Vec<u8> {
        let secrets = self.entries.iter().map(|(name, entry)| Written {
            name: name.to_string(),
            set: entry.set,
            nonce: HEXLOWER.encode(&entry.nonce),
            sealed: HEXLOWER.encode(&entry.sealed),
        });
        let file = File { format: FORMAT, key: self.key.clone(), secrets: secrets.collect() };
        let mut bytes = serde_json::to_vec_pretty(&file).expect("text and numbers can always be JSON");
        bytes.push(b'\n');
        bytes
    }

    /// The names of the secrets.
    pub fn entries(&self) -> impl Iterator<Item = (&SecretName, &Entry)> {
        self.entries.iter()
    }
}

/// The field that every format has.
#[derive(Deserialize)]
struct Versioned {
    format: u64,
}

/// The file's fields. An unknown field would be lost at the next change, so there may be none.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    format: u64,
    key: Option<String>,
    secrets: Vec<Written>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    name: String,
    set: u64,
    nonce: String,
    sealed: String,
}

impl Written {
    fn parsed(&self) -> Option<(SecretName, Entry)> {
        let bytes = |text: &str| HEXLOWER_PERMISSIVE.decode(text.as_bytes()).ok();
        let nonce = bytes(&self.nonce)?.try_into().ok()?;
        let sealed = bytes(&self.sealed).filter(|sealed| sealed.len() > TAG)?;
        Some((self.name.parse().ok()?, Entry { set: self.set, nonce, sealed }))
    }
}

/// A part of the authenticated data: a value of this format opens in no other.
pub(super) const FORMAT: u64 = 1;
/// Hundreds of the longest values.
pub(super) const MAX_FILE: usize = 16 << 20;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Key;
    use crate::Secret;
    use proptest::prelude::*;

    fn name(text: &str) -> SecretName {
        text.parse().unwrap()
    }

    fn kept(values: &[(&str, &str)]) -> (Contents, Key) {
        let key = Key::random().unwrap();
        let seal = |(called, value): &(&str, &str)| {
            let called = name(called);
            let entry = key.seal(&called, 7, &Secret::new(value.as_bytes().to_vec())).unwrap();
            (called, entry)
        };
        (Contents { key: Some(key.id()), entries: values.iter().map(seal).collect() }, key)
    }

    #[test]
    fn what_is_written_is_read_again() {
        let (contents, _) = kept(&[("a", "1"), ("b.c", "two")]);
        assert_eq!(Contents::read(&contents.written()), Ok(contents));
        assert_eq!(Contents::read(&Contents::default().written()), Ok(Contents::default()));
    }

    #[test]
    fn what_makes_no_sense_is_said_without_repeating_it() {
        let entry = |name: &str, nonce: &str, sealed: &str| {
            format!(r#"{{"name":"{name}","set":1,"nonce":"{nonce}","sealed":"{sealed}"}}"#)
        };
        let file = |secrets: &str| format!(r#"{{"format":1,"key":"x","secrets":[{secrets}]}}"#);
        let (nonce, sealed) = ("0".repeat(24), "0".repeat(34));
        let good = entry("a", &nonce, &sealed);
        assert!(Contents::read(file(&good).as_bytes()).is_ok());
        let cases = [
            (String::new(), Damage::NotOurs { line: 1 }),
            ("\n\n{".into(), Damage::NotOurs { line: 3 }),
            (r#"{"format":2,"vaults":{}}"#.into(), Damage::Newer(2)),
            (r#"{"format":"hunter2"}"#.into(), Damage::NotOurs { line: 1 }),
            (r#"{"format":1,"key":null,"secrets":[],"more":"hunter2"}"#.into(), Damage::NotOurs { line: 1 }),
            (file(&format!("{good},{good}")), Damage::Twice(2)),
            (file(&entry("hunter2 ", &nonce, &sealed)), Damage::Entry(1)),
            (file(&entry("a", "hunter2", &sealed)), Damage::Entry(1)),
            (file(&entry("a", &nonce[2..], &sealed)), Damage::Entry(1)),
            (file(&entry("a", &nonce, "hunter2")), Damage::Entry(1)),
            (file(&entry("a", &nonce, &sealed[2..])), Damage::Entry(1)),
        ];
        for (text, damage) in cases {
            assert_eq!(Contents::read(text.as_bytes()), Err(damage.clone()), "{text}");
            assert!(!damage.to_string().contains("hunter2"));
        }
        assert_eq!(Contents::read(&vec![b' '; MAX_FILE + 1]), Err(Damage::TooLong));
    }

    #[test]
    fn a_value_opens_only_as_what_it_was_sealed() {
        let (mut contents, key) = kept(&[("a", "value of a"), ("b", "value of b")]);
        let (a, b) = (name("a"), name("b"));
        assert!(key.open(&a, &contents.entries[&a]).is_some_and(|value| value.reveal() == b"value of a"));
        assert!(key.open(&b, &contents.entries[&a]).is_none(), "under another name");
        assert!(Key::random().unwrap().open(&a, &contents.entries[&a]).is_none(), "with another key");
        contents.entries.get_mut(&a).unwrap().set += 1;
        assert!(key.open(&a, &contents.entries[&a]).is_none(), "as if set at another time");
    }

    #[test]
    fn the_same_value_is_never_sealed_the_same_way() {
        let key = Key::random().unwrap();
        let seal = || key.seal(&name("a"), 7, &Secret::new(b"value".to_vec())).unwrap();
        let (one, other) = (seal(), seal());
        assert_ne!(one.nonce, other.nonce);
        assert_ne!(one.sealed, other.sealed);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_a_value(bytes in proptest::collection::vec(any::<u8>(), 0..512)) {
            nothing_opens(&bytes);
        }

        #[test]
        fn any_entry_opens_nothing(names in "[a-c]{1,2}", set: u64, nonce in "[0-9a-f]{24}", sealed in "([0-9a-f]{2}){0,64}") {
            nothing_opens(format!(
                r#"{{"format":1,"key":null,"secrets":[{{"name":"{names}","set":{set},"nonce":"{nonce}","sealed":"{sealed}"}}]}}"#
            ).as_bytes());
        }

        /// With any one byte changed, or truncated anywhere: the value that was set, or none.
        #[test]
        fn a_changed_file_gives_no_other_value(at: prop::sample::Index, byte: u8, cut: bool) {
            let (contents, key) = kept(&[("a", "value of a"), ("b", "value of b")]);
            let mut bytes = contents.written();
            let at = at.index(bytes.len());
            if cut { bytes.truncate(at) } else { bytes[at] = byte }
            let Ok(read) = Contents::read(&bytes) else { return Ok(()) };
            for (called, entry) in read.entries() {
                if let Some(value) = key.open(called, entry) {
                    let as_set = format!("value of {called}");
                    prop_assert!(value.reveal() == as_set.as_bytes());
                }
            }
        }
    }

    fn nothing_opens(bytes: &[u8]) {
        let Ok(contents) = Contents::read(bytes) else { return };
        let key = Key::random().unwrap();
        assert!(contents.entries().all(|(name, entry)| key.open(name, entry).is_none()));
        assert_eq!(Contents::read(&contents.written()), Ok(contents));
    }
}
