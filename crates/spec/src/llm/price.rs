//! What a model costs: rates by kind of token, length bands, hours of the day and dates. An unknown rate stays unknown; the cost of
//! a call that needs it is then unknown as well.
//!
//! Pure: callers say which second it is.

use super::Usd;
use crate::egress::Printable;

/// Dollars for a token, by its kind, in millionths of a millionth; `None` is not known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Rates {
    pub input: Option<u64>,
    pub output: Option<u64>,
    pub cache_read: Option<u64>,
    /// Written to a cache for the usual time (at Anthropic, 5 minutes).
    pub cache_write: Option<u64>,
    /// Written to a cache for an hour.
    pub cache_write_1h: Option<u64>,
}

/// Not a rate.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a price: write dollars for a million tokens, as in `3.0` or `0.075`")]
pub struct RateError(Printable);

impl Rates {
    /// A rate as people write it: dollars for a million tokens.
    pub fn per_million(dollars: f64) -> Result<u64, RateError> {
        match (0.0..=1e6).contains(&dollars) {
            true => Ok((dollars * 1e6).round() as u64),
            false => Err(RateError(dollars.to_string().as_str().into())),
        }
    }

    /// What these tokens cost, rounded up.
    fn cost(&self, tokens: &Tokens) -> Cost {
        let known = [
            (tokens.input, self.input),
            (tokens.output, self.output),
            (tokens.cache_write, self.cache_write),
            (tokens.cache_write_1h, self.cache_write_1h),
        ];
        let part = |tokens: u64, rate: Option<u64>| match tokens {
            0 => Some(0),
            tokens => rate.map(|rate| u128::from(tokens) * u128::from(rate)),
        };
        let rest: Option<u128> = known.into_iter().map(|(tokens, rate)| part(tokens, rate)).sum();
        let with = |cache_read: Option<u64>| {
            let sum = rest?.saturating_add(part(tokens.cache_read, cache_read)?);
            Some(Usd::micros(u64::try_from(sum.div_ceil(1_000_000)).unwrap_or(u64::MAX)))
        };
        Cost { exact: with(self.cache_read), at_most: with(self.cache_read.or(self.input)) }
    }

    /// Whether every token is free, of whatever kind.
    fn are_zero(&self) -> bool {
        let Rates { input, output, cache_read, cache_write, cache_write_1h } = *self;
        let others = [cache_read, cache_write, cache_write_1h];
        input == Some(0) && output == Some(0) && others.into_iter().flatten().all(|rate| rate == 0)
    }
}

/// The tokens of one call. Input is what was neither read from a cache nor written to one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tokens {
    pub input: u64,
    pub output: u64,
    pub cache_read: u64,
    pub cache_write: u64,
    pub cache_write_1h: u64,
}

impl Tokens {
    /// All that goes in: by this, providers choose the length band.
    fn going_in(&self) -> u64 {
        let Tokens { input, output: _, cache_read, cache_write, cache_write_1h } = *self;
        [input, cache_read, cache_write, cache_write_1h].into_iter().fold(0, u64::saturating_add)
    }
}

/// What a call costs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cost {
    /// `None` if a rate that it needs is not known.
    pub exact: Option<Usd>,
    /// An upper bound, for budgets: reading from a cache costs no more than plain input. `None` if another rate is not known.
    pub at_most: Option<Usd>,
}

/// The rates for requests with more input tokens than this.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Band {
    pub over_tokens: u64,
    pub rates: Rates,
}

/// The rates outside of the peak hours.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OffPeak {
    pub rates: Rates,
    pub peak: PeakHours,
}

/// The hours at which the ordinary rates apply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeakHours {
    /// From Monday.
    pub weekdays: [bool; 7],
    /// In UTC: from the first to before the second.
    pub hours: Vec<(u8, u8)>,
}

