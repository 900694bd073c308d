//! A stream as a hostile guest may write it: nothing panics, what is kept of it is bounded, and a message that is understood is
//! one that could have been sent, no larger in memory than its bytes allow.
#![no_main]

use belljar_wire::frame::{FrameReader, MAX_PAYLOAD, Tag, encode};
use belljar_wire::message::{self, ExecEvent, Reply, SetupReply};
use belljar_wire::planted;
use belljar_wire::purpose::Purpose;
use belljar_wire::serde::Serialize;
use belljar_wire::serde::de::DeserializeOwned;
use libfuzzer_sys::fuzz_target;
use std::fmt::Debug;

fuzz_target!(|bytes: &[u8]| {
    let mut reader = FrameReader::default();
    let (mut pushed, mut taken) = (0, 0);
    for piece in bytes.chunks(PIECE) {
        reader.push(piece);
        pushed += piece.len();
        loop {
            match reader.next_frame() {
                Ok(Some(frame)) => {
                    assert!(frame.payload.len() <= MAX_PAYLOAD);
                    taken += HEADER + frame.payload.len();
                    if frame.tag == Tag::Message {
                        decode(&frame.payload);
                    }
                    let mut again = Vec::new();
                    encode(frame.tag, &frame.payload, &mut again);
                    assert_eq!(again, bytes[taken - again.len()..taken]);
                }
                Ok(None) => break,
                // The reader closes the stream.
                Err(_) => return,
            }
        }
        assert_eq!(reader.is_mid_frame(), pushed > taken);
        assert!(pushed - taken <= HEADER + MAX_PAYLOAD);
    }
    // What comes without frames: the first bytes of a stream that the guest opens, and notes that a sandbox's user could write.
    decode(bytes);
    let _ = Purpose::decode(bytes);
    let _ = planted::decode(bytes);
});

/// Everything that the host reads from a guest.
fn decode(payload: &[u8]) {
    if let Some(reply) = same::<Reply>(payload) {
        let parts = match &reply {
            Reply::Entries(entries) => entries.len(),
            Reply::Changes(changes) => changes.len(),
            _ => 0,
        };
        assert!(parts <= payload.len());
    }
    same::<ExecEvent>(payload);
    same::<SetupReply>(payload);
}

/// What is understood means the same when it is said again.
fn same<T: Serialize + DeserializeOwned + PartialEq + Debug>(payload: &[u8]) -> Option<T> {
    let message: T = message::decode(payload)?;
    assert_eq!(message::decode::<T>(&message::encode(&message)).as_ref(), Some(&message));
    Some(message)
}

/// Length and tag.
const HEADER: usize = 5;
const PIECE: usize = 61;
