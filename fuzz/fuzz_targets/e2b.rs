//! What clients of the E2B-compatible server stream: messages of calls, and forms with files. However the bytes are cut, the same comes
//! out, and nothing that is longer than it may be.

#![no_main]

use belljar_e2b::{FormReader, FrameReader, Piece};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (&[u8], u8)| {
    let (bytes, size) = (input.0, usize::from(input.1).max(1));
    assert_eq!(frames(bytes, bytes.len().max(1)), frames(bytes, size));
    assert_eq!(form(bytes, bytes.len().max(1)), form(bytes, size));
});

/// Field, file name, content.
type Part = (String, Option<String>, Vec<u8>);

/// Every message, and whether the stream is one.
fn frames(bytes: &[u8], size: usize) -> (Vec<(bool, Vec<u8>)>, bool) {
    let (mut reader, mut found) = (FrameReader::default(), Vec::new());
    for piece in bytes.chunks(size) {
        reader.push(piece);
        loop {
            match reader.next_frame() {
                Ok(Some(frame)) => found.push((frame.is_end, frame.payload)),
                Ok(None) => break,
                Err(_) => return (found, false),
            }
        }
    }
    (found, true)
}

/// Every part, and whether the form is one.
fn form(bytes: &[u8], size: usize) -> (Vec<Part>, bool) {
    let (mut reader, mut parts) = (FormReader::new("b"), Vec::new());
    for piece in bytes.chunks(size) {
        reader.push(piece);
        loop {
            match reader.next_piece() {
                Ok(Some(Piece::Begin { field, file })) => parts.push((field, file, Vec::new())),
                Ok(Some(Piece::Data(data))) => parts.last_mut().expect("data is in a part").2.extend(data),
                Ok(Some(Piece::End)) => {}
                Ok(None) => break,
                Err(_) => return (parts, false),
            }
        }
    }
    (parts, true)
}
