//! gzip, in both directions, piece by piece; and which encoding a client takes.

use crate::fault::Fault;
use crate::pieces::MAX_PIECE_BYTES;
use flate2::Compression;
use flate2::bufread::GzDecoder;
use flate2::write::GzEncoder;
use hyper::StatusCode;
use hyper::body::Bytes;
use std::io::{self, BufRead, Read, Write};

/// What a client sends, as it is or compressed. It comes out in bounded pieces: a small body may be a large file, and what was not asked
/// for yet stays compressed.
pub(crate) enum Decoder {
    Identity(Feed),
    Gzip(Box<GzDecoder<Feed>>),
}

impl Decoder {
    /// By a `Content-Encoding`.
    pub(crate) fn of(encoding: Option<&str>) -> Result<Decoder, Fault> {
        match encoding.map(|encoding| encoding.trim().to_ascii_lowercase()).as_deref() {
            None | Some("" | "identity") => Ok(Decoder::Identity(Feed::default())),
            Some("gzip" | "x-gzip") => Ok(Decoder::Gzip(Box::new(GzDecoder::new(Feed::default())))),
            Some(other) => Err(Fault::new(
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                format!("the content encoding `{other}` is not known: send gzip, or none"),
            )),
        }
    }

    /// More bytes came. Only after `next_piece` had nothing more: the bytes before are gone else.
    pub(crate) fn push(&mut self, bytes: Bytes) {
        self.feed().bytes = bytes;
    }

    /// No more bytes come.
    pub(crate) fn end(&mut self) {
        self.feed().is_over = true;
    }

    /// Whether no more bytes come.
    pub(crate) fn is_over(&self) -> bool {
        match self {
            Decoder::Identity(feed) => feed.is_over,
            Decoder::Gzip(decoder) => decoder.get_ref().is_over,
        }
    }

    /// What comes out next, at most `MAX_PIECE_BYTES`. `None`: nothing, until more bytes came; after the end, nothing at all. An error
    /// for one that was cut.
    pub(crate) fn next_piece(&mut self) -> Result<Option<Vec<u8>>, Fault> {
        if self.feed().is_waiting() {
            return Ok(None);
        }
        match self {
            Decoder::Identity(feed) => {
                let length = feed.bytes.len().min(MAX_PIECE_BYTES);
                // Copied: a part of a large buffer would keep all of it.
                Ok((length > 0).then(|| feed.bytes.split_to(length).to_vec()))
            }
            Decoder::Gzip(decoder) => {
                let mut piece = vec![0; MAX_PIECE_BYTES];
                match decoder.read(&mut piece) {
                    Ok(0) if decoder.get_ref().bytes.is_empty() => Ok(None),
                    Ok(0) => Err(Fault::bad_request("the body goes on behind the end of its gzip")),
                    Ok(length) => {
                        piece.truncate(length);
                        piece.shrink_to_fit();
                        Ok(Some(piece))
                    }
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
                    Err(error) => Err(no_gzip(error)),
                }
            }
        }
    }

    fn feed(&mut self) -> &mut Feed {
        match self {
            Decoder::Identity(feed) => feed,
            Decoder::Gzip(decoder) => decoder.get_mut(),
        }
    }
}

fn no_gzip(error: io::Error) -> Fault {
    Fault::bad_request(format!("the body is not valid gzip: {error}"))
}

/// What came and was not decoded yet. A reader that would wait where more is to come.
#[derive(Debug, Default)]
pub(crate) struct Feed {
    bytes: Bytes,
    is_over: bool,
}

impl Feed {
    fn is_waiting(&self) -> bool {
        self.bytes.is_empty() && !self.is_over
    }
}

impl Read for Feed {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let from = self.fill_buf()?;
        let length = from.len().min(into.len());
        into[..length].copy_from_slice(&from[..length]);
        self.consume(length);
        Ok(length)
    }
}

impl BufRead for Feed {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.is_waiting() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        Ok(&self.bytes)
    }

    fn consume(&mut self, length: usize) {
        let _ = self.bytes.split_to(length);
    }
}

/// What is sent compressed.
pub(crate) struct Encoder(GzEncoder<Vec<u8>>);

impl Encoder {
    pub(crate) fn new() -> Encoder {
        Encoder(GzEncoder::new(Vec::new(), Compression::fast()))
    }

    /// What comes out for this; nothing, as long as it is collected.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Vec<u8> {
        self.0.write_all(bytes).expect("memory takes every byte");
        std::mem::take(self.0.get_mut())
    }

    pub(crate) fn finish(self) -> Vec<u8> {
        self.0.finish().expect("memory takes every byte")
    }
}

/// How an answer is encoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Encoding {
    Identity,
    Gzip,
}