impl PeakHours {
    fn contain(&self, second: u64) -> bool {
        // The first of January 1970 was a Thursday.
        let weekday = (second / SECONDS_OF_A_DAY + 3) % 7;
        let hour = second % SECONDS_OF_A_DAY / 3600;
        self.weekdays[weekday as usize]
            && self.hours.iter().any(|(from, to)| (u64::from(*from)..u64::from(*to)).contains(&hour))
    }
}

/// Rates that replace all others from a day on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PriceChange {
    pub from: Date,
    pub rates: Rates,
}

/// What a model costs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Price {
    pub rates: Rates,
    /// The lowest first.
    pub bands: Vec<Band>,
    pub off_peak: Option<OffPeak>,
    /// The earliest first.
    pub changes: Vec<PriceChange>,
}

impl Price {
    /// The same rates always.
    pub fn flat(rates: Rates) -> Price {
        Price { rates, ..Price::default() }
    }

    /// The rates of a request with so many input tokens that is sent at this second, counted from 1970.
    pub fn rates_at(&self, second: u64, going_in: u64) -> Rates {
        let changed = self.changes.iter().rev().find(|change| change.from.second() <= second);
        if let Some(change) = changed {
            return change.rates;
        }
        if let Some(band) = self.bands.iter().rev().find(|band| going_in > band.over_tokens) {
            return band.rates;
        }
        match &self.off_peak {
            Some(off_peak) if !off_peak.peak.contain(second) => off_peak.rates,
            Some(_) | None => self.rates,
        }
    }

    /// What a call costs that was sent at this second.
    pub fn cost(&self, tokens: &Tokens, second: u64) -> Cost {
        self.rates_at(second, tokens.going_in()).cost(tokens)
    }

    /// Whether plain input and output have a rate at this second.
    pub fn is_known(&self, second: u64) -> bool {
        let rates = self.rates_at(second, 0);
        rates.input.is_some() && rates.output.is_some()
    }

    /// Whether no call costs anything at this second.
    pub fn is_free(&self, second: u64) -> bool {
        self.rates_at(second, 0).are_zero() && self.rates_at(second, u64::MAX).are_zero()
    }
}

/// A day of the calendar.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Date {
    year: u16,
    month: u8,
    day: u8,
}

/// Not a date.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a date: write it as in `2026-12-01`")]
pub struct DateError(Printable);

impl Date {
    /// When it begins in UTC, counted from 1970; by Howard Hinnant's `days_from_civil`.
    fn second(self) -> u64 {
        let (year, month) = (u64::from(self.year), u64::from(self.month));
        let year = year - u64::from(month <= 2);
        let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + u64::from(self.day) - 1;
        let day_of_era = year % 400 * 365 + year % 400 / 4 - year % 400 / 100 + day_of_year;
        (year / 400 * 146_097 + day_of_era - 719_468) * SECONDS_OF_A_DAY
    }
}

impl std::str::FromStr for Date {
    type Err = DateError;

    fn from_str(text: &str) -> Result<Date, DateError> {
        let wrong = || DateError(text.into());
        let digits = |range: std::ops::Range<usize>| {
            let part = text.get(range).filter(|part| part.bytes().all(|byte| byte.is_ascii_digit()));
            part.and_then(|part| part.parse::<u16>().ok()).ok_or_else(wrong)
        };
        let (year, month, day) = (digits(0..4)?, digits(5..7)?, digits(8..10)?);
        let dashes = text.len() == 10 && text.as_bytes()[4] == b'-' && text.as_bytes()[7] == b'-';
        let fits = dashes && year >= 1970 && (1..=12).contains(&month) && (1..=31).contains(&day);
        fits.then_some(Date { year, month: month as u8, day: day as u8 }).ok_or_else(wrong)
    }
}

impl std::fmt::Display for Date {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:04}-{:02}-{:02}", self.year, self.month, self.day)
    }
}

