//! Entries, one after the other.

use super::TarError;
use super::header::{BLOCK, Header, Kind, Meaning, text};
use super::pax::Pax;
use std::io::{self, Read};

/// An archive that is being read.
pub(crate) struct Archive<R> {
    input: R,
    /// Of the present entry's content.
    unread: u64,
    /// Behind it, up to the next header.
    padding: u64,
    is_over: bool,
}

/// One entry. Its content, if it is a file, is read from the archive before the next one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) kind: Kind,
    pub(crate) path: Vec<u8>,
    pub(crate) link: Vec<u8>,
    pub(crate) mode: u32,
    pub(crate) uid: u64,
    pub(crate) gid: u64,
    pub(crate) size: u64,
    pub(crate) mtime: (i64, u32),
    pub(crate) attributes: Vec<(Vec<u8>, Vec<u8>)>,
}

impl<R: Read> Archive<R> {
    pub(crate) fn new(input: R) -> Archive<R> {
        Archive { input, unread: 0, padding: 0, is_over: false }
    }

    /// The next entry. What was not read of the last one is passed over.
    pub(crate) fn next(&mut self) -> Result<Option<Entry>, TarError> {
        let (mut pax, mut name, mut link) = (Pax::default(), None, None);
        let mut about = 0;
        loop {
            let Some(header) = self.header()? else {
                // Something about an entry that never comes.
                return if about == 0 { Ok(None) } else { Err(TarError::Truncated) };
            };
            let kind = match header.meaning {
                Meaning::Entry(kind) => kind,
                extension => {
                    about += 1;
                    if header.size > EXTENSION || about > EXTENSIONS {
                        return Err(TarError::Extension);
                    }
                    self.begin(header.size);
                    let mut content = Vec::with_capacity(header.size as usize);
                    Read::by_ref(self).read_to_end(&mut content).map_err(io_or_truncated)?;
                    match extension {
                        Meaning::LongName => name = Some(text(&content).to_vec()),
                        Meaning::LongLink => link = Some(text(&content).to_vec()),
                        Meaning::Pax => pax.read(&content)?,
                        Meaning::PaxGlobal | Meaning::Entry(_) => {}
                    }
                    continue;
                }
            };
            let size = if kind == Kind::File { pax.size.unwrap_or(header.size) } else { 0 };
            if size > i64::MAX as u64 {
                return Err(TarError::Header("a size is larger than any file"));
            }
            self.begin(size);
            return Ok(Some(Entry {
                kind,
                path: pax.path.or(name).unwrap_or(header.name),
                link: pax.link.or(link).unwrap_or(header.link),
                mode: header.mode,
                uid: pax.uid.unwrap_or(header.uid),
                gid: pax.gid.unwrap_or(header.gid),
                size,
                mtime: pax.mtime.unwrap_or((header.mtime, 0)),
                attributes: pax.attributes,
            }));
        }
    }

    /// Reads whatever is behind the end, which is part of the layer's digest and of nothing else.
    pub(crate) fn finish(mut self) -> Result<R, TarError> {
        io::copy(&mut self.input, &mut io::sink()).map_err(TarError::Io)?;
        Ok(self.input)
    }

    fn begin(&mut self, size: u64) {
        self.unread = size;
        self.padding = (BLOCK as u64 - size % BLOCK as u64) % BLOCK as u64;
    }

    fn header(&mut self) -> Result<Option<Header>, TarError> {
        if self.is_over {
            return Ok(None);
        }
        let behind = self.unread + self.padding;
        let passed =
            io::copy(&mut self.input.by_ref().take(behind), &mut io::sink()).map_err(TarError::Io)?;
        // Where the last entry's content is whole, its padding may be missing: some archivers forget it.
        if passed < self.unread {
            return Err(TarError::Truncated);
        }
        (self.unread, self.padding) = (0, 0);
        let Some(block) = self.block()? else {
            // Without the two empty blocks that POSIX asks for. Go takes that as the end.
            self.is_over = true;
            return Ok(None);
        };
        if block.iter().any(|byte| *byte != 0) {
            return Header::parse(&block).map(Some);
        }
        self.is_over = true;
        match self.block()? {
            Some(block) if block.iter().any(|byte| *byte != 0) => {
                Err(TarError::Header("an empty one is in the middle"))
            }
            _ => Ok(None),
        }
    }

    fn block(&mut self) -> Result<Option<[u8; BLOCK]>, TarError> {
        let mut block = [0; BLOCK];
        let mut have = 0;
        while have < BLOCK {
            match self.input.read(&mut block[have..]) {
                Ok(0) if have == 0 => return Ok(None),
                Ok(0) => return Err(TarError::Truncated),
                Ok(length) => have += length,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(TarError::Io(error)),
            }
        }
        Ok(Some(block))
    }
}

/// The content of the present entry. That it ends too soon is an error.
impl<R: Read> Read for Archive<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = buffer.len().min(usize::try_from(self.unread).unwrap_or(usize::MAX));
        if most == 0 {
            return Ok(0);
        }
        let length = self.input.read(&mut buffer[..most])?;
        if length == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.unread -= length as u64;
        Ok(length)
    }
}

pub(super) fn io_or_truncated(error: io::Error) -> TarError {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => TarError::Truncated,
        _ => TarError::Io(error),
    }
}

/// A long name and attributes: the kernel takes 4096 bytes of the one and 64 KiB of the other.
const EXTENSION: u64 = 1 << 20;
/// Before one entry.
const EXTENSIONS: usize = 8;
