//! Ports, as people write them.

use super::Printable;
use serde::{Serialize, Serializer};
use std::fmt;
use std::str::FromStr;

/// One port or some in a row: `443`, `8000-8100`. Port 0 is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PortRange {
    first: u16,
    last: u16,
}

impl PortRange {
    /// Every port.
    pub const ALL: PortRange = PortRange { first: 1, last: u16::MAX };

    /// Where names are asked. Whatever address is dialled at this port inside, it is the gateway that answers: it leads nowhere else.
    pub const DNS: u16 = 53;

    /// From one to the other, both included.
    pub fn new(first: u16, last: u16) -> Result<PortRange, PortRangeError> {
        match (first, last) {
            (0, _) | (_, 0) => Err(PortRangeError::Zero),
            _ if last < first => Err(PortRangeError::Backwards { first, last }),
            _ => Ok(PortRange { first, last }),
        }
    }

    /// The lowest.
    pub fn first(self) -> u16 {
        self.first
    }

    /// The highest.
    pub fn last(self) -> u16 {
        self.last
    }

    /// Is it one of them?
    pub fn contains(self, port: u16) -> bool {
        (self.first..=self.last).contains(&port)
    }

    /// If the number is that of a port at all.
    pub fn only(port: u16) -> Result<PortRange, PortRangeError> {
        PortRange::new(port, port)
    }
}

/// Text that is no port.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PortRangeError {
    /// Not a number, or too large.
    #[error("`{0}` is not a port: write 1 to 65535, as in `443` or `8000-8100`")]
    NotANumber(Printable),
    /// Port 0.
    #[error("`0` is not a port: write 1 to 65535, as in `443` or `8000-8100`")]
    Zero,
    /// The end before the start.
    #[error("`{first}-{last}` runs backwards: write `{last}-{first}`")]
    Backwards { first: u16, last: u16 },
}

impl FromStr for PortRange {
    type Err = PortRangeError;

    fn from_str(text: &str) -> Result<PortRange, PortRangeError> {
        let number = |digits: &str| match digits.bytes().all(|byte| byte.is_ascii_digit()) {
            true => digits.parse::<u16>().map_err(|_| PortRangeError::NotANumber(text.into())),
            false => Err(PortRangeError::NotANumber(text.into())),
        };
        match text.split_once('-') {
            Some((first, last)) => PortRange::new(number(first)?, number(last)?),
            None => PortRange::only(number(text)?),
        }
    }
}

impl fmt::Display for PortRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.first == self.last {
            true => write!(f, "{}", self.first),
            false => write!(f, "{}-{}", self.first, self.last),
        }
    }
}

impl Serialize for PortRange {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_understood_or_refused() {
        for (text, expected) in [
            ("443", Some((443, 443))),
            ("8000-8100", Some((8000, 8100))),
            ("1-65535", Some((1, 65535))),
            ("7-7", Some((7, 7))),
            ("0", None),
            ("0-5", None),
            ("5-0", None),
            ("65536", None),
            ("8100-8000", None),
            ("", None),
            ("-", None),
            ("1-", None),
            ("+1", None),
            ("1-2-3", None),
            ("https", None),
        ] {
            let range = text.parse::<PortRange>().ok().map(|range| (range.first(), range.last()));
            assert_eq!(range, expected, "{text}");
        }
    }
}
