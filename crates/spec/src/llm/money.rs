//! Money, in whole millionths of a dollar, and what models cost.

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

/// What a token costs, by its kind; in millionths of a millionth of a dollar.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Price {
    pub input: u64,
    pub output: u64,
    pub cache_read: u64,
    pub cache_write: u64,
}

/// Not a price.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a price: write dollars for a million tokens, as in `3.0` or `0.075`")]
pub struct PriceError(pub String);

impl Price {
    /// A price as people write it: dollars for a million tokens.
    pub fn per_million(dollars: f64) -> Result<u64, PriceError> {
        match (0.0..=1e6).contains(&dollars) {
            true => Ok((dollars * 1e6).round() as u64),
            false => Err(PriceError(dollars.to_string())),
        }
    }

    /// What these tokens cost, rounded up. Input is what was neither read from a cache nor written to one.
    pub fn of(&self, input: u64, output: u64, cache_read: u64, cache_write: u64) -> Usd {
        let parts = [
            (input, self.input),
            (output, self.output),
            (cache_read, self.cache_read),
            (cache_write, self.cache_write),
        ];
        let sum: u128 = parts.iter().map(|(tokens, price)| u128::from(*tokens) * u128::from(*price)).sum();
        Usd(u64::try_from(sum.div_ceil(1_000_000)).unwrap_or(u64::MAX))
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

    #[test]
    fn tokens_cost_what_their_kind_costs() {
        let price = Price {
            input: Price::per_million(3.0).unwrap(),
            output: Price::per_million(15.0).unwrap(),
            cache_read: Price::per_million(0.3).unwrap(),
            cache_write: Price::per_million(3.75).unwrap(),
        };
        assert_eq!(price.of(1_000_000, 0, 0, 0).to_string(), "3.00");
        assert_eq!(price.of(100, 30, 0, 2000).as_micros(), 300 + 450 + 7500);
        assert_eq!(price.of(0, 0, 1, 0).as_micros(), 1);
        assert_eq!(price.of(u64::MAX, u64::MAX, u64::MAX, u64::MAX).as_micros(), u64::MAX);
        assert!(Price::per_million(-1.0).is_err() && Price::per_million(f64::NAN).is_err());
    }
}
