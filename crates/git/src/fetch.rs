//! Requests some commits from a server, in protocol 2 (gitprotocol-v2(5), "fetch"): their trees, or their history.

use crate::pkt::{Packet, PktError, Reader};
use crate::{ObjectId, pkt};
use thiserror::Error;

/// The requested parts of each commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Content<'a> {
    /// Its trees. Servers need not support this (`uploadpack.allowFilter`).
    Trees,
    /// Its blobs too.
    Everything,
    /// The commits since another one, without their content.
    History { since: &'a ObjectId },
}

/// The body of the request.
pub fn request(objects: &[ObjectId], content: Content<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    let format = objects.first().map_or("sha1", |id| id.format().name());
    pkt::append(&mut bytes, b"command=fetch\n");
    pkt::append(&mut bytes, format!("object-format={format}\n").as_bytes());
    bytes.extend_from_slice(b"0001");
    let one_commit = "deepen 1\n".to_string();
    let content = match content {
        Content::Trees => vec![one_commit, "filter blob:none\n".to_string()],
        Content::Everything => vec![one_commit],
        Content::History { since } => vec!["filter tree:0\n".to_string(), format!("have {since}\n")],
    };
    for line in ["no-progress\n", "ofs-delta\n"].into_iter().chain(content.iter().map(String::as_str)) {
        pkt::append(&mut bytes, line.as_bytes());
    }
    for id in objects {
        pkt::append(&mut bytes, format!("want {id}\n").as_bytes());
    }
    pkt::append(&mut bytes, b"done\n");
    bytes.extend_from_slice(pkt::FLUSH);
    bytes
}

/// Extracts the pack from a response as it arrives.
#[derive(Debug)]
pub struct Answer {
    packets: Reader,
    part: Part,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Before,
    Pack,
    Over,
}

/// Not a pack.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum FetchError {
    #[error(transparent)]
    Packets(#[from] PktError),
    #[error("the server said no")]
    Refused,
    #[error("the answer ends before the pack does")]
    CutOff,
}

impl Answer {
    /// For a pack of at most this many bytes.
    pub fn new(limit: usize) -> Answer {
        Answer { packets: Reader::new(limit), part: Part::Before }
    }

    /// The part of the pack in these bytes.
    pub fn feed(&mut self, bytes: &[u8]) -> Result<Vec<u8>, FetchError> {
        self.packets.feed(bytes);
        let mut pack = Vec::new();
        while self.part != Part::Over {
            match (self.part, self.packets.take()?) {
                (_, None) => break,
                (Part::Before, Some(Packet::Data(line))) if line.starts_with(b"ERR ") => {
                    return Err(FetchError::Refused);
                }
                (Part::Before, Some(Packet::Data(line))) if line == b"packfile\n" => self.part = Part::Pack,
                // Shallow lines, and other sections that servers send first.
                (Part::Before, Some(Packet::Data(_) | Packet::Delim)) => {}
                (Part::Before, Some(Packet::Flush | Packet::ResponseEnd)) => return Err(FetchError::CutOff),
                (Part::Pack, Some(Packet::Data(line))) => match line.split_first() {
                    Some((1, data)) => pack.extend_from_slice(data),
                    Some((2, _)) => {}
                    _ => return Err(FetchError::Refused),
                },
                (Part::Pack | Part::Over, Some(_)) => self.part = Part::Over,
            }
        }
        Ok(pack)
    }

    /// Was the pack complete?
    pub fn finish(&self) -> Result<(), FetchError> {
        if self.part == Part::Over { Ok(()) } else { Err(FetchError::CutOff) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_answer_of_git() {
        let bytes =
            b"0011shallow-info\n0034shallow ccaf1094fc47312a900ced43b069cb0de8c229420001000dpackfile\n\
                      000a\x02hello0009\x01PACK0006\x01x0000";
        for cut in 0..bytes.len() {
            let mut answer = Answer::new(1000);
            let mut pack = answer.feed(&bytes[..cut]).unwrap();
            pack.extend(answer.feed(&bytes[cut..]).unwrap());
            assert_eq!((pack.as_slice(), answer.finish()), (&b"PACKx"[..], Ok(())), "{cut}");
        }
    }

    #[test]
    fn answers_without_a_pack() {
        for bytes in [&b"0010ERR not here"[..], b"0000", b"000dpackfile\n0007\x03no0000"] {
            assert!(Answer::new(1000).feed(bytes).is_err(), "{}", bytes.escape_ascii());
        }
        let mut cut = Answer::new(1000);
        assert_eq!(cut.feed(b"000dpackfile\n0006\x01x"), Ok(b"x".to_vec()));
        assert_eq!(cut.finish(), Err(FetchError::CutOff));
    }

    proptest! {
        #[test]
        fn any_bytes(bytes: Vec<u8>) {
            let _ = Answer::new(100).feed(&bytes);
        }
    }
}
