//! Taking fields off the front of foreign bytes. Every function moves the slice on, or gives `None` when there is
//! too little of it; none can go out of bounds. Used by the parsers of this crate.

/// One byte.
pub(crate) fn u8(rest: &mut &[u8]) -> Option<u8> {
    let (value, after) = rest.split_first()?;
    *rest = after;
    Some(*value)
}

/// Two bytes, the high one first.
pub(crate) fn u16(rest: &mut &[u8]) -> Option<u16> {
    let (value, after) = rest.split_first_chunk::<2>()?;
    *rest = after;
    Some(u16::from_be_bytes(*value))
}

/// Exactly `length` bytes.
pub(crate) fn take<'a>(rest: &mut &'a [u8], length: usize) -> Option<&'a [u8]> {
    let (value, after) = rest.split_at_checked(length)?;
    *rest = after;
    Some(value)
}

/// A length of one byte, and as many bytes.
pub(crate) fn vector8<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = u8(rest)?;
    take(rest, length.into())
}

/// A length of two bytes, and as many bytes.
pub(crate) fn vector16<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = u16(rest)?;
    take(rest, length.into())
}