impl Encoding {
    /// By an `Accept-Encoding` (RFC 9110, 12.5.3). `None`: the client takes neither.
    pub(crate) fn accepted(header: Option<&str>) -> Option<Encoding> {
        let Some(header) = header else { return Some(Encoding::Identity) };
        let (mut gzip, mut identity, mut any) = (None, None, None);
        for one in header.split(',') {
            let (name, rest) = one.split_once(';').unwrap_or((one, ""));
            let quality =
                rest.trim().strip_prefix("q=").map_or(Some(1.0), |text| text.trim().parse::<f32>().ok());
            let is_taken = quality.unwrap_or(0.0) > 0.0;
            match name.trim().to_ascii_lowercase().as_str() {
                "gzip" | "x-gzip" => gzip = Some(is_taken),
                "identity" => identity = Some(is_taken),
                "*" => any = Some(is_taken),
                _ => {}
            }
        }
        match (gzip.or(any).unwrap_or(false), identity.or(any.filter(|any| !any)).unwrap_or(true)) {
            (true, _) => Some(Encoding::Gzip),
            (false, true) => Some(Encoding::Identity),
            (false, false) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packed(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = Encoder::new();
        let mut packed = Vec::new();
        for piece in bytes.chunks(777) {
            packed.extend(encoder.push(piece));
        }
        packed.extend(encoder.finish());
        packed
    }

    /// The pieces that come out where so many bytes come at a time.
    fn unpacked(encoding: &str, bytes: &[u8], at_a_time: usize) -> Result<Vec<Vec<u8>>, Fault> {
        let mut decoder = Decoder::of(Some(encoding))?;
        let mut pieces = Vec::new();
        for part in bytes.chunks(at_a_time) {
            decoder.push(Bytes::copy_from_slice(part));
            while let Some(piece) = decoder.next_piece()? {
                pieces.push(piece);
            }
        }
        decoder.end();
        while let Some(piece) = decoder.next_piece()? {
            pieces.push(piece);
        }
        Ok(pieces)
    }

    #[test]
    fn what_goes_in_comes_out_however_it_was_cut() {
        let text: Vec<u8> = (0..100_000_u32).flat_map(|number| (number % 1000).to_le_bytes()).collect();
        let packed = packed(&text);
        for at_a_time in [13, packed.len()] {
            assert!(unpacked("GZIP", &packed, at_a_time).unwrap().concat() == text, "{at_a_time} at a time");
        }
        for length in [0, 5, packed.len() / 2, packed.len() - 8, packed.len() - 1] {
            let cut = unpacked("gzip", &packed[..length], 13);
            assert!(cut.is_err(), "{length} bytes of a file are not the file");
        }
        let longer = [&packed[..], &b"more"[..]].concat();
        assert!(unpacked("gzip", &longer, longer.len()).is_err(), "nothing stands behind the end");
        assert!(Decoder::of(Some("br")).is_err());
    }

    #[test]
    fn a_small_body_that_is_a_large_file_comes_out_in_small_pieces() {
        // Zeros, and something between that shows the order.
        let mut text = vec![0_u8; 1 << 20];
        for (byte, number) in text.iter_mut().step_by(100_000).zip(1_u8..) {
            *byte = number;
        }
        let packed = packed(&text);
        for (encoding, bytes) in [("gzip", &packed), ("identity", &text)] {
            let pieces = unpacked(encoding, bytes, bytes.len()).unwrap();
            assert!(pieces.iter().all(|piece| (1..=MAX_PIECE_BYTES).contains(&piece.len())), "{encoding}");
            assert!(pieces.concat() == text, "{encoding}");
        }
        assert!(unpacked("gzip", &packed[..packed.len() - 9], packed.len()).is_err(), "it was cut");
    }

    #[test]
    fn what_was_not_asked_for_stays_compressed() {
        let packed = packed(&[0; 1 << 20]);
        let mut decoder = Decoder::of(Some("gzip")).unwrap();
        decoder.push(packed.into());
        let left = decoder.feed().bytes.len();
        assert_eq!(decoder.next_piece().unwrap().map(|piece| piece.len()), Some(MAX_PIECE_BYTES));
        let rest = decoder.feed().bytes.len();
        assert!(rest > left / 2 && rest < left, "{rest} of {left}");
    }

    #[test]
    fn a_client_gets_what_it_takes() {
        for (header, expected) in [
            (None, Some(Encoding::Identity)),
            (Some("gzip, deflate, br"), Some(Encoding::Gzip)),
            (Some("gzip;q=0"), Some(Encoding::Identity)),
            (Some("br"), Some(Encoding::Identity)),
            (Some("*"), Some(Encoding::Gzip)),
            (Some("identity;q=0, br"), None),
            (Some("*;q=0"), None),
            (Some("identity;q=0, gzip"), Some(Encoding::Gzip)),
        ] {
            assert_eq!(Encoding::accepted(header), expected, "{header:?}");
        }
    }
}
