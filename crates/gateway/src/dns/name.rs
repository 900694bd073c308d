//! Names as they are on the wire of DNS: labels with their lengths before them, an empty one last. Read from questions
//! and written into answers by `message`; what a name means is not decided here.

use crate::bytes;

/// Reads a name that is written out. A pointer has nothing to point at in a question, and is refused like every other
/// length beyond 63.
pub(crate) fn read(rest: &mut &[u8]) -> Result<String, &'static str> {
    const TORN: &str = "the name is torn";
    let before = rest.len();
    let mut name = String::with_capacity(64);
    loop {
        let length = bytes::u8(rest).ok_or(TORN)?;
        if usize::from(length) > MAX_LABEL {
            return Err("a label of the name is longer than 63 bytes, or a pointer");
        }
        let label = bytes::take(rest, length.into()).ok_or(TORN)?;
        if before - rest.len() > MAX_NAME {
            return Err("the name is longer than 255 bytes");
        }
        if label.is_empty() {
            break;
        }
        if !name.is_empty() {
            name.push('.');
        }
        push_label(&mut name, label);
    }
    if name.is_empty() {
        name.push('.');
    }
    Ok(name)
}

fn push_label(name: &mut String, label: &[u8]) {
    for byte in label {
        match byte {
            b'.' | b'\\' => name.extend(['\\', char::from(*byte)]),
            _ if byte.is_ascii_graphic() => name.push(char::from(*byte)),
            _ => {
                let digit = |value: u8| char::from(b'0' + value);
                name.extend(['\\', digit(byte / 100), digit(byte / 10 % 10), digit(byte % 10)]);
            }
        }
    }
}

/// Writes a host name; `None` for what cannot be one.
pub(crate) fn write(name: &str) -> Option<Vec<u8>> {
    let mut wire = Vec::with_capacity(name.len() + 2);
    for label in name.split('.') {
        if label.is_empty() || label.len() > MAX_LABEL {
            return None;
        }
        wire.push(label.len() as u8);
        wire.extend_from_slice(label.as_bytes());
    }
    wire.push(0);
    (wire.len() <= MAX_NAME).then_some(wire)
}

const MAX_LABEL: usize = 63;
/// Lengths and the empty label included.
const MAX_NAME: usize = 255;
