//! Output as text, where it is text: no character is ever cut in two.

use super::log::{Log, LogPosition, Piece};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use belljar_api::CommandEvent;
use std::io;

/// The next event for a reader, who moves behind it. A character whose end has not come yet waits for it; where it never comes, or
/// something else was written in between, its bytes are told as they are.
pub(crate) fn next(log: &Log, place: &mut LogPosition, ended: bool) -> io::Result<Option<CommandEvent>> {
    let before = *place;
    let Some(Piece { stream, mut bytes }) = log.read(place, PIECE)? else { return Ok(None) };
    let cut = match std::str::from_utf8(&bytes) {
        Ok(_) => None,
        Err(error) if error.error_len().is_none() => Some(error.valid_up_to()),
        Err(_) => {
            let base64 = Some(STANDARD.encode(&bytes));
            return Ok(Some(CommandEvent::Output { stream, text: None, base64 }));
        }
    };
    match cut {
        None => {}
        Some(0) => {
            if place.cursor == log.cursor() && !ended {
                *place = before;
                return Ok(None);
            }
            let base64 = Some(STANDARD.encode(&bytes));
            return Ok(Some(CommandEvent::Output { stream, text: None, base64 }));
        }
        Some(whole) => {
            *place = before;
            place.cursor += whole as u64;
            bytes.truncate(whole);
        }
    }
    let text = Some(String::from_utf8_lossy(&bytes).into_owned());
    Ok(Some(CommandEvent::Output { stream, text, base64: None }))
}

/// So much of a stream is one event.
pub(crate) const PIECE: usize = 64 * 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shim::commands::spill::Spill;
    use belljar_api::StreamName::{self, Stderr, Stdout};

    struct Following {
        log: Log,
        place: LogPosition,
        _directory: tempfile::TempDir,
    }

    impl Following {
        fn new() -> Following {
            let directory = tempfile::tempdir().expect("a directory");
            let log = Log::new(Spill::new(directory.path(), 1 << 20), 1 << 20);
            let place = log.place(0);
            Following { log, place, _directory: directory }
        }

        fn write(&mut self, stream: StreamName, bytes: &[u8]) {
            self.log.append(stream, bytes).expect("room");
        }

        fn next(&mut self, ended: bool) -> Option<(Option<String>, Option<Vec<u8>>)> {
            match next(&self.log, &mut self.place, ended).expect("readable")? {
                CommandEvent::Output { text, base64, .. } => {
                    Some((text, base64.and_then(|base64| STANDARD.decode(base64).ok())))
                }
                other => panic!("{other:?} is no output"),
            }
        }
    }

    fn text(text: &str) -> Option<(Option<String>, Option<Vec<u8>>)> {
        Some((Some(text.into()), None))
    }

    #[test]
    fn a_character_waits_for_its_end() {
        let mut following = Following::new();
        following.write(Stdout, b"gr\xc3");
        assert_eq!(following.next(false), text("gr"));
        assert_eq!(following.next(false), None);
        assert_eq!(following.place.cursor, 2, "a client that comes back begins with the character");
        following.write(Stdout, b"\xbc\xc3\x9f");
        assert_eq!(following.next(false), text("\u{fc}\u{df}"));
        assert_eq!(following.next(true), None);
    }

    #[test]
    fn a_character_whose_end_never_comes_is_told_as_bytes() {
        let mut following = Following::new();
        following.write(Stdout, b"\xe2\x82");
        assert_eq!(following.next(false), None);
        following.write(Stderr, b"oh");
        assert_eq!(following.next(false), Some((None, Some(b"\xe2\x82".to_vec()))));
        assert_eq!(following.next(false), text("oh"));
        following.write(Stdout, b"\xe2");
        assert_eq!(following.next(true), Some((None, Some(b"\xe2".to_vec()))));
    }

    #[test]
    fn what_is_no_text_is_told_as_bytes() {
        let mut following = Following::new();
        following.write(Stdout, b"a\xffb");
        assert_eq!(following.next(false), Some((None, Some(b"a\xffb".to_vec()))));
    }
}
