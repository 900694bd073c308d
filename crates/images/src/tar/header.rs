//! One header: 512 bytes, `pax(1)` of POSIX.1-2017 and the "Basic Tar Format" of GNU tar's manual.

use super::TarError;

/// What an entry is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    File,
    HardLink,
    Symlink,
    CharDevice,
    BlockDevice,
    Directory,
    Fifo,
}

/// What a header says: an entry, or something about the next one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Meaning {
    Entry(Kind),
    LongName,
    LongLink,
    Pax,
    /// For all that follows; nothing in it is for us.
    PaxGlobal,
}

/// A header, as it was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) meaning: Meaning,
    pub(super) name: Vec<u8>,
    pub(super) link: Vec<u8>,
    pub(super) mode: u32,
    pub(super) uid: u64,
    pub(super) gid: u64,
    pub(super) size: u64,
    pub(super) mtime: i64,
}

impl Header {
    pub(super) fn parse(block: &[u8; BLOCK]) -> Result<Header, TarError> {
        let stated = number(&block[148..156])?;
        let (unsigned, signed) = sums(block);
        // Some old archivers summed signed bytes.
        if stated != i128::from(unsigned) && stated != i128::from(signed) {
            return Err(TarError::Header("its checksum is wrong"));
        }
        let positive = |field: &[u8]| {
            u64::try_from(number(field)?).map_err(|_| TarError::Header("a number is negative"))
        };
        let mut name = text(&block[..100]).to_vec();
        let prefix = text(&block[345..500]);
        if &block[257..263] == b"ustar\0" && !prefix.is_empty() {
            name = [prefix, b"/", &name].concat();
        }
        let mut meaning = meaning(block[156])?;
        // Before there was a letter for it.
        if meaning == Meaning::Entry(Kind::File) && block[156] == 0 && name.ends_with(b"/") {
            meaning = Meaning::Entry(Kind::Directory);
        }
        let size = match meaning {
            // These have no content, whatever they say: as Go reads them, which makes most layers.
            Meaning::Entry(kind) if kind != Kind::File => 0,
            _ => positive(&block[124..136])?,
        };
        Ok(Header {
            meaning,
            name,
            link: text(&block[157..257]).to_vec(),
            mode: (number(&block[100..108])? & 0o7777) as u32,
            uid: positive(&block[108..116])?,
            gid: positive(&block[116..124])?,
            size,
            mtime: i64::try_from(number(&block[136..148])?).unwrap_or(0),
        })
    }
}

fn meaning(letter: u8) -> Result<Meaning, TarError> {
    Ok(match letter {
        0 | b'0' | b'7' => Meaning::Entry(Kind::File),
        b'1' => Meaning::Entry(Kind::HardLink),
        b'2' => Meaning::Entry(Kind::Symlink),
        b'3' => Meaning::Entry(Kind::CharDevice),
        b'4' => Meaning::Entry(Kind::BlockDevice),
        b'5' => Meaning::Entry(Kind::Directory),
        b'6' => Meaning::Entry(Kind::Fifo),
        b'L' => Meaning::LongName,
        b'K' => Meaning::LongLink,
        b'x' => Meaning::Pax,
        b'g' => Meaning::PaxGlobal,
        b'S' => return Err(TarError::Sparse),
        other => return Err(TarError::Unknown(other.into())),
    })
}

/// Up to the first zero.
pub(super) fn text(field: &[u8]) -> &[u8] {
    &field[..memchr::memchr(0, field).unwrap_or(field.len())]
}

/// Octal digits among blanks; or, with the first bit set, a binary number of two's complement.
fn number(field: &[u8]) -> Result<i128, TarError> {
    if field[0] & 0x80 != 0 {
        let negative = field[0] & 0x40 != 0;
        let first = if negative { i128::from(field[0]) - 256 } else { i128::from(field[0] & 0x7f) };
        // At most twelve bytes: they fit.
        return Ok(field[1..].iter().fold(first, |value, byte| (value << 8) | i128::from(*byte)));
    }
    let blank = |byte: &u8| matches!(byte, b' ' | 0);
    let digits = field.iter().skip_while(|byte| blank(byte)).take_while(|byte| !blank(byte));
    let mut value: i128 = 0;
    for digit in digits {
        if !matches!(digit, b'0'..=b'7') {
            return Err(TarError::Header("a number is none"));
        }
        value = value * 8 + i128::from(digit - b'0');
    }
    Ok(value)
}

fn sums(block: &[u8; BLOCK]) -> (u32, i32) {
    let counted = |at: usize| if (148..156).contains(&at) { b' ' } else { block[at] };
    (0..BLOCK)
        .map(counted)
        .fold((0, 0), |(unsigned, signed), byte| (unsigned + u32::from(byte), signed + i32::from(byte as i8)))
}

pub(super) const BLOCK: usize = 512;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_octal_or_binary_and_nothing_else() {
        for (field, value) in [
            (&b"0000644\0"[..], Some(0o644)),
            (b"   644 \0", Some(0o644)),
            (b"\0\0\0\0\0\0\0\0", Some(0)),
            (b"77777777777\0", Some(0o77777777777)),
            (b"\x80\0\0\0\0\0\0\x02\0\0\0\0", Some(1 << 33)),
            (b"\xff\xff\xff\xff\xff\xff\xff\xff", Some(-1)),
            (b"12x4567\0", None),
            (b"-000001\0", None),
            (b"8\0\0\0\0\0\0\0", None),
        ] {
            assert_eq!(number(field).ok(), value, "{field:?}");
        }
    }
}
