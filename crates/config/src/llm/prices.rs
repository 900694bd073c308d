//! The built-in list of prices: `prices.json` beside this file, by model, with a source for each row. The user's own
//! `[llm.price]` comes first.

use crate::fault::plain;
use belljar_spec::llm::{
    Band, Date, DateError, ListPrice, LlmRoute, ModelGlob, OffPeak, PeakHours, Price, PriceChange, RateError,
    Rates, UpstreamKind,
};
use belljar_spec::{CommandLine, ErrorCode, SandboxError, hint};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::sync::LazyLock;
use std::time::{SystemTime, UNIX_EPOCH};

/// All models of the list.
pub fn list() -> &'static [ListPrice] {
    &LIST.models
}

/// The date of the newest row.
pub fn as_of() -> &'static str {
    &LIST.as_of
}

/// Refuses a budget in dollars that cannot be kept, since this model has no price.
pub fn check(route: &LlmRoute, model: &str) -> Result<(), SandboxError> {
    match route.lacks_price(model, now()) {
        true => Err(missing(model)),
        false => Ok(()),
    }
}

/// The same for the models that a route allows, where all of them are named and none has a price. LiteLLM reports the cost of calls
/// that are no streams.
pub(crate) fn check_allowed(route: &LlmRoute) -> Result<(), SandboxError> {
    let exact = |list: &&Vec<ModelGlob>| list.iter().all(|model| !model.as_str().contains('*'));
    let now = now();
    for models in route.models.iter().filter(exact) {
        let without_price = models.iter().all(|model| route.lacks_price(model.as_str(), now));
        if let (true, Some(first), false) =
            (without_price, models.first(), route.kind == UpstreamKind::LiteLlm)
        {
            return Err(missing(first.as_str()));
        }
    }
    Ok(())
}

/// The present second, counted from 1970.
pub fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

fn missing(model: &str) -> SandboxError {
    let model = plain(model);
    ErrorCode::RequestConflict
        .error(format!("the model `{model}` has no price, so a budget in dollars cannot be enforced"))
        .hint(hint!(
            "set `input` and `output`, in dollars for a million tokens, under {} in your belljar.toml, or limit `tokens`, `calls` or \
             `turns`; {} lists known prices",
            format!("`[llm.price.\"{model}\"]`"),
            CommandLine::LlmPrices
        ))
}

static LIST: LazyLock<List> =
    LazyLock::new(|| read(include_str!("prices.json")).expect("a test reads the list"));

struct List {
    as_of: String,
    models: Vec<ListPrice>,
}

/// The file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    as_of: String,
    #[serde(rename = "unit")]
    _unit: String,
    /// What else is written before the slash of a provider's models.
    prefixes: BTreeMap<String, Vec<String>>,
    sources: BTreeMap<String, String>,
    models: Vec<Row>,
}

/// A model.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    provider: String,
    model: String,
    #[serde(default)]
    aliases: Vec<String>,
    rates: RatesRow,
    #[serde(default)]
    bands: Vec<BandRow>,
    off_peak: Option<OffPeakRow>,
    #[serde(default)]
    changes: Vec<ChangeRow>,
    source: String,
    note: Option<String>,
}