/// One model of the built-in list of prices.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListPrice {
    pub provider: String,
    /// What else routers and proxies write before the slash: `gemini/...` for a model of Google.
    pub prefixes: Vec<String>,
    pub model: String,
    pub aliases: Vec<String>,
    pub price: Price,
    pub source: String,
    pub note: Option<String>,
}

impl ListPrice {
    /// Whether this is what a model of this name costs: with or without its provider before a slash, and with or without the date of
    /// a snapshot behind it.
    pub fn is_for(&self, name: &str) -> bool {
        let known =
            |prefix: &str| prefix == self.provider || self.prefixes.iter().any(|known| known == prefix);
        let name = match name.split_once('/') {
            Some((prefix, rest)) if known(prefix) => rest,
            _ => name,
        };
        let names = std::iter::once(&self.model).chain(&self.aliases);
        names.filter_map(|known| name.strip_prefix(known.as_str())).any(is_snapshot)
    }
}

/// `-20250929`, `@20250929`, `-2025-08-07`, or nothing.
fn is_snapshot(rest: &str) -> bool {
    let Some(date) = rest.strip_prefix(['-', '@']) else { return rest.is_empty() };
    let is_short =
        date.len() == 8 && date.starts_with("20") && date.bytes().all(|byte| byte.is_ascii_digit());
    is_short || date.parse::<Date>().is_ok()
}

const SECONDS_OF_A_DAY: u64 = 86_400;

#[cfg(test)]
mod tests {
    use super::*;

    fn rates(input: f64, output: f64, cache_read: Option<f64>, cache_write: Option<f64>) -> Rates {
        let each = |dollars: f64| Rates::per_million(dollars).unwrap();
        Rates {
            input: Some(each(input)),
            output: Some(each(output)),
            cache_read: cache_read.map(each),
            cache_write: cache_write.map(each),
            cache_write_1h: cache_write.map(|dollars| each(2.0 * dollars)),
        }
    }

    fn second(date: &str, hour: u64) -> u64 {
        date.parse::<Date>().unwrap().second() + hour * 3600
    }

    #[test]
    fn tokens_cost_what_their_kind_costs() {
        let price = Price::flat(rates(3.0, 15.0, Some(0.3), Some(3.75)));
        let exact = |tokens: Tokens| price.cost(&tokens, 0).exact.unwrap().as_micros();
        let million = Tokens { input: 1_000_000, ..Tokens::default() };
        assert_eq!(exact(million), 3_000_000);
        let tokens = Tokens { input: 100, output: 30, cache_write: 2000, ..Tokens::default() };
        assert_eq!(exact(tokens), 300 + 450 + 7500);
        assert_eq!(exact(Tokens { cache_write_1h: 2000, ..Tokens::default() }), 15_000);
        assert_eq!(exact(Tokens { cache_read: 1, ..Tokens::default() }), 1);
        let all = u64::MAX;
        let most = Tokens { input: all, output: all, cache_read: all, cache_write: all, cache_write_1h: all };
        assert_eq!(exact(most), u64::MAX);
        assert!(Rates::per_million(-1.0).is_err() && Rates::per_million(f64::NAN).is_err());
    }

    #[test]
    fn an_unknown_rate_makes_the_cost_unknown_and_reading_a_cache_has_a_bound() {
        let price = Price::flat(rates(2.0, 10.0, None, None));
        let plain = Tokens { input: 10, output: 1, ..Tokens::default() };
        assert_eq!(price.cost(&plain, 0).exact, Some(Usd::micros(30)));
        let read = Tokens { cache_read: 10, ..plain };
        assert_eq!(price.cost(&read, 0), Cost { exact: None, at_most: Some(Usd::micros(50)) });
        let written = Tokens { cache_write: 1, ..plain };
        assert_eq!(price.cost(&written, 0), Cost { exact: None, at_most: None });
    }

