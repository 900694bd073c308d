//! What a command wrote, in the order in which it came, from any cursor on. A cursor is a number of bytes, both streams together.
//!
//! ```text
//! kept as frames:  | length, stream | bytes | length, stream | bytes | ...
//! marks:           every so often: this cursor is the frame that begins there
//! ```
//! Small logs are in memory, long ones in the shim's [`Spill`]. No I/O but that, and no task waits here.

use super::spill::{Spill, Spilled};
use belljar_api::StreamName;
use std::io;
use std::sync::Arc;

/// A command's output.
#[derive(Debug)]
pub(crate) struct Log {
    spill: Arc<Spill>,
    held: Held,
    /// How long `held` is.
    length: u64,
    cursor: u64,
    /// Where the last frame begins that may still grow.
    growing: Option<u64>,
    marks: Vec<Mark>,
    retained: [u64; 2],
    most: u64,
    truncated: bool,
}

#[derive(Debug)]
enum Held {
    Memory(Vec<u8>),
    File(Spilled),
    /// No longer kept.
    Dropped,
}

/// A frame: where it is, and the cursor before its first byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Mark {
    cursor: u64,
    at: u64,
}

/// Where a reader is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LogPosition {
    pub(crate) cursor: u64,
    /// The frame that has it, or one before that.
    frame: Mark,
}

/// Bytes of one stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) stream: StreamName,
    pub(crate) bytes: Vec<u8>,
}

impl Log {
    /// Keeps so much of each stream.
    pub(crate) fn new(spill: Arc<Spill>, most: u64) -> Log {
        Log {
            spill,
            held: Held::Memory(Vec::new()),
            length: 0,
            cursor: 0,
            growing: None,
            marks: vec![Mark { cursor: 0, at: 0 }],
            retained: [0; 2],
            most,
            truncated: false,
        }
    }

    /// The cursor behind all there is.
    pub(crate) fn cursor(&self) -> u64 {
        self.cursor
    }

    /// Whether more was written than is kept.
    pub(crate) fn is_truncated(&self) -> bool {
        self.truncated
    }

    pub(crate) fn is_dropped(&self) -> bool {
        matches!(self.held, Held::Dropped)
    }

    /// Whether it takes room in the file.
    pub(crate) fn is_spilled(&self) -> bool {
        matches!(self.held, Held::File(_))
    }

    /// Adds what fits. An error: there is no room for it now, and nothing was added.
    pub(crate) fn append(&mut self, stream: StreamName, bytes: &[u8]) -> io::Result<()> {
        let retained = self.retained[slot(stream)];
        let room = usize::try_from(self.most.saturating_sub(retained)).unwrap_or(usize::MAX);
        let taken = &bytes[..bytes.len().min(room).min(MAX_FRAME_BYTES)];
        self.truncated |= taken.len() < bytes.len();
        let bytes = taken;
        if bytes.is_empty() {
            return Ok(());
        }
        if !self.grow(stream, bytes) {
            self.add_frame(stream, bytes)?;
        }
        self.retained[slot(stream)] += bytes.len() as u64;
        self.cursor += bytes.len() as u64;
        Ok(())
    }

    /// Gives up: what comes is counted as lost.
    pub(crate) fn truncate(&mut self) {
        self.truncated = true;
        self.most = 0;
    }

    /// Nothing comes any more. Only what is really small stays in memory.
    pub(crate) fn close(&mut self) {
        if let Held::Memory(held) = &mut self.held {
            held.shrink_to_fit();
            if held.len() > IN_MEMORY_AFTER {
                let _ = self.move_to_file();
            }
        }
        self.marks.shrink_to_fit();
    }

    /// Forgets it.
    pub(crate) fn forget(&mut self) {
        self.held = Held::Dropped;
        self.marks = Vec::new();
    }

    /// A reader that begins with the byte behind this cursor.
    pub(crate) fn place(&self, cursor: u64) -> LogPosition {
        let cursor = cursor.min(self.cursor);
        let index = self.marks.partition_point(|mark| mark.cursor <= cursor).saturating_sub(1);
        LogPosition { cursor, frame: self.marks.get(index).copied().unwrap_or(Mark { cursor: 0, at: 0 }) }
    }

