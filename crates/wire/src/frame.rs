//! Frames: a length, a tag and a payload. The cutting of a byte stream into frames is pure: callers push the
//! bytes they read and take the frames that are complete.

use std::fmt;

/// What a frame's payload is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tag {
    /// One serialized message.
    Message,
    /// Bytes for a command's standard input.
    Stdin,
    /// Bytes from a command's standard output, or from its terminal.
    Stdout,
    /// Bytes from a command's standard error.
    Stderr,
    /// A piece of a file.
    Data,
}

/// One whole frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// What the payload is.
    pub tag: Tag,
    /// The bytes.
    pub payload: Vec<u8>,
}

/// Bytes that are not frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FrameError {
    /// A length of zero, or beyond [`MAX_PAYLOAD`].
    Length(u32),
    /// A tag that neither side sends.
    Tag(u8),
}

/// Collects bytes and gives back frames.
#[derive(Debug, Default)]
pub struct FrameReader {
    buffer: Vec<u8>,
    consumed: usize,
}

impl FrameReader {
    /// Adds bytes as they were read.
    pub fn push(&mut self, bytes: &[u8]) {
        if self.consumed > 0 {
            self.buffer.drain(..self.consumed);
            self.consumed = 0;
        }
        self.buffer.extend_from_slice(bytes);
    }

    /// The next frame, if all of it has arrived.
    pub fn next_frame(&mut self) -> Result<Option<Frame>, FrameError> {
        let rest = &self.buffer[self.consumed..];
        let Some((header, body)) = rest.split_at_checked(HEADER) else { return Ok(None) };
        let (payload_len, tag) = parse_header(header)?;
        let Some(payload) = body.get(..payload_len) else { return Ok(None) };
        let frame = Frame { tag, payload: payload.to_vec() };
        self.consumed += HEADER + payload_len;
        Ok(Some(frame))
    }

    /// Whether bytes of an unfinished frame are waiting: an end of stream here is a torn frame.
    pub fn is_mid_frame(&self) -> bool {
        self.consumed < self.buffer.len()
    }
}

/// Appends one frame to `out`. An empty payload is a frame too: the end of a file is an empty piece.
pub fn encode(tag: Tag, payload: &[u8], out: &mut Vec<u8>) {
    debug_assert!(payload.len() <= MAX_PAYLOAD);
    out.extend_from_slice(&(payload.len() as u32 + 1).to_le_bytes());
    out.push(tag as u8);
    out.extend_from_slice(payload);
}

fn parse_header(header: &[u8]) -> Result<(usize, Tag), FrameError> {
    let [a, b, c, d, tag] = *header else { return Err(FrameError::Length(0)) };
    let length = u32::from_le_bytes([a, b, c, d]);
    if length == 0 || length as usize > MAX_PAYLOAD + 1 {
        return Err(FrameError::Length(length));
    }
    let tag = [Tag::Message, Tag::Stdin, Tag::Stdout, Tag::Stderr, Tag::Data]
        .into_iter()
        .find(|known| *known as u8 == tag)
        .ok_or(FrameError::Tag(tag))?;
    Ok((length as usize - 1, tag))
}

impl fmt::Display for FrameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FrameError::Length(length) => write!(f, "a frame of {length} bytes"),
            FrameError::Tag(tag) => write!(f, "a frame with the unknown tag {tag}"),
        }
    }
}

impl std::error::Error for FrameError {}

/// Length (little endian, counts the tag) and tag.
const HEADER: usize = 5;

/// The longest payload: room for the longest argument list the kernel takes, and a bound on what one side can
/// make the other hold.
pub const MAX_PAYLOAD: usize = 4 * 1024 * 1024;

/// How much of a stream or file goes into one frame.
pub const CHUNK: usize = 64 * 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn golden_bytes_of_a_frame() {
        let mut out = Vec::new();
        encode(Tag::Stdout, b"hi", &mut out);
        assert_eq!(out, [3, 0, 0, 0, 2, b'h', b'i']);
    }

    #[test]
    fn an_empty_payload_is_a_frame() {
        let mut out = Vec::new();
        encode(Tag::Data, b"", &mut out);
        assert_eq!(out, [1, 0, 0, 0, 4]);
    }

    #[test]
    fn nonsense_is_refused() {
        for (bytes, error) in [
            ([0, 0, 0, 0, 0], FrameError::Length(0)),
            ([0xff, 0xff, 0xff, 0x7f, 0], FrameError::Length(0x7fff_ffff)),
            ([1, 0, 0, 0, 9], FrameError::Tag(9)),
        ] {
            let mut reader = FrameReader::default();
            reader.push(&bytes);
            assert_eq!(reader.next_frame(), Err(error));
        }
    }

    proptest! {
        #[test]
        fn frames_survive_any_fragmentation(payloads in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 1..8), cut in 1usize..17) {
            let mut bytes = Vec::new();
            for payload in &payloads {
                encode(Tag::Data, payload, &mut bytes);
            }
            let mut reader = FrameReader::default();
            let mut seen = Vec::new();
            for piece in bytes.chunks(cut) {
                reader.push(piece);
                while let Some(frame) = reader.next_frame().unwrap() {
                    seen.push(frame.payload);
                }
            }
            prop_assert_eq!(seen, payloads);
            prop_assert!(!reader.is_mid_frame());
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..4096)) {
            let mut reader = FrameReader::default();
            reader.push(&bytes);
            while let Ok(Some(_)) = reader.next_frame() {}
        }
    }
}
