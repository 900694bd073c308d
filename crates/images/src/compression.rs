//! Blobs are compressed by gzip, by zstd or not at all; their first bytes say how, whatever the manifest calls them.

use flate2::bufread::MultiGzDecoder;
use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};
use std::io::{self, BufRead, BufReader, Read};

/// What a blob holds.
pub(crate) fn decompress<'a>(blob: impl Read + 'a) -> io::Result<Box<dyn Read + 'a>> {
    let mut blob = BufReader::with_capacity(BUFFER, blob);
    let mut first = [0; 4];
    let have = blob.fill_buf()?;
    let known = have.len().min(4);
    first[..known].copy_from_slice(&have[..known]);
    Ok(match first {
        // Several members are one stream: RFC 1952, and what pigz and stargz write.
        [0x1f, 0x8b, ..] => Box::new(MultiGzDecoder::new(blob)),
        [0x28, 0xb5, 0x2f, 0xfd] => Box::new(Zstd::new(blob)),
        [0x50..=0x5f, 0x2a, 0x4d, 0x18] => Box::new(Zstd::new(blob)),
        _ => Box::new(blob),
    })
}

/// Frames of zstd, one after the other, with some that are passed over: RFC 8878, section 3.1.
struct Zstd<R> {
    blob: R,
    decoder: FrameDecoder,
    is_within: bool,
}

impl<R: BufRead> Zstd<R> {
    fn new(blob: R) -> Zstd<R> {
        Zstd { blob, decoder: FrameDecoder::new(), is_within: false }
    }

    /// Goes to the next frame; not if there is none.
    fn begin(&mut self) -> io::Result<bool> {
        while !self.blob.fill_buf()?.is_empty() {
            match self.decoder.init(&mut self.blob) {
                Ok(()) => {
                    self.is_within = true;
                    return Ok(true);
                }
                Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame {
                    length,
                    ..
                })) => {
                    let mut passed_over = self.blob.by_ref().take(length.into());
                    if io::copy(&mut passed_over, &mut io::sink())? < u64::from(length) {
                        return Err(io::ErrorKind::UnexpectedEof.into());
                    }
                }
                Err(error) => return Err(damaged(&error)),
            }
        }
        Ok(false)
    }
}

impl<R: BufRead> Read for Zstd<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        loop {
            if !self.is_within && !self.begin()? {
                return Ok(0);
            }
            while self.decoder.can_collect() == 0 && !self.decoder.is_finished() {
                // A block has at most 128 KiB.
                let strategy = BlockDecodingStrategy::UptoBlocks(1);
                self.decoder.decode_blocks(&mut self.blob, strategy).map_err(|error| damaged(&error))?;
            }
            match self.decoder.read(buffer)? {
                0 => self.is_within = false,
                length => return Ok(length),
            }
        }
    }
}

fn damaged(why: &FrameDecoderError) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("the zstd stream is damaged: {why}"))
}

const BUFFER: usize = 128 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    /// `printf 'hello\n' | zstd | xxd`
    const HELLO: &[u8] = &[
        0x28, 0xb5, 0x2f, 0xfd, 0x04, 0x58, 0x31, 0x00, 0x00, b'h', b'e', b'l', b'l', b'o', b'\n', 0x53,
        0x88, 0xbd, 0x91,
    ];

    fn read(blob: &[u8]) -> io::Result<Vec<u8>> {
        let mut all = Vec::new();
        decompress(blob)?.read_to_end(&mut all)?;
        Ok(all)
    }

    #[test]
    fn frames_of_zstd_are_one_stream_and_some_are_passed_over() {
        let skipped = [0x5a, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 1, 2, 3];
        assert_eq!(read(HELLO).unwrap(), b"hello\n");
        assert_eq!(read(&[HELLO, &skipped, HELLO].concat()).unwrap(), b"hello\nhello\n");
        assert_eq!(read(&[&skipped, HELLO].concat()).unwrap(), b"hello\n");
        assert!(read(&HELLO[..12]).is_err());
        assert!(read(&[HELLO, b"garbage"].concat()).is_err());
        assert!(read(&[HELLO, &skipped[..9]].concat()).is_err());
    }

    #[test]
    fn what_is_not_compressed_is_as_it_is() {
        assert_eq!(read(b"").unwrap(), b"");
        assert_eq!(read(b"abc").unwrap(), b"abc");
    }
}
