//! What both sides know of the streams.

use super::frame::{DATA_AT_ONCE, Frame, Kind, MAX_HEADER_BYTES, Reader, encode};
use std::collections::HashMap;
use std::fmt;

/// A stream's number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StreamId(pub(super) u32);

/// Which of the two we are: numbers of streams that the host opens are even, those of the guest's are odd.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    Host,
    Guest,
}

/// What the other side did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// It opened a stream, for this.
    Opened { stream: StreamId, header: Vec<u8> },
    /// It sent bytes. The caller acknowledges those it has taken with [`Mux::taken`].
    Data { stream: StreamId, bytes: Vec<u8> },
    /// It has said all.
    Ended { stream: StreamId },
    /// It broke off; bytes that the caller has not taken yet do not matter any more.
    Cut { stream: StreamId },
    /// It does not read any more; our direction is over.
    Stopped { stream: StreamId },
}

/// What no honest side sends. The connection is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Violation {
    /// A frame of an unknown kind.
    Kind(u8),
    /// A length that its kind cannot have.
    Length(usize),
    /// A frame for a stream that never was, or a number that is not its to give.
    Stream(StreamId),
    /// More bytes than it had credits for.
    Overrun(StreamId),
    /// More credits than a window has.
    Credit(StreamId),
    /// Bytes, or an end, behind the end.
    BehindEnd(StreamId),
}

/// One side of a connection.
#[derive(Debug)]
pub struct Mux {
    side: Side,
    reader: Reader,
    outgoing: Vec<u8>,
    streams: HashMap<StreamId, Stream>,
    /// The number of our next stream.
    next: u32,
    /// The other side's next stream has this number at least.
    their_next: u32,
    /// How many of the streams it opened.
    theirs: usize,
}

#[derive(Debug)]
struct Stream {
    /// So much may we still send; `None` when our direction is over.
    credit: Option<u32>,
    /// So much may the other side still send; `None` when its direction is over.
    granted: Option<u32>,
    /// Bytes that were taken and not granted again yet.
    taken: u32,
    /// We told it to stop: what still comes is discarded.
    stopped: bool,
}

impl Mux {
    /// A connection without streams.
    pub fn new(side: Side) -> Mux {
        let (ours, theirs) = match side {
            Side::Host => (0, 1),
            Side::Guest => (1, 0),
        };
        Mux {
            side,
            reader: Reader::default(),
            outgoing: Vec::new(),
            streams: HashMap::new(),
            next: ours,
            their_next: theirs,
            theirs: 0,
        }
    }

    /// Opens a stream for what the header says; `None` where there are too many, or the header is too long.
    pub fn open(&mut self, header: &[u8]) -> Option<StreamId> {
        if header.len() > MAX_HEADER_BYTES || self.opened() >= MAX_STREAMS {
            return None;
        }
        let stream = StreamId(self.next);
        self.next = self.next.checked_add(2)?;
        self.streams.insert(stream, Stream::new());
        encode(Kind::Open, stream, header, &mut self.outgoing);
        Some(stream)
    }

    /// Takes bytes as they were read, and gives what they say.
    pub fn receive(&mut self, bytes: &[u8]) -> Result<Vec<Event>, Violation> {
        self.reader.push(bytes);
        let mut events = Vec::new();
        while let Some(frame) = self.reader.next()? {
            events.extend(self.understand(frame)?);
        }
        Ok(events)
    }