    #[test]
    fn a_long_request_is_charged_by_its_band() {
        let bands = [(200_000, 6.0), (400_000, 12.0)]
            .map(|(over_tokens, input)| Band { over_tokens, rates: rates(input, 1.0, Some(0.0), None) });
        let price = Price { bands: bands.into(), ..Price::flat(rates(3.0, 1.0, Some(0.0), None)) };
        for (input, cache_read, expected) in
            [(200_000, 0, 600_000), (1, 200_000, 6), (200_001, 0, 1_200_006), (1, 400_000, 12)]
        {
            let tokens = Tokens { input, cache_read, ..Tokens::default() };
            assert_eq!(price.cost(&tokens, 0).exact, Some(Usd::micros(expected)), "{input} {cache_read}");
        }
    }

    #[test]
    fn the_hour_and_the_date_decide() {
        let weekdays = [true, true, true, true, true, false, false];
        let peak = PeakHours { weekdays, hours: vec![(1, 4), (6, 10)] };
        let cheap = rates(1.0, 1.0, None, None);
        let later = rates(9.0, 9.0, None, None);
        let price = Price {
            off_peak: Some(OffPeak { rates: cheap, peak }),
            changes: vec![PriceChange { from: "2026-12-01".parse().unwrap(), rates: later }],
            ..Price::flat(rates(2.0, 2.0, None, None))
        };
        // The 19th of November 2026 is a Thursday, the 21st a Saturday.
        for (date, hour, expected) in [
            ("2026-11-19", 0, 1.0),
            ("2026-11-19", 1, 2.0),
            ("2026-11-19", 4, 1.0),
            ("2026-11-19", 9, 2.0),
            ("2026-11-21", 9, 1.0),
            ("2026-11-30", 23, 1.0),
            ("2026-12-01", 0, 9.0),
        ] {
            let expected = Rates::per_million(expected).ok();
            assert_eq!(price.rates_at(second(date, hour), 0).input, expected, "{date} {hour}");
        }
    }

    #[test]
    fn a_price_that_ends_on_a_date_is_unknown_from_then_on() {
        let from = "2027-01-01".parse().unwrap();
        let price = Price {
            changes: vec![PriceChange { from, rates: Rates::default() }],
            ..Price::flat(rates(1.0, 1.0, None, None))
        };
        assert!(price.is_known(second("2026-12-31", 23)) && !price.is_known(second("2027-01-01", 0)));
        assert!(!price.is_free(0));
        assert!(Price::flat(rates(0.0, 0.0, None, Some(0.0))).is_free(0));
        assert!(!Price::flat(rates(0.0, 0.0, Some(1.0), None)).is_free(0));
    }

    #[test]
    fn dates_are_days_of_the_calendar() {
        assert_eq!(second("1970-01-01", 0), 0);
        assert_eq!(second("2000-03-01", 0), 951_868_800);
        assert_eq!(second("2026-11-15", 6), 1_794_722_400);
        assert_eq!("2026-12-01".parse::<Date>().unwrap().to_string(), "2026-12-01");
        for text in ["", "2026-13-01", "2026-1-1", "2026-12-01T", "1969-01-01", "+026-01-01", "2026/12/01"] {
            assert!(text.parse::<Date>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_model_is_found_under_the_names_it_is_called_by() {
        let row = ListPrice {
            provider: "google".into(),
            prefixes: vec!["gemini".into()],
            model: "gemini-9".into(),
            aliases: vec!["gemini-nine".into()],
            price: Price::default(),
            source: String::new(),
            note: None,
        };
        for (name, expected) in [
            ("gemini-9", true),
            ("gemini-nine", true),
            ("google/gemini-9", true),
            ("gemini/gemini-9", true),
            ("gemini-9-20260101", true),
            ("gemini-9@20260101", true),
            ("gemini-9-2026-01-01", true),
            ("other/gemini-9", false),
            ("gemini-9-flash", false),
            ("gemini-9:free", false),
            ("gemini-9-99999999", false),
            ("gemini-90", false),
            ("Gemini-9", false),
        ] {
            assert_eq!(row.is_for(name), expected, "{name}");
        }
    }
}
