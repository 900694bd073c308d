//! Money, in whole millionths of a dollar.

use crate::egress::Printable;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// An amount, in millionths of a US dollar.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Usd(u64);

impl Usd {
    /// So many millionths.
    pub const fn micros(micros: u64) -> Usd {
        Usd(micros)
    }

    /// In millionths.
    pub const fn as_micros(self) -> u64 {
        self.0
    }

    /// An amount that a server wrote as a number of dollars; rounded up. `None` for what is no amount.
    pub fn from_dollars(dollars: f64) -> Option<Usd> {
        // Many more dollars than anybody has would not fit. What is left of a number that has no exact form is no money.
        (0.0..=1e9).contains(&dollars).then(|| Usd((dollars * 1e6 - 1e-6).ceil() as u64))
    }

    /// Both together.
    #[must_use]
    pub const fn plus(self, other: Usd) -> Usd {
        Usd(self.0.saturating_add(other.0))
    }
}

/// Not an amount.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not an amount of dollars: write one above 0, as in `5` or `0.50`")]
pub struct UsdError(Printable);

impl FromStr for Usd {
    type Err = UsdError;

    fn from_str(text: &str) -> Result<Usd, UsdError> {
        let digits = text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
        let amount = text.parse().ok().filter(|_| digits).and_then(Usd::from_dollars);
        amount.filter(|amount| amount.0 > 0).ok_or_else(|| UsdError(text.into()))
    }
}

/// At least two digits behind the point, and as many as it takes.
impl fmt::Display for Usd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, rest) = (self.0 / 1_000_000, self.0 % 1_000_000);
        let digits = format!("{rest:06}");
        let end = digits.trim_end_matches('0').len().max(2);
        write!(f, "{whole}.{}", &digits[..end])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_written_as_people_do() {
        for (text, micros, shown) in
            [("5", 5_000_000, "5.00"), ("0.5", 500_000, "0.50"), ("0.000123", 123, "0.000123")]
        {
            let amount: Usd = text.parse().unwrap();
            assert_eq!((amount.as_micros(), amount.to_string().as_str()), (micros, shown));
        }
        for text in ["", "0", "-1", "1e3", "five", "nan", "inf", "99999999999"] {
            assert!(text.parse::<Usd>().is_err(), "{text}");
        }
        assert_eq!(Usd::from_dollars(f64::NAN), None);
        assert_eq!(Usd::from_dollars(-0.1), None);
        // A part of a millionth is one.
        assert_eq!(Usd::from_dollars(1e-9), Some(Usd::micros(1)));
    }
}