    fn understand(&mut self, frame: Frame) -> Result<Option<Event>, Violation> {
        let Frame { kind, stream, payload } = frame;
        if kind == Kind::Open {
            return self.accept(stream, payload);
        }
        let was_there = if self.is_ours(stream) { stream.0 < self.next } else { stream.0 < self.their_next };
        if !was_there {
            return Err(Violation::Stream(stream));
        }
        // What was in flight when the stream ended is discarded.
        let Some(state) = self.streams.get_mut(&stream) else { return Ok(None) };
        let event = match kind {
            Kind::Open => None,
            Kind::Data => {
                let granted = state.granted.as_mut().ok_or(Violation::BehindEnd(stream))?;
                let length = payload.len() as u32;
                *granted = granted.checked_sub(length).ok_or(Violation::Overrun(stream))?;
                (!state.stopped).then_some(Event::Data { stream, bytes: payload })
            }
            Kind::Credit => {
                let more = payload.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes));
                if let Some(credit) = &mut state.credit {
                    let sum = credit.checked_add(more).filter(|sum| *sum <= WINDOW);
                    *credit = sum.ok_or(Violation::Credit(stream))?;
                }
                None
            }
            Kind::End | Kind::Cut => {
                state.granted.take().ok_or(Violation::BehindEnd(stream))?;
                let event = if kind == Kind::End { Event::Ended { stream } } else { Event::Cut { stream } };
                (!state.stopped).then_some(event)
            }
            Kind::Stop => state.credit.take().map(|_| {
                encode(Kind::Cut, stream, &[], &mut self.outgoing);
                Event::Stopped { stream }
            }),
        };
        self.forget_if_over(stream);
        Ok(event)
    }

    fn accept(&mut self, stream: StreamId, header: Vec<u8>) -> Result<Option<Event>, Violation> {
        if self.is_ours(stream) || stream.0 < self.their_next {
            return Err(Violation::Stream(stream));
        }
        self.their_next = stream.0.checked_add(2).ok_or(Violation::Stream(stream))?;
        if self.theirs >= MAX_STREAMS {
            // The stream is not kept: what else comes for this number is discarded.
            encode(Kind::Cut, stream, &[], &mut self.outgoing);
            encode(Kind::Stop, stream, &[], &mut self.outgoing);
            return Ok(None);
        }
        self.theirs += 1;
        self.streams.insert(stream, Stream::new());
        Ok(Some(Event::Opened { stream, header }))
    }

    /// How many streams are open that we opened.
    pub fn opened(&self) -> usize {
        self.streams.len() - self.theirs
    }

    /// How much may be sent on a stream now; `None` when our direction is over.
    pub fn credit(&self, stream: StreamId) -> Option<usize> {
        self.streams.get(&stream)?.credit.map(|credit| credit as usize)
    }

    /// Sends bytes, at most as many as there are credits for; gives how many.
    pub fn send(&mut self, stream: StreamId, bytes: &[u8]) -> usize {
        let Some(credit) = self.streams.get_mut(&stream).and_then(|state| state.credit.as_mut()) else {
            return 0;
        };
        let length = bytes.len().min(*credit as usize);
        *credit -= length as u32;
        for piece in bytes[..length].chunks(DATA_AT_ONCE) {
            encode(Kind::Data, stream, piece, &mut self.outgoing);
        }
        length
    }

    /// The caller took so many bytes of a stream: the other side may send as many again.
    pub fn taken(&mut self, stream: StreamId, bytes: usize) {
        let Some(state) = self.streams.get_mut(&stream) else { return };
        let Some(granted) = &mut state.granted else { return };
        state.taken = state.taken.saturating_add(bytes as u32).min(WINDOW - *granted);
        // Not for every byte: a frame of credit costs as much as one of data.
        if state.taken >= WINDOW / 4 {
            let more = std::mem::take(&mut state.taken);
            *granted += more;
            encode(Kind::Credit, stream, &more.to_le_bytes(), &mut self.outgoing);
        }
    }

    /// Says that all was said.
    pub fn end(&mut self, stream: StreamId) {
        self.close(stream, Kind::End);
    }

    /// Breaks our direction off.
    pub fn cut(&mut self, stream: StreamId) {
        self.close(stream, Kind::Cut);
    }

    fn close(&mut self, stream: StreamId, kind: Kind) {
        if self.streams.get_mut(&stream).and_then(|state| state.credit.take()).is_some() {
            encode(kind, stream, &[], &mut self.outgoing);
            self.forget_if_over(stream);
        }
    }

    /// Says that nothing more is wanted. What still comes is dropped here.
    pub fn stop(&mut self, stream: StreamId) {
        let Some(state) = self.streams.get_mut(&stream) else { return };
        if state.granted.is_some() && !state.stopped {
            state.stopped = true;
            encode(Kind::Stop, stream, &[], &mut self.outgoing);
        }
    }

    /// What has to be sent. The caller takes from the front what it could write.
    pub fn outgoing(&mut self) -> &mut Vec<u8> {
        &mut self.outgoing
    }

    fn is_ours(&self, stream: StreamId) -> bool {
        stream.0.is_multiple_of(2) == (self.side == Side::Host)
    }

    fn forget_if_over(&mut self, stream: StreamId) {
        let over = self.streams.get(&stream).is_some_and(|s| s.credit.is_none() && s.granted.is_none());
        if over {
            self.streams.remove(&stream);
            if !self.is_ours(stream) {
                self.theirs -= 1;
            }
        }
    }
}

impl Stream {
    fn new() -> Stream {
        Stream { credit: Some(WINDOW), granted: Some(WINDOW), taken: 0, stopped: false }
    }
}

impl fmt::Display for StreamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Violation::Kind(kind) => write!(f, "a frame of the unknown kind {kind}"),
            Violation::Length(length) => write!(f, "a frame of {length} bytes"),
            Violation::Stream(stream) => write!(f, "a frame for the stream {stream}, which cannot be"),
            Violation::Overrun(stream) => write!(f, "more bytes on stream {stream} than were granted"),
            Violation::Credit(stream) => write!(f, "more credits for stream {stream} than there are"),
            Violation::BehindEnd(stream) => write!(f, "something behind the end of stream {stream}"),
        }
    }
}

impl std::error::Error for Violation {}

/// What a direction of a stream keeps waiting at most, in bytes: as much as an ordinary socket does.
pub const WINDOW: u32 = 128 * 1024;
/// How many streams one side can have open. With the window it bounds what the other side can make us hold. Somewhat more
/// than the default limit of a sandbox's connections: so the gateway refuses the next one, and records it.
pub const MAX_STREAMS: usize = 1024 + 64;