    /// What comes next for a reader, who moves behind it: bytes of one stream, as many as there are up to `most`. Nothing where there
    /// is nothing yet.
    pub(crate) fn read(&self, place: &mut LogPosition, most: usize) -> io::Result<Option<Piece>> {
        if self.is_dropped() {
            return Ok(None);
        }
        let mut found: Option<Piece> = None;
        while place.frame.at < self.length {
            let (stream, length) = self.header(place.frame.at)?;
            let within = place.cursor - place.frame.cursor;
            let bytes = found.as_ref().map_or(0, |piece| piece.bytes.len());
            if within < length {
                if bytes == most || found.as_ref().is_some_and(|piece| piece.stream != stream) {
                    break;
                }
                let piece = found.get_or_insert_with(|| Piece { stream, bytes: Vec::new() });
                let take = usize::try_from(length - within).unwrap_or(usize::MAX).min(most - bytes);
                piece.bytes.resize(bytes + take, 0);
                self.bytes(place.frame.at + HEADER as u64 + within, &mut piece.bytes[bytes..])?;
                place.cursor += take as u64;
            }
            let next =
                Mark { cursor: place.frame.cursor + length, at: place.frame.at + HEADER as u64 + length };
            // The last one may still grow.
            if place.cursor < next.cursor || next.at >= self.length {
                break;
            }
            place.frame = next;
        }
        Ok(found)
    }

    /// Makes the last frame longer, if it is of this stream.
    fn grow(&mut self, stream: StreamName, bytes: &[u8]) -> bool {
        let (Some(at), Held::Memory(held)) = (self.growing, &mut self.held) else { return false };
        let at = at as usize;
        let (last, length) = understand(&held[at..at + HEADER]);
        if last != stream || held.len() > IN_MEMORY {
            return false;
        }
        held[at..at + HEADER].copy_from_slice(&header(stream, length as usize + bytes.len()));
        held.extend_from_slice(bytes);
        self.length += bytes.len() as u64;
        true
    }

    fn add_frame(&mut self, stream: StreamName, bytes: &[u8]) -> io::Result<()> {
        let at = self.length;
        if let Held::Memory(held) = &self.held
            && held.len() > IN_MEMORY
        {
            self.move_to_file()?;
        }
        match &mut self.held {
            Held::Memory(held) => {
                held.extend_from_slice(&header(stream, bytes.len()));
                held.extend_from_slice(bytes);
                self.growing = Some(at);
            }
            Held::File(file) => {
                file.append(&[&header(stream, bytes.len()), bytes].concat())?;
                self.growing = None;
            }
            Held::Dropped => return Ok(()),
        }
        self.length += (HEADER + bytes.len()) as u64;
        if self.marks.last().is_some_and(|last| at - last.at >= MARKED) {
            self.marks.push(Mark { cursor: self.cursor, at });
        }
        Ok(())
    }

    fn move_to_file(&mut self) -> io::Result<()> {
        if let Held::Memory(held) = &self.held {
            let mut file = self.spill.begin()?;
            file.append(held)?;
            self.held = Held::File(file);
            self.growing = None;
        }
        Ok(())
    }

    fn header(&self, at: u64) -> io::Result<(StreamName, u64)> {
        let mut bytes = [0; HEADER];
        self.bytes(at, &mut bytes)?;
        Ok(understand(&bytes))
    }

    fn bytes(&self, at: u64, into: &mut [u8]) -> io::Result<()> {
        match &self.held {
            Held::Memory(held) => {
                let at = at as usize;
                into.copy_from_slice(held.get(at..at + into.len()).ok_or(io::ErrorKind::UnexpectedEof)?);
                Ok(())
            }
            Held::File(file) => file.read(at, into),
            Held::Dropped => Err(io::ErrorKind::NotFound.into()),
        }
    }
}

fn header(stream: StreamName, length: usize) -> [u8; HEADER] {
    let word = (length as u32) << 1 | slot(stream) as u32;
    word.to_le_bytes()
}

fn understand(bytes: &[u8]) -> (StreamName, u64) {
    let word = bytes.iter().rev().fold(0_u32, |word, byte| word << 8 | u32::from(*byte));
    let stream = if word & 1 == 0 { StreamName::Stdout } else { StreamName::Stderr };
    (stream, u64::from(word >> 1))
}

fn slot(stream: StreamName) -> usize {
    match stream {
        StreamName::Stdout => 0,
        StreamName::Stderr => 1,
    }
}

