//! Messages in a stream: a flag byte, a length, and JSON.

use super::RpcError;
use serde::Serialize;

/// One message of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// It is the last one.
    pub is_end: bool,
    pub payload: Vec<u8>,
}

/// What cannot be a stream of messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FrameError {
    /// A message is compressed, and none of the ways to do that was offered.
    Compressed,
    /// A message is longer than [`MAX_FRAME_BYTES`].
    TooLong,
}

impl FrameError {
    pub(crate) fn message(self) -> String {
        match self {
            FrameError::Compressed => "a message is compressed, and no compression was offered".into(),
            FrameError::TooLong => format!("a message is longer than {MAX_FRAME_BYTES} bytes"),
        }
    }
}

/// Collects bytes until they are messages.
#[derive(Debug, Default)]
pub struct FrameReader {
    bytes: Vec<u8>,
    /// How much of it was taken.
    taken: usize,
}

impl FrameReader {
    /// More bytes came.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.drain(..std::mem::take(&mut self.taken));
        self.bytes.extend_from_slice(bytes);
    }

    /// The next message, if all of it is there.
    pub fn next_frame(&mut self) -> Result<Option<Frame>, FrameError> {
        let rest = &self.bytes[self.taken..];
        let Some((head, behind)) = rest.split_at_checked(HEAD) else { return Ok(None) };
        let flags = head[0];
        if flags & COMPRESSED != 0 {
            return Err(FrameError::Compressed);
        }
        let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize;
        if length > MAX_FRAME_BYTES {
            return Err(FrameError::TooLong);
        }
        let Some(payload) = behind.get(..length) else { return Ok(None) };
        let frame = Frame { is_end: flags & END != 0, payload: payload.to_vec() };
        self.taken += HEAD + length;
        Ok(Some(frame))
    }

    /// Whether all that came was taken: a stream that ends elsewhere was cut.
    pub fn is_empty(&self) -> bool {
        self.taken == self.bytes.len()
    }
}

/// A message as bytes.
pub(crate) fn message(value: &impl Serialize) -> Vec<u8> {
    framed(0, value)
}

/// The last frame of a stream, with the error that ended it if one did.
pub(crate) fn end(error: Option<&RpcError>) -> Vec<u8> {
    match error {
        None => framed(END, &serde_json::json!({})),
        Some(error) => framed(END, &serde_json::json!({ "error": error.body() })),
    }
}

fn framed(flags: u8, value: &impl Serialize) -> Vec<u8> {
    let payload = serde_json::to_vec(value).expect("plain data can be written as JSON");
    let length = u32::try_from(payload.len()).expect("what we say is shorter than 4 GiB");
    let mut bytes = Vec::with_capacity(HEAD + payload.len());
    bytes.push(flags);
    bytes.extend_from_slice(&length.to_be_bytes());
    bytes.extend_from_slice(&payload);
    bytes
}

const COMPRESSED: u8 = 1;
const END: u8 = 2;
const HEAD: usize = 5;
/// Longer than any message of a client: what goes to a command's standard input comes in pieces.
pub(crate) const MAX_FRAME_BYTES: usize = 16 << 20;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connect::Code;
    use proptest::prelude::*;

    fn all(reader: &mut FrameReader) -> Vec<Frame> {
        std::iter::from_fn(|| reader.next_frame().unwrap()).collect()
    }

    #[test]
    fn messages_are_found_wherever_the_bytes_were_cut() {
        let error = RpcError::new(Code::NotFound, "no such process");
        let stream =
            [message(&serde_json::json!({"a": 1})), message(&serde_json::json!({})), end(Some(&error))]
                .concat();
        let expected = [
            Frame { is_end: false, payload: b"{\"a\":1}".to_vec() },
            Frame { is_end: false, payload: b"{}".to_vec() },
            Frame {
                is_end: true,
                payload: br#"{"error":{"code":"not_found","message":"no such process"}}"#.to_vec(),
            },
        ];
        for size in 1..=stream.len() {
            let mut reader = FrameReader::default();
            let mut found = Vec::new();
            for piece in stream.chunks(size) {
                reader.push(piece);
                found.extend(all(&mut reader));
            }
            assert_eq!(found, expected, "pieces of {size}");
            assert!(reader.is_empty());
        }
        assert_eq!(end(None), [2, 0, 0, 0, 2, b'{', b'}']);
    }

    #[test]
    fn what_is_no_message_is_refused_before_it_is_kept() {
        let mut reader = FrameReader::default();
        reader.push(&[0, 0xff, 0xff, 0xff, 0xff]);
        assert_eq!(reader.next_frame(), Err(FrameError::TooLong));
        let mut reader = FrameReader::default();
        reader.push(&[1, 0, 0, 0, 0]);
        assert_eq!(reader.next_frame(), Err(FrameError::Compressed));
        let mut reader = FrameReader::default();
        reader.push(&[0, 0, 0, 0, 2, b'{']);
        assert_eq!((reader.next_frame(), reader.is_empty()), (Ok(None), false), "a stream that was cut");
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..64), 0..8)) {
            let mut reader = FrameReader::default();
            for piece in pieces {
                reader.push(&piece);
                while let Ok(Some(frame)) = reader.next_frame() {
                    prop_assert!(frame.payload.len() <= MAX_FRAME_BYTES);
                }
            }
        }
    }
}
