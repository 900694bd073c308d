//! Redaction of streams that are made of messages. At the end of a message nothing waits for long: a web socket or a call of
//! gRPC may be silent, and would not hear the end of what was said. The heads of frames are no text, and pass as they are. Pure.
//!
//! A message of a web socket ends at once: its frames are made by the server. Whether a body is gRPC is told by its head
//! alone, and a server that repeats a content type and a body of the sandbox's choice would repeat lengths that end a
//! message within a value. So the search continues from one message of gRPC to the next, and the caller gives out what
//! waits when none comes for a while.

use crate::credentials::Redact;
use hyper::body::Bytes;

/// How a stream is made.
pub(super) enum Framing {
    /// Of text, to its end.
    Plain,
    /// Of messages behind their lengths.
    Grpc(Frames<Grpc>),
    /// Of frames (RFC 6455, 5.2).
    WebSocket(Frames<WebSocket>),
}

/// A frame that cannot be searched, or is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the server sent a frame that cannot be searched")]
pub(super) struct Unreadable;

impl Framing {
    pub(super) fn grpc() -> Framing {
        Framing::Grpc(Frames::default())
    }

    pub(super) fn web_socket() -> Framing {
        Framing::WebSocket(Frames::default())
    }

    /// Passes a piece on, as far as it can be.
    pub(super) fn feed(&mut self, redact: &mut Redact, piece: Bytes) -> Result<Bytes, Unreadable> {
        match self {
            Framing::Plain => Ok(redact.feed(piece)),
            Framing::Grpc(frames) => frames.feed(redact, piece),
            Framing::WebSocket(frames) => frames.feed(redact, piece),
        }
    }

    /// Whether a message of gRPC is over, and the next has not begun.
    pub(super) fn is_between_messages(&self) -> bool {
        match self {
            Framing::Plain | Framing::WebSocket(_) => false,
            Framing::Grpc(frames) => frames.left.is_none() && frames.head.is_empty(),
        }
    }

    /// Nothing more comes. Half of a head is none, and is searched like text.
    pub(super) fn finish(&mut self, redact: &mut Redact) -> Bytes {
        let head = match self {
            Framing::Plain => Vec::new(),
            Framing::Grpc(frames) => std::mem::take(&mut frames.head),
            Framing::WebSocket(frames) => std::mem::take(&mut frames.head),
        };
        [redact.feed(head.into()), redact.finish()].concat().into()
    }
}

/// What a kind of frame begins with.
pub(super) trait Head: Default {
    /// Whether the search ends with a message.
    const IS_SEARCHED_ALONE: bool;

    /// Reads a head, if all of it is there.
    fn read(head: &[u8]) -> Result<Option<Frame>, Unreadable>;
}

/// What a head says.
pub(super) struct Frame {
    /// How long what follows is.
    length: u64,
    kind: Kind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Text that continues in the next frame.
    Begun,
    /// Text, to its end.
    Last,
    /// Something that is said between the pieces of a text.
    Aside,
}

/// Where in its frames a stream is.
#[derive(Default)]
pub(super) struct Frames<H> {
    /// The beginning of a head.
    head: Vec<u8>,
    /// What is left of the frame.
    left: Option<Frame>,
    /// What came of something that is said between.
    aside: Vec<u8>,
    kind: std::marker::PhantomData<H>,
}

impl<H: Head> Frames<H> {
    fn feed(&mut self, redact: &mut Redact, mut piece: Bytes) -> Result<Bytes, Unreadable> {
        let mut out = Vec::with_capacity(piece.len());
        loop {
            if self.left.is_none() {
                if piece.is_empty() {
                    break;
                }
                self.head.push(piece.split_to(1)[0]);
                self.left = H::read(&self.head)?;
                if self.left.is_some() {
                    let head = std::mem::take(&mut self.head).into();
                    Self::pass(redact, head, &mut out)?;
                }
            }
            if let Some(frame) = &mut self.left {
                let count = usize::try_from(frame.length).unwrap_or(usize::MAX).min(piece.len());
                let text = piece.split_to(count);
                frame.length -= text.len() as u64;
                match frame.kind {
                    Kind::Begun | Kind::Last => out.extend_from_slice(&redact.feed(text)),
                    Kind::Aside => self.aside.extend_from_slice(&text),
                }
                if frame.length > 0 {
                    break;
                }
                match frame.kind {
                    Kind::Begun => {}
                    Kind::Last if !H::IS_SEARCHED_ALONE => {}
                    Kind::Last => out.extend_from_slice(&redact.finish()),
                    Kind::Aside => {
                        let mut one = redact.another();
                        let clear = std::mem::take(&mut self.aside);
                        let clear = [one.feed(clear.into()), one.finish()].concat();
                        Self::pass(redact, clear.into(), &mut out)?;
                    }
                }
                self.left = None;
            }
        }
        Ok(out.into())
    }