/// Dollars for a million tokens; a missing figure is not known.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RatesRow {
    input: Option<f64>,
    output: Option<f64>,
    cache_read: Option<f64>,
    cache_write: Option<f64>,
    cache_write_1h: Option<f64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BandRow {
    over_tokens: u64,
    rates: RatesRow,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OffPeakRow {
    rates: RatesRow,
    peak: PeakRow,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PeakRow {
    weekdays: Vec<String>,
    hours_utc: Vec<(u8, u8)>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ChangeRow {
    from: String,
    rates: RatesRow,
}

impl RatesRow {
    fn rates(&self) -> Result<Rates, String> {
        let each = |dollars: Option<f64>| dollars.map(Rates::per_million).transpose();
        let all = || -> Result<Rates, RateError> {
            Ok(Rates {
                input: each(self.input)?,
                output: each(self.output)?,
                cache_read: each(self.cache_read)?,
                cache_write: each(self.cache_write)?,
                cache_write_1h: each(self.cache_write_1h)?,
            })
        };
        all().map_err(|error| error.to_string())
    }
}

fn read(text: &str) -> Result<List, String> {
    let document: Document = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let Document { as_of, _unit, prefixes, sources, models } = document;
    let models = models.into_iter().map(|row| {
        let source = sources.get(&row.source).cloned();
        let prefixes = prefixes.get(&row.provider).cloned().unwrap_or_default();
        let model = row.model.clone();
        row.listed(prefixes, source).map_err(|error| format!("{model}: {error}"))
    });
    Ok(List { as_of, models: models.collect::<Result<_, String>>()? })
}

impl Row {
    fn listed(self, prefixes: Vec<String>, source: Option<String>) -> Result<ListPrice, String> {
        let bands = self.bands.iter().map(|BandRow { over_tokens, rates }| {
            Ok(Band { over_tokens: *over_tokens, rates: rates.rates()? })
        });
        let changes = self.changes.iter().map(|ChangeRow { from, rates }| {
            let from: Date = from.parse().map_err(|error: DateError| error.to_string())?;
            Ok(PriceChange { from, rates: rates.rates()? })
        });
        let off_peak = self.off_peak.as_ref().map(|OffPeakRow { rates, peak }| {
            let weekdays = WEEKDAYS.map(|day| peak.weekdays.iter().any(|listed| listed == day));
            let peak = PeakHours { weekdays, hours: peak.hours_utc.clone() };
            Ok::<_, String>(OffPeak { rates: rates.rates()?, peak })
        });
        let price = Price {
            rates: self.rates.rates()?,
            bands: bands.collect::<Result<_, String>>()?,
            off_peak: off_peak.transpose()?,
            changes: changes.collect::<Result<_, String>>()?,
        };
        Ok(ListPrice {
            provider: self.provider,
            prefixes,
            model: self.model,
            aliases: self.aliases,
            price,
            source: source.ok_or_else(|| format!("`{}` is not one of the sources", self.source))?,
            note: self.note,
        })
    }
}

const WEEKDAYS: [&str; 7] = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"];

#[cfg(test)]
mod tests {
    use super::*;

    fn row(model: &str) -> &'static ListPrice {
        list().iter().find(|row| row.is_for(model)).unwrap_or_else(|| panic!("{model}"))
    }

    #[test]
    fn the_list_can_be_read_and_no_model_is_in_it_twice() {
        read(include_str!("prices.json")).unwrap_or_else(|error| panic!("{error}"));
        assert!(list().len() > 100 && as_of().parse::<Date>().is_ok());
        for listed in list() {
            let names = std::iter::once(&listed.model).chain(&listed.aliases);
            for name in names {
                let rows: Vec<_> = list().iter().filter(|row| row.is_for(name)).collect();
                assert_eq!(rows, [listed], "{name}");
            }
            let bands: Vec<u64> = listed.price.bands.iter().map(|band| band.over_tokens).collect();
            // An alias that is given to newer models has no price.
            assert_eq!(listed.price.is_known(0), !listed.model.ends_with("-latest"), "{listed:?}");
            assert!(
                bands.is_sorted() && listed.price.changes.is_sorted_by_key(|change| change.from),
                "{listed:?}"
            );
        }
    }

    #[test]
    fn an_unknown_figure_stays_unknown() {
        assert_eq!(row("gpt-5.5").price.rates.cache_write, None);
        assert_eq!(row("gemini-4-carbon").price.rates.cache_read, None);
        // A longer request costs something else; how much is not known.
        assert!(row("gpt-6-astra").price.rates_at(0, 272_001).input.is_none());
        assert_eq!(row("claude-haiku-5-5").price.rates_at(0, 100_001).cache_write, None);
    }

    #[test]
    fn what_the_models_of_agents_cost() {
        let of = |model, second, going_in| row(model).price.rates_at(second, going_in);
        // Noon of the 19th of November 2026, a Thursday, and midnight of the 1st of December.
        let (now, december) = (1_795_089_600, 1_796_083_200);
        assert_eq!(of("claude-opus-5-5", now, 0).input, Some(4_000_000));
        assert_eq!(of("anthropic/claude-sonnet-4-5-20250929", now, 0).output, Some(15_000_000));
        assert_eq!(of("claude-sonnet-4-5", now, 200_001).output, Some(22_500_000));
        assert_eq!(of("claude-sonnet-5-5", now, 0).cache_write_1h, Some(4_000_000));
        assert_eq!(of("gemini/gemini-4-argon", now, 0).input, Some(2_000_000));
        assert_eq!(of("gemini-4-argon", december, 0).input, Some(4_000_000));
        assert_eq!(of("deepseek-chat", now, 0).input, Some(150_000));
        assert_eq!(of("deepseek-chat", now - 4 * 3600, 0).input, Some(300_000));
        assert!(row("glm-4.7-flash").price.is_free(now));
    }

    #[test]
    fn a_wrong_list_is_noticed() {
        let list = |row: &str| {
            format!(r#"{{"as_of":"","unit":"","prefixes":{{}},"sources":{{"s":""}},"models":[{row}]}}"#)
        };
        for (row, expected) in [
            (r#"{"provider":"p","model":"m","rates":{},"source":"x"}"#, "one of the sources"),
            (r#"{"provider":"p","model":"m","rates":{"input":-1},"source":"s"}"#, "not a price"),
            (r#"{"provider":"p","model":"m","rates":{"cash_read":1},"source":"s"}"#, "cash_read"),
            (r#"{"provider":"p","model":"m","rates":{},"off_peak":{"rates":{}},"source":"s"}"#, "peak"),
            (
                r#"{"provider":"p","model":"m","rates":{},"changes":[{"from":"soon","rates":{}}],"source":"s"}"#,
                "not a date",
            ),
        ] {
            let error = read(&list(row)).map(|_| ()).unwrap_err();
            assert!(error.contains(expected), "{row}: {error}");
        }
    }
}
