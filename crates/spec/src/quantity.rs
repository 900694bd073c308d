//! Sizes, shares of processors and times, as people write them.

use serde::Serialize;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// A number of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct ByteSize(u64);

impl ByteSize {
    /// Exactly this many.
    pub const fn bytes(bytes: u64) -> ByteSize {
        ByteSize(bytes)
    }

    /// 1024 × 1024.
    pub const fn mebibytes(mebibytes: u64) -> ByteSize {
        ByteSize(mebibytes << 20)
    }

    /// As a number.
    pub const fn as_u64(self) -> u64 {
        self.0
    }
}

/// Processors, in thousandths.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct Cpus(u32);

impl Cpus {
    /// Whole ones.
    pub const fn whole(cpus: u32) -> Cpus {
        Cpus(cpus.saturating_mul(1000))
    }

    /// In thousandths.
    pub const fn as_millis(self) -> u32 {
        self.0
    }
}

/// Text that is no quantity.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParseQuantityError {
    /// Not a size.
    #[error("`{0}` is not a size: write a number and k, m, g or t, as in `512m` or `2g`")]
    Size(String),
    /// A size beyond what anything holds.
    #[error("`{0}` is larger than any machine: write a size as in `512m` or `2g`")]
    SizeTooLarge(String),
    /// Not a number of processors.
    #[error("`{0}` is not a number of processors: write one above 0, as in `2` or `0.5`")]
    Cpus(String),
    /// Not a time.
    #[error("`{0}` is not a time: write a number and ms, s, m or h, as in `90s` or `10m`")]
    Time(String),
}

impl FromStr for ByteSize {
    type Err = ParseQuantityError;

    fn from_str(text: &str) -> Result<ByteSize, ParseQuantityError> {
        let wrong = || ParseQuantityError::Size(text.to_string());
        let (number, unit) = split(text).ok_or_else(wrong)?;
        let factor: u64 = match unit.to_ascii_lowercase().as_str() {
            "" | "b" => 1,
            "k" | "kb" | "kib" => 1 << 10,
            "m" | "mb" | "mib" => 1 << 20,
            "g" | "gb" | "gib" => 1 << 30,
            "t" | "tb" | "tib" => 1 << 40,
            _ => return Err(wrong()),
        };
        let bytes = number * factor as f64;
        match bytes {
            bytes if bytes > (1u64 << 62) as f64 => Err(ParseQuantityError::SizeTooLarge(text.to_string())),
            bytes if bytes >= 1.0 => Ok(ByteSize(bytes as u64)),
            _ => Err(wrong()),
        }
    }
}

impl FromStr for Cpus {
    type Err = ParseQuantityError;

    fn from_str(text: &str) -> Result<Cpus, ParseQuantityError> {
        match split(text) {
            Some((number, "")) if (0.001..=4096.0).contains(&number) => {
                Ok(Cpus((number * 1000.0).round() as u32))
            }
            _ => Err(ParseQuantityError::Cpus(text.to_string())),
        }
    }
}

/// A time, as in `90s`; a bare number is seconds.
pub fn parse_time(text: &str) -> Result<Duration, ParseQuantityError> {
    let wrong = || ParseQuantityError::Time(text.to_string());
    let (number, unit) = split(text).ok_or_else(wrong)?;
    let seconds = match unit {
        "ms" => number / 1000.0,
        "" | "s" => number,
        "m" | "min" => number * 60.0,
        "h" => number * 3600.0,
        _ => return Err(wrong()),
    };
    if (0.001..=366.0 * 86_400.0).contains(&seconds) {
        Ok(Duration::from_secs_f64(seconds))
    } else {
        Err(wrong())
    }
}

/// Digits with at most one point, and what follows them.
fn split(text: &str) -> Option<(f64, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    if !number.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    Some((number.parse().ok()?, unit))
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [("t", 40), ("g", 30), ("m", 20), ("k", 10)];
        match units.into_iter().find(|(_, shift)| self.0 >= 1 << shift) {
            Some((unit, shift)) if self.0.is_multiple_of(1 << shift) => {
                write!(f, "{}{unit}", self.0 >> shift)
            }
            Some((unit, shift)) => write!(f, "{:.1}{unit}", self.0 as f64 / (1u64 << shift) as f64),
            None => write!(f, "{}", self.0),
        }
    }
}

impl fmt::Display for Cpus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", f64::from(self.0) / 1000.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        for (text, expected) in [
            ("1", Some(1)),
            ("512m", Some(512 << 20)),
            ("2g", Some(2 << 30)),
            ("2GiB", Some(2 << 30)),
            ("1.5k", Some(1536)),
            ("2gigs", None),
            ("", None),
            ("0", None),
            ("-1", None),
            ("m", None),
            ("1.2.3", None),
            ("99999999t", None),
        ] {
            assert_eq!(text.parse::<ByteSize>().ok().map(ByteSize::as_u64), expected, "{text}");
        }
    }

    #[test]
    fn times() {
        for (text, expected) in [
            ("90", Some(90_000)),
            ("500ms", Some(500)),
            ("10m", Some(600_000)),
            ("1.5h", Some(5_400_000)),
            ("0", None),
            ("soon", None),
            ("1d", None),
        ] {
            assert_eq!(parse_time(text).ok().map(|time| time.as_millis()), expected, "{text}");
        }
    }

    #[test]
    fn processors() {
        for (text, expected) in
            [("2", Some(2000)), ("0.5", Some(500)), ("0", None), ("two", None), ("1g", None)]
        {
            assert_eq!(text.parse::<Cpus>().ok().map(Cpus::as_millis), expected, "{text}");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_refused_or_understood(text in ".{0,20}") {
            let _ = text.parse::<ByteSize>();
            let _ = text.parse::<Cpus>();
            let _ = parse_time(&text);
        }
    }
}