    /// Passes on what is no text. Behind very many frames without any, a message that is searched alone is none, and what waits of
    /// others waits no longer: a call may well say nothing over and over.
    fn pass(redact: &mut Redact, bytes: Bytes, out: &mut Vec<u8>) -> Result<(), Unreadable> {
        match redact.pass(&bytes) {
            Some(passed) => out.extend_from_slice(&passed),
            None if H::IS_SEARCHED_ALONE => return Err(Unreadable),
            None => {
                out.extend_from_slice(&redact.finish());
                out.extend_from_slice(&bytes);
            }
        }
        Ok(())
    }
}

/// A byte, and a length of four.
#[derive(Default)]
pub(super) struct Grpc;

impl Head for Grpc {
    const IS_SEARCHED_ALONE: bool = false;

    fn read(head: &[u8]) -> Result<Option<Frame>, Unreadable> {
        let Ok([flags, length @ ..]) = <[u8; 5]>::try_from(head) else { return Ok(None) };
        // No other flag is set, but for compression, which no header announced.
        if flags != 0 {
            return Err(Unreadable);
        }
        Ok(Some(Frame { length: u32::from_be_bytes(length).into(), kind: Kind::Last }))
    }
}

/// As a server sends them: not masked. No extension was agreed upon, so that no other bit is set.
#[derive(Default)]
pub(super) struct WebSocket;

impl Head for WebSocket {
    const IS_SEARCHED_ALONE: bool = true;

    fn read(head: &[u8]) -> Result<Option<Frame>, Unreadable> {
        let [first, rest @ ..] = head else { return Ok(None) };
        let [second, rest @ ..] = rest else { return Ok(None) };
        let (is_last, opcode) = (first & 0x80 != 0, first & 0x0f);
        if first & 0x70 != 0 || second & 0x80 != 0 {
            return Err(Unreadable);
        }
        let length = match second & 0x7f {
            126 => match <[u8; 2]>::try_from(rest) {
                Ok(length) => u16::from_be_bytes(length).into(),
                Err(_) => return Ok(None),
            },
            127 => match <[u8; 8]>::try_from(rest) {
                Ok(length) => u64::from_be_bytes(length),
                Err(_) => return Ok(None),
            },
            short => u64::from(short),
        };
        let kind = match (opcode, is_last) {
            (0..=2, false) => Kind::Begun,
            (0..=2, true) => Kind::Last,
            (8..=10, true) if length <= MAX_CONTROL_BYTES => Kind::Aside,
            _ => return Err(Unreadable),
        };
        Ok(Some(Frame { length, kind }))
    }
}