const HEADER: usize = 4;
/// Longer than any frame from a guest; a header can hold it.
const MAX_FRAME_BYTES: usize = 16 * 1024 * 1024;
/// So much of a command that runs is in memory.
const IN_MEMORY: usize = 256 * 1024;
/// And of one that ended: a thousand of them are still little.
const IN_MEMORY_AFTER: usize = 4 * 1024;
/// How far apart marks are: finding a cursor reads headers up to here.
const MARKED: u64 = 64 * 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use belljar_api::StreamName::{Stderr, Stdout};

    fn log(most: u64) -> (tempfile::TempDir, Log) {
        let place = tempfile::tempdir().expect("a directory");
        let log = Log::new(Spill::new(place.path(), 64 << 20), most);
        (place, log)
    }

    fn all(log: &Log, from: u64) -> Vec<(StreamName, Vec<u8>)> {
        let mut place = log.place(from);
        let mut pieces: Vec<(StreamName, Vec<u8>)> = Vec::new();
        while let Some(piece) = log.read(&mut place, 1000).expect("readable") {
            assert!(piece.bytes.len() <= 1000);
            match pieces.last_mut() {
                Some((stream, bytes)) if *stream == piece.stream => bytes.extend(piece.bytes),
                _ => pieces.push((piece.stream, piece.bytes)),
            }
        }
        assert_eq!(place.cursor, log.cursor());
        pieces
    }

    #[test]
    fn output_is_read_in_order_from_any_cursor() {
        let (_place, mut log) = log(1 << 20);
        for (stream, text) in [(Stdout, "one "), (Stdout, "two"), (Stderr, "oh"), (Stdout, "three")] {
            log.append(stream, text.as_bytes()).expect("room");
        }
        assert_eq!(
            all(&log, 0),
            [(Stdout, b"one two".to_vec()), (Stderr, b"oh".to_vec()), (Stdout, b"three".to_vec())]
        );
        assert_eq!(
            all(&log, 5),
            [(Stdout, b"wo".to_vec()), (Stderr, b"oh".to_vec()), (Stdout, b"three".to_vec())]
        );
        assert_eq!(all(&log, 8), [(Stderr, b"h".to_vec()), (Stdout, b"three".to_vec())]);
        assert_eq!(all(&log, 99), []);
    }

    #[test]
    fn a_reader_at_the_end_sees_what_comes_later() {
        let (_place, mut log) = log(1 << 20);
        let mut place = log.place(0);
        for round in 0..50_000_u32 {
            let stream = if round % 3 == 0 { Stderr } else { Stdout };
            log.append(stream, &round.to_le_bytes()).expect("room");
            let piece = log.read(&mut place, 100).expect("readable").expect("something new");
            assert_eq!(piece, Piece { stream, bytes: round.to_le_bytes().to_vec() });
            assert_eq!(log.read(&mut place, 100).expect("readable"), None);
        }
    }

    #[test]
    fn a_long_log_leaves_memory_and_is_the_same_from_every_cursor() {
        let (_place, mut log) = log(64 << 20);
        let mut whole = Vec::new();
        for round in 0..2000_usize {
            let stream = if round % 7 == 0 { Stderr } else { Stdout };
            let bytes: Vec<u8> = (0..round).map(|at| (round + at) as u8).collect();
            log.append(stream, &bytes).expect("room");
            whole.extend(bytes);
        }
        log.close();
        assert!(matches!(log.held, Held::File(_)), "two megabytes are not kept in memory");
        for from in [0, 1, 1000, 65_536, 1_000_000, whole.len() - 1] {
            let read: Vec<u8> = all(&log, from as u64).into_iter().flat_map(|(_, bytes)| bytes).collect();
            assert!(read == whole[from..], "from {from}");
        }
    }

    #[test]
    fn more_than_may_be_kept_is_cut_for_each_stream() {
        let (_place, mut log) = log(5);
        log.append(Stdout, b"123").expect("room");
        log.append(Stdout, b"4567").expect("room");
        assert!(log.is_truncated());
        log.append(Stdout, b"8").expect("room");
        log.append(Stderr, b"abc").expect("room");
        assert_eq!(all(&log, 0), [(Stdout, b"12345".to_vec()), (Stderr, b"abc".to_vec())]);
    }
}
