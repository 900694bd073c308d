//! The chain: each line holds the hash of the line before, so none can be changed, removed or inserted unnoticed. No I/O: lines are
//! bytes here.

use crate::time::Stamp;
use belljar_spec::SandboxId;
use serde::{Deserialize, Serialize, Serializer};
use sha2::{Digest, Sha256};
use std::borrow::Cow;
use std::fmt;
use std::io::{self, Write};
use std::str::FromStr;

/// SHA-256 of a line, without its line break.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Hash([u8; 32]);

impl Hash {
    /// The predecessor of the very first line.
    pub(crate) const ZERO: Hash = Hash([0; 32]);

    /// The hash of a line.
    pub(crate) fn of(line: &[u8]) -> Hash {
        Hash(Sha256::digest(line).into())
    }
}

/// Where a chain continues.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tip {
    /// The number of the next line, which is the count of lines so far.
    pub(crate) next: u64,
    /// The hash of the last line.
    pub(crate) head: Hash,
}

impl Tip {
    /// The next line with its line break, and the chain's new tip.
    pub(crate) fn line<E: Serialize>(&self, sandbox: SandboxId, event: &E) -> (Vec<u8>, Tip) {
        let line = Line { seq: self.next, time: Stamp::now(), sandbox, event, previous: self.head };
        let mut bytes = Vec::with_capacity(512);
        let mut json = serde_json::Serializer::with_formatter(&mut bytes, Ascii);
        line.serialize(&mut json).expect("events are plain data, and memory can be written to");
        let tip = Tip { next: self.next.saturating_add(1), head: Hash::of(&bytes) };
        bytes.push(b'\n');
        (bytes, tip)
    }
}

/// A line as it is written.
#[derive(Serialize)]
struct Line<'a, E> {
    seq: u64,
    time: Stamp,
    sandbox: SandboxId,
    event: &'a E,
    previous: Hash,
}

/// JSON in printable ASCII: every tool reads the same text and the same lines.
struct Ascii;

impl serde_json::ser::Formatter for Ascii {
    fn write_string_fragment<W: Write + ?Sized>(&mut self, writer: &mut W, text: &str) -> io::Result<()> {
        // Characters that JSON itself escapes are already escaped.
        if text.bytes().all(|byte| matches!(byte, b' '..=b'~')) {
            return writer.write_all(text.as_bytes());
        }
        for character in text.chars() {
            if matches!(character, ' '..='~') {
                writer.write_all(&[character as u8])?;
            } else {
                character
                    .encode_utf16(&mut [0; 2])
                    .iter()
                    .try_for_each(|unit| write!(writer, "\\u{unit:04x}"))?;
            }
        }
        Ok(())
    }
}

/// The chain's fields of a line that was read.
#[derive(Deserialize)]
pub(crate) struct Link<'a> {
    pub(crate) seq: u64,
    #[serde(borrow)]
    pub(crate) sandbox: Cow<'a, str>,
    previous: Cow<'a, str>,
}

impl<'a> Link<'a> {
    /// `None` if it is not a record.
    pub(crate) fn read(line: &'a [u8]) -> Option<(Link<'a>, Hash)> {
        let link: Link<'a> = serde_json::from_slice(line).ok()?;
        let previous = link.previous.parse().ok()?;
        Some((link, previous))
    }
}

/// Not a hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a hash has 64 hexadecimal digits in lower case")]
pub struct NotAHash;

impl FromStr for Hash {
    type Err = NotAHash;

    fn from_str(text: &str) -> Result<Hash, NotAHash> {
        let digit = |byte: u8| char::from(byte).to_digit(16).filter(|_| !byte.is_ascii_uppercase());
        let mut hash = [0; 32];
        if text.len() != 64 {
            return Err(NotAHash);
        }
        for (byte, pair) in hash.iter_mut().zip(text.as_bytes().chunks(2)) {
            let (high, low) = (digit(pair[0]).ok_or(NotAHash)?, digit(pair[1]).ok_or(NotAHash)?);
            *byte = u8::try_from(high * 16 + low).map_err(|_| NotAHash)?;
        }
        Ok(Hash(hash))
    }
}

impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let mut text = [0; 64];
        for (pair, byte) in text.chunks_mut(2).zip(self.0) {
            pair[0] = DIGITS[usize::from(byte >> 4)];
            pair[1] = DIGITS[usize::from(byte & 15)];
        }
        f.write_str(std::str::from_utf8(&text).expect("hexadecimal digits are text"))
    }
}

impl fmt::Debug for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for Hash {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}
