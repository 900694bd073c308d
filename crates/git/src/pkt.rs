//! Packet lines: four hex digits of length, which includes those four, then the data (gitprotocol-common(5)).

use thiserror::Error;

/// One packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Packet {
    Data(Vec<u8>),
    /// `0000`: the end of a list.
    Flush,
    /// `0001`: the end of a section (protocol 2).
    Delim,
    /// `0002`: the end of a response (protocol 2).
    ResponseEnd,
}

/// The meaning of four length digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Announced {
    /// This many bytes follow.
    Data(usize),
    Flush,
    Delim,
    ResponseEnd,
}

/// Not packets.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum PktError {
    #[error("`{0}` is not the length of a packet")]
    BadLength(String),
    #[error("more than {0} bytes of packets")]
    TooMuch(usize),
    #[error("a packet ends in the middle")]
    CutOff,
}

/// Parses the length. A caller reads four bytes from a socket, asks here, and then reads as many bytes as announced.
pub fn announced(digits: [u8; 4]) -> Result<Announced, PktError> {
    let bad = || PktError::BadLength(digits.escape_ascii().to_string());
    let mut length = 0;
    for digit in digits {
        length = length * 16 + (digit as char).to_digit(16).ok_or_else(bad)? as usize;
    }
    match length {
        0 => Ok(Announced::Flush),
        1 => Ok(Announced::Delim),
        2 => Ok(Announced::ResponseEnd),
        4..=MAX_PACKET_BYTES => Ok(Announced::Data(length - 4)),
        _ => Err(bad()),
    }
}

/// Writes data as one packet. Longer data than a packet holds is the caller's mistake: see [`MAX_DATA_BYTES`].
pub fn data(data: &[u8]) -> Vec<u8> {
    let mut packet = Vec::with_capacity(data.len() + 4);
    append(&mut packet, data);
    packet
}

/// The same, appended.
pub fn append(to: &mut Vec<u8>, data: &[u8]) {
    assert!(data.len() <= MAX_DATA_BYTES, "a packet holds {MAX_DATA_BYTES} bytes");
    to.extend_from_slice(format!("{:04x}", data.len() + 4).as_bytes());
    to.extend_from_slice(data);
}

/// Extracts packets from bytes as they arrive, and remembers where they end: the bytes after the last packet (a pack) are returned
/// unchanged.
#[derive(Debug)]
pub struct Reader {
    bytes: Vec<u8>,
    taken: usize,
    left: usize,
    limit: usize,
}

impl Reader {
    /// Reads at most this many bytes of packets.
    pub fn new(limit: usize) -> Reader {
        Reader { bytes: Vec::new(), taken: 0, left: limit, limit }
    }

    /// More bytes.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.bytes.drain(..self.taken);
        self.taken = 0;
        self.bytes.extend_from_slice(bytes);
    }

    /// The next packet; `None` until more bytes arrive.
    pub fn take(&mut self) -> Result<Option<Packet>, PktError> {
        let bytes = &self.bytes[self.taken..];
        let Some(digits) = bytes.first_chunk::<4>() else { return Ok(None) };
        let announced = announced(*digits)?;
        let length = match announced {
            Announced::Data(length) => length + 4,
            Announced::Flush | Announced::Delim | Announced::ResponseEnd => 4,
        };
        if length > self.left {
            return Err(PktError::TooMuch(self.limit));
        }
        let Some(packet) = bytes.get(4..length) else { return Ok(None) };
        let packet = match announced {
            Announced::Data(_) => Packet::Data(packet.to_vec()),
            Announced::Flush => Packet::Flush,
            Announced::Delim => Packet::Delim,
            Announced::ResponseEnd => Packet::ResponseEnd,
        };
        self.left -= length;
        self.taken += length;
        Ok(Some(packet))
    }

    /// The bytes after the last packet that was taken.
    pub fn rest(&self) -> &[u8] {
        &self.bytes[self.taken..]
    }
}

/// All packets in these bytes, which have to be complete.
pub fn all(bytes: &[u8]) -> Result<Vec<Packet>, PktError> {
    let mut reader = Reader::new(bytes.len());
    reader.feed(bytes);
    let mut packets = Vec::new();
    while let Some(packet) = reader.take()? {
        packets.push(packet);
    }
    if reader.rest().is_empty() { Ok(packets) } else { Err(PktError::CutOff) }
}

/// The end of a list.
pub const FLUSH: &[u8] = b"0000";
/// Like git's LARGE_PACKET_MAX.
const MAX_PACKET_BYTES: usize = 65520;
/// The most data in one packet.
pub const MAX_DATA_BYTES: usize = MAX_PACKET_BYTES - 4;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn lengths() {
        for (digits, expected) in [
            (b"0000", Ok(Announced::Flush)),
            (b"0001", Ok(Announced::Delim)),
            (b"0002", Ok(Announced::ResponseEnd)),
            (b"0004", Ok(Announced::Data(0))),
            (b"0005", Ok(Announced::Data(1))),
            (b"fff0", Ok(Announced::Data(65516))),
            (b"FFF0", Ok(Announced::Data(65516))),
        ] {
            assert_eq!(announced(*digits), expected);
        }
        for digits in [b"0003", b"fff1", b"ffff", b"00g0", b"-001", b"+004", b" 004", b"0x10", b"PACK"] {
            assert!(announced(*digits).is_err(), "{}", digits.escape_ascii());
        }
    }

    #[test]
    fn what_is_behind_the_packets_stays() {
        let mut reader = Reader::new(100);
        reader.feed(b"0005a0000PACK");
        assert_eq!(reader.take(), Ok(Some(Packet::Data(b"a".to_vec()))));
        assert_eq!(reader.take(), Ok(Some(Packet::Flush)));
        assert_eq!(reader.rest(), b"PACK");
        reader.feed(b"more");
        assert_eq!(reader.rest(), b"PACKmore");
    }

    #[test]
    fn there_is_an_end_to_what_is_read() {
        let mut reader = Reader::new(9);
        reader.feed(b"0005a0005a");
        assert!(matches!(reader.take(), Ok(Some(_))));
        assert_eq!(reader.take(), Err(PktError::TooMuch(9)));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes: Vec<u8>, cut in 0usize..64) {
            let whole = all(&bytes);
            let mut reader = Reader::new(bytes.len());
            let (first, second) = bytes.split_at(cut.min(bytes.len()));
            let mut packets = Vec::new();
            let mut failed = None;
            for part in [first, second] {
                reader.feed(part);
                loop {
                    match reader.take() {
                        Ok(Some(packet)) => packets.push(packet),
                        Ok(None) => break,
                        Err(error) => { failed = Some(error); break }
                    }
                }
            }
            if failed.is_none() && !reader.rest().is_empty() {
                failed = Some(PktError::CutOff);
            }
            prop_assert_eq!(whole, failed.map_or(Ok(packets), Err));
        }

        #[test]
        fn what_is_written_is_read(lines: Vec<Vec<u8>>) {
            let mut bytes = Vec::new();
            for line in &lines {
                append(&mut bytes, line);
            }
            let read = all(&bytes).unwrap();
            prop_assert_eq!(read, lines.into_iter().map(Packet::Data).collect::<Vec<_>>());
        }
    }
}
