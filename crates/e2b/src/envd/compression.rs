//! gzip, in both directions, piece by piece; and which encoding a client takes.

use crate::fault::Fault;
use flate2::Compression;
use flate2::write::{GzDecoder, GzEncoder};
use hyper::StatusCode;
use std::io::Write;

/// What a client sends, as it is or compressed.
pub(crate) enum Decoder {
    Identity,
    Gzip(Box<GzDecoder<Vec<u8>>>),
}

impl Decoder {
    /// By a `Content-Encoding`.
    pub(crate) fn of(encoding: Option<&str>) -> Result<Decoder, Fault> {
        match encoding.map(|encoding| encoding.trim().to_ascii_lowercase()).as_deref() {
            None | Some("" | "identity") => Ok(Decoder::Identity),
            Some("gzip" | "x-gzip") => Ok(Decoder::Gzip(Box::new(GzDecoder::new(Vec::new())))),
            Some(other) => Err(Fault::new(
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                format!("the content encoding `{other}` is not known: send gzip, or none"),
            )),
        }
    }

    pub(crate) fn push(&mut self, bytes: &[u8]) -> Result<Vec<u8>, Fault> {
        match self {
            Decoder::Identity => Ok(bytes.to_vec()),
            Decoder::Gzip(decoder) => {
                decoder.write_all(bytes).map_err(no_gzip)?;
                Ok(std::mem::take(decoder.get_mut()))
            }
        }
    }

    /// What is left at the end; an error for one that was cut.
    pub(crate) fn finish(self) -> Result<Vec<u8>, Fault> {
        match self {
            Decoder::Identity => Ok(Vec::new()),
            Decoder::Gzip(decoder) => decoder.finish().map_err(no_gzip),
        }
    }
}

fn no_gzip(error: std::io::Error) -> Fault {
    Fault::bad_request(format!("the body is not valid gzip: {error}"))
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

    #[test]
    fn what_goes_in_comes_out_however_it_was_cut() {
        let text: Vec<u8> = (0..100_000_u32).flat_map(|number| (number % 1000).to_le_bytes()).collect();
        let mut encoder = Encoder::new();
        let mut packed = Vec::new();
        for piece in text.chunks(777) {
            packed.extend(encoder.push(piece));
        }
        packed.extend(encoder.finish());
        let mut decoder = Decoder::of(Some("GZIP")).unwrap();
        let mut found = Vec::new();
        for piece in packed.chunks(13) {
            found.extend(decoder.push(piece).unwrap());
        }
        found.extend(decoder.finish().unwrap());
        assert!(found == text);
        let mut cut = Decoder::of(Some("gzip")).unwrap();
        cut.push(&packed[..packed.len() / 2]).unwrap();
        assert!(cut.finish().is_err(), "half of a file is not a file");
        assert!(Decoder::of(Some("br")).is_err());
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
