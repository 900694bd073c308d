//! Timestamps, as RFC 3339 in UTC with microseconds.

use serde::{Serialize, Serializer};
use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A timestamp.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    /// Microseconds since 1970. A clock before that is wrong anyway.
    micros: u64,
}

impl Stamp {
    /// The present time.
    pub fn now() -> Stamp {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Stamp { micros: u64::try_from(since.as_micros()).unwrap_or(u64::MAX) }
    }

    /// The beginning of a second, counted from 1970.
    pub fn at(second: u64) -> Stamp {
        Stamp { micros: second.saturating_mul(1_000_000) }
    }

    /// A stamp as it is written; nothing of any other text.
    pub fn parse(text: &str) -> Option<Stamp> {
        let bytes = text.as_bytes();
        let marks = [(4, b'-'), (7, b'-'), (10, b'T'), (13, b':'), (16, b':'), (19, b'.'), (26, b'Z')];
        if bytes.len() != 27 || marks.iter().any(|(at, mark)| bytes[*at] != *mark) {
            return None;
        }
        let number = |from: usize, to: usize| text.get(from..to)?.parse::<u64>().ok();
        let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
        if year < 1970 || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
            return None;
        }
        let time = number(11, 13)? * 3600 + number(14, 16)? * 60 + number(17, 19)?;
        Some(Stamp { micros: (days(year, month, day) * 86_400 + time) * 1_000_000 + number(20, 26)? })
    }

    /// How long after the beginning of 1970.
    pub fn since_epoch(self) -> Duration {
        Duration::from_micros(self.micros)
    }

    /// Its second, counted from 1970.
    pub fn second(self) -> u64 {
        self.micros / 1_000_000
    }
}

impl fmt::Display for Stamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.micros / 1_000_000;
        let (year, month, day) = civil(seconds / 86_400);
        let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
        let micros = self.micros % 1_000_000;
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{micros:06}Z")
    }
}

impl Serialize for Stamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Year, month and day from days since 1970, by Howard Hinnant's `civil_from_days`: years start in March, so that the
/// leap day is the last of its year, and 400 of them always have the same length.
fn civil(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let era = days / 146_097;
    let day_of_era = days % 146_097;
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
}

/// The reverse, from 1970 on.
fn days(year: u64, month: u64, day: u64) -> u64 {
    let year = year - u64::from(month <= 2);
    let (era, year_of_era) = (year / 400, year % 400);
    let shifted_month = if month > 2 { month - 3 } else { month + 9 };
    let day_of_year = (153 * shifted_month + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_as_rfc_3339() {
        let cases = [
            (0, "1970-01-01T00:00:00.000000Z"),
            (951_782_400_000_000, "2000-02-29T00:00:00.000000Z"),
            (951_868_800_000_000, "2000-03-01T00:00:00.000000Z"),
            (1_709_251_199_999_999, "2024-02-29T23:59:59.999999Z"),
            (1_767_225_599_000_001, "2025-12-31T23:59:59.000001Z"),
            (1_794_722_400_123_456, "2026-11-15T06:00:00.123456Z"),
            (4_107_542_400_000_000, "2100-03-01T00:00:00.000000Z"),
        ];
        for (micros, text) in cases {
            assert_eq!(Stamp { micros }.to_string(), text);
            assert_eq!(Stamp::parse(text), Some(Stamp { micros }), "{text}");
        }
    }
}
