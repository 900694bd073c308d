//! Frames of the connection: what for, which stream, how many bytes; then the bytes.

use super::state::{StreamId, Violation};

/// What a frame says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// A new stream; the bytes say what for.
    Open,
    /// Bytes of it.
    Data,
    /// The other side may send so many more.
    Credit,
    /// No more bytes will come.
    End,
    /// No more bytes will come, and those that the receiver has not taken yet do not matter.
    Cut,
    /// No more bytes are wanted.
    Stop,
}

/// One whole frame.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Frame {
    pub(super) kind: Kind,
    pub(super) stream: StreamId,
    pub(super) payload: Vec<u8>,
}

/// Collects bytes and gives back frames.
#[derive(Debug, Default)]
pub(super) struct Reader {
    buffer: Vec<u8>,
    consumed: usize,
}

impl Reader {
    pub(super) fn push(&mut self, bytes: &[u8]) {
        if self.consumed > 0 {
            self.buffer.drain(..self.consumed);
            self.consumed = 0;
        }
        self.buffer.extend_from_slice(bytes);
    }

    /// The next frame, if all of it has arrived. A length is judged before anything is kept for it.
    pub(super) fn next(&mut self) -> Result<Option<Frame>, Violation> {
        let rest = &self.buffer[self.consumed..];
        let Some((&[kind, a, b, c, d, low, high], rest)) = rest.split_first_chunk::<HEADER>() else {
            return Ok(None);
        };
        let kind = Kind::ALL.into_iter().find(|known| *known as u8 == kind).ok_or(Violation::Kind(kind))?;
        let length = usize::from(u16::from_le_bytes([low, high]));
        if !kind.lengths().contains(&length) {
            return Err(Violation::Length(length));
        }
        let Some(payload) = rest.get(..length) else { return Ok(None) };
        let frame =
            Frame { kind, stream: StreamId(u32::from_le_bytes([a, b, c, d])), payload: payload.to_vec() };
        self.consumed += HEADER + length;
        Ok(Some(frame))
    }
}

impl Kind {
    const ALL: [Kind; 6] = [Kind::Open, Kind::Data, Kind::Credit, Kind::End, Kind::Cut, Kind::Stop];

    fn lengths(self) -> std::ops::RangeInclusive<usize> {
        match self {
            Kind::Open => 0..=MAX_HEADER_BYTES,
            Kind::Data => 1..=DATA_AT_ONCE,
            Kind::Credit => 4..=4,
            Kind::End | Kind::Cut | Kind::Stop => 0..=0,
        }
    }
}

/// Appends one frame to `out`.
pub(super) fn encode(kind: Kind, stream: StreamId, payload: &[u8], out: &mut Vec<u8>) {
    debug_assert!(kind.lengths().contains(&payload.len()));
    out.push(kind as u8);
    out.extend_from_slice(&stream.0.to_le_bytes());
    out.extend_from_slice(&(payload.len() as u16).to_le_bytes());
    out.extend_from_slice(payload);
}

/// Kind, stream and length, little endian.
const HEADER: usize = 7;
/// What is said of a stream when it is opened: a destination, a word.
pub const MAX_HEADER_BYTES: usize = 256;
/// One frame of bytes: other streams wait no longer than it takes.
pub const DATA_AT_ONCE: usize = 32 * 1024;