/// Of a ping, a pong and a close (RFC 6455, 5.5).
const MAX_CONTROL_BYTES: u64 = 125;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::credentials::{Known, MAX_EMPTY_FRAMES};
    use belljar_vault::Secret;
    use proptest::prelude::*;
    use std::sync::Arc;

    const VALUE: &str = "ghp_R34lS3cretV4lueQ7zx9PmK2bT5";

    fn redact() -> Redact {
        let known = Arc::new(Known::default());
        known.remember(&Secret::new(VALUE.into()), b"*");
        Redact::new(&known)
    }

    fn frame(first: u8, text: &str) -> Vec<u8> {
        let mut frame = vec![first];
        match text.len() {
            short @ 0..126 => frame.push(short as u8),
            long => frame.extend([&[126][..], &(long as u16).to_be_bytes()].concat()),
        }
        frame.extend_from_slice(text.as_bytes());
        frame
    }

    fn through(mut framing: Framing, pieces: &[&[u8]]) -> Vec<Vec<u8>> {
        let mut redact = redact();
        let mut out: Vec<Vec<u8>> = Vec::new();
        for piece in pieces {
            out.push(framing.feed(&mut redact, Bytes::copy_from_slice(piece)).expect("frames").to_vec());
        }
        out.push(framing.finish(&mut redact).to_vec());
        out
    }

    #[test]
    fn a_message_that_is_over_waits_for_nothing() {
        let framed = frame(0x81, "#ghp_R3");
        assert_eq!(through(Framing::web_socket(), &[&framed]), [framed.clone(), Vec::new()]);
        let framed = [&[0, 0, 0, 0, 3][..], b"ab!"].concat();
        assert_eq!(through(Framing::grpc(), &[&framed]), [framed.clone(), Vec::new()]);
    }

    /// A server that repeats a body of the sandbox's choice, with the value in it, repeats lengths as well.
    #[test]
    fn no_length_of_a_message_cuts_a_value() {
        let stars = "*".repeat(VALUE.len());
        for cut in 1..VALUE.len() {
            let (one, two) = VALUE.split_at(cut);
            let head = |text: &str| [0, 0, 0, 0, text.len() as u8];
            let contiguous = [&head(one)[..], VALUE.as_bytes()].concat();
            let mut framing = Framing::grpc();
            let mut redact = redact();
            let mut out = Vec::new();
            let mut is_over = true;
            for byte in contiguous {
                match framing.feed(&mut redact, vec![byte].into()) {
                    Ok(piece) => out.extend_from_slice(&piece),
                    Err(Unreadable) => {
                        is_over = false;
                        break;
                    }
                }
            }
            if is_over {
                out.extend_from_slice(&framing.finish(&mut redact));
                assert_eq!(out, [&head(one)[..], stars.as_bytes()].concat(), "{cut}");
            } else {
                assert_eq!(out, head(one), "{cut}");
            }
            let messages = [&head(one)[..], one.as_bytes(), &head(two), two.as_bytes()].concat();
            let masked =
                [&head(one)[..], &stars.as_bytes()[..cut], &head(two), &stars.as_bytes()[cut..]].concat();
            assert_eq!(through(Framing::grpc(), &[&messages]).concat(), masked, "{cut}");
        }
    }

    #[test]
    fn a_call_knows_when_nothing_is_begun() {
        let (mut framing, mut redact) = (Framing::grpc(), redact());
        for (piece, expected) in
            [(&[0, 0][..], false), (&[0, 0, 3, b'a'], false), (b"bc", true), (&[0], false)]
        {
            framing.feed(&mut redact, Bytes::copy_from_slice(piece)).expect("frames");
            assert_eq!(framing.is_between_messages(), expected, "{piece:?}");
        }
    }

    #[test]
    fn a_value_in_pieces_of_a_message_is_found() {
        let (one, two) = VALUE.split_at(11);
        let text = [frame(0x01, one), frame(0x89, VALUE), frame(0x80, two)].concat();
        let stars = |text: &str| "*".repeat(text.len());
        let expected =
            [frame(0x01, &stars(one)), frame(0x89, &stars(VALUE)), frame(0x80, &stars(two))].concat();
        assert_eq!(through(Framing::web_socket(), &[&text]).concat(), expected);
    }

    #[test]
    fn frames_without_text_do_not_fill_the_memory() {
        let feed = |framing: &mut Framing, redact: &mut Redact, bytes: &[u8]| {
            framing.feed(redact, Bytes::copy_from_slice(bytes))
        };
        let (mut framing, mut redact) = (Framing::web_socket(), redact());
        feed(&mut framing, &mut redact, &frame(0x01, "ghp_R3")).expect("a frame");
        let ended = (0..=MAX_EMPTY_FRAMES + 10).find(|_| feed(&mut framing, &mut redact, &[0, 0]).is_err());
        assert!(ended.is_some(), "pieces of a message without end");
        // What a call says over and over passes.
        let (mut framing, mut redact, mut passed) = (Framing::grpc(), self::redact(), 0);
        passed += feed(&mut framing, &mut redact, b"\0\0\0\0\x06ghp_R3").expect("a message").len();
        for _ in 0..3 * MAX_EMPTY_FRAMES {
            passed += feed(&mut framing, &mut redact, &[0; 5]).expect("a message").len();
        }
        assert_eq!(passed, 11 + 3 * MAX_EMPTY_FRAMES * 5, "nothing waits");
    }

    #[test]
    fn what_cannot_be_searched_ends_the_stream() {
        for frame in [
            &[0xc1, 1, b'x'][..],
            &[0x81, 0x81, 1, 2, 3, 4, b'x'],
            &[0x83, 0],
            &[0x09, 0],
            &[0x89, 126, 0, 126],
        ] {
            let outcome = Framing::web_socket().feed(&mut redact(), Bytes::copy_from_slice(frame));
            assert_eq!(outcome, Err(Unreadable), "{frame:?}");
        }
        let packed = Bytes::from_static(&[1, 0, 0, 0, 1, b'x']);
        assert_eq!(Framing::grpc().feed(&mut redact(), packed), Err(Unreadable));
    }

    proptest! {
        #[test]
        fn pieces_of_frames_change_nothing(
            texts in prop::collection::vec("(ghp_R34lS3cretV4lueQ7zx9PmK2bT5|[a-z ]{0,200})", 0..4),
            last in any::<[bool; 4]>(), cuts in prop::collection::vec(0usize..400, 0..12),
        ) {
            let frames = texts.iter().zip(last).map(|(text, last)| frame(if last { 0x81 } else { 0x01 }, text));
            let text: Vec<u8> = frames.flatten().collect();
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(text.len())).chain([0, text.len()]).collect();
            cuts.sort();
            let pieces: Vec<&[u8]> = cuts.windows(2).map(|pair| &text[pair[0]..pair[1]]).collect();
            let (whole, out) = (through(Framing::web_socket(), &[&text]).concat(), through(Framing::web_socket(), &pieces).concat());
            prop_assert_eq!(&whole, &out);
            prop_assert!(!String::from_utf8_lossy(&out).contains(VALUE));
            prop_assert_eq!(out.len(), text.len());
        }
    }
}
