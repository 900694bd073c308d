//! `belljar llm prices`: what models cost, by the configuration and by the built-in list.

use super::print;
use super::table::table;
use crate::args::LlmPricesArgs;
use belljar_config::{self as config, EgressFlags, prices};
use belljar_spec::llm::{ListPrice, ModelGlob, Price, Rates};
use belljar_spec::{ErrorCode, Printable, SandboxError};
use serde_json::{Value, json};
use std::fmt::Write;

pub(crate) fn prices(options: &LlmPricesArgs) -> Result<u8, SandboxError> {
    let configured = config::load(None, EgressFlags::default())?.llm.prices();
    let rows = match &options.model {
        None => all(&configured),
        Some(model) => one(&configured, model).into_iter().collect(),
    };
    if let (true, Some(model)) = (rows.is_empty(), &options.model) {
        let model = Printable::from(model.as_str());
        return Err(ErrorCode::NotFound.error(format!("the price of the model `{model}` is not known")).hint(
            format!(
                "set `input` and `output`, in dollars for a million tokens, under `[llm.price.\"{model}\"]` in your belljar.toml; \
                 `belljar llm prices` lists known prices"
            ),
        ));
    }
    let text = match (options.json, &options.model) {
        (true, _) => format!("{:#}\n", as_json(&rows)),
        (false, None) => as_table(&rows),
        (false, Some(_)) => as_table(&rows) + &rows.iter().map(Row::details).collect::<String>(),
    };
    print(text.as_bytes())?;
    Ok(0)
}

/// A price, and where it is from.
enum Row<'a> {
    Configured(&'a ModelGlob, &'a Price),
    Listed(&'static ListPrice),
}

fn all(configured: &[(ModelGlob, Price)]) -> Vec<Row<'_>> {
    let configured = configured.iter().map(|(glob, price)| Row::Configured(glob, price));
    configured.chain(prices::list().iter().map(Row::Listed)).collect()
}

/// The price that counts for a model.
fn one<'a>(configured: &'a [(ModelGlob, Price)], model: &str) -> Option<Row<'a>> {
    let configured = configured.iter().find(|(glob, _)| glob.matches(model));
    let listed = || prices::list().iter().find(|row| row.is_for(model)).map(Row::Listed);
    configured.map(|(glob, price)| Row::Configured(glob, price)).or_else(listed)
}

impl<'a> Row<'a> {
    fn name(&self) -> String {
        match self {
            Row::Configured(glob, _) => glob.to_string(),
            Row::Listed(listed) => format!("{}/{}", listed.provider, listed.model),
        }
    }

    fn price(&self) -> &'a Price {
        match self {
            Row::Configured(_, price) => price,
            Row::Listed(listed) => &listed.price,
        }
    }

    fn source(&self) -> &str {
        match self {
            Row::Configured(..) => "your configuration",
            Row::Listed(listed) => &listed.source,
        }
    }

    fn note(&self) -> Option<&str> {
        match self {
            Row::Configured(..) => None,
            Row::Listed(listed) => listed.note.as_deref(),
        }
    }

    /// Each set of rates, and when it applies.
    fn rates(&self) -> Vec<(String, Rates)> {
        let price = self.price();
        let mut all =
            vec![(if price.off_peak.is_some() { "peak hours" } else { "" }.to_string(), price.rates)];
        all.extend(price.off_peak.iter().map(|off_peak| ("off-peak".to_string(), off_peak.rates)));
        all.extend(price.bands.iter().map(|band| (format!("over {} tokens", band.over_tokens), band.rates)));
        all.extend(price.changes.iter().map(|change| (format!("from {}", change.from), change.rates)));
        all
    }

    fn details(&self) -> String {
        let mut text = format!("\nsource: {}\n", self.source());
        if let Some(note) = self.note() {
            // A string can always be written to.
            let _ = writeln!(text, "note: {note}");
        }
        text
    }
}

fn as_table(rows: &[Row<'_>]) -> String {
    let cells: Vec<[String; 7]> = rows
        .iter()
        .flat_map(|row| row.rates().into_iter().map(|(when, rates)| cells(row.name(), when, rates)))
        .collect();
    let head = ["MODEL", "WHEN", "INPUT", "OUTPUT", "CACHE READ", "CACHE WRITE", "1 HOUR WRITE"];
    format!(
        "dollars for a million tokens; `-` is not known; built-in list of {}\n\n{}",
        prices::as_of(),
        table(head, &cells)
    )
}

fn cells(name: String, when: String, rates: Rates) -> [String; 7] {
    let Rates { input, output, cache_read, cache_write, cache_write_1h } = rates;
    let cell = |rate: Option<u64>| rate.map_or("-".into(), |rate| dollars(rate).to_string());
    [name, when, cell(input), cell(output), cell(cache_read), cell(cache_write), cell(cache_write_1h)]
}

fn as_json(rows: &[Row<'_>]) -> Value {
    let models: Vec<Value> = rows.iter().map(model).collect();
    json!({ "as_of": prices::as_of(), "unit": "dollars for a million tokens", "models": models })
}

fn model(row: &Row<'_>) -> Value {
    let price = row.price();
    let (provider, model, aliases) = match row {
        Row::Configured(glob, _) => (None, glob.as_str(), &[][..]),
        Row::Listed(listed) => (Some(&listed.provider), listed.model.as_str(), &listed.aliases[..]),
    };
    json!({
        "provider": provider,
        "model": model,
        "aliases": aliases,
        "configured": matches!(row, Row::Configured(..)),
        "rates": rates(&price.rates),
        "bands": price.bands.iter().map(|band| json!({ "over_tokens": band.over_tokens, "rates": rates(&band.rates) }))
            .collect::<Vec<_>>(),
        "off_peak": price.off_peak.as_ref().map(|off_peak| rates(&off_peak.rates)),
        "changes": price.changes.iter().map(|change| json!({ "from": change.from.to_string(), "rates": rates(&change.rates) }))
            .collect::<Vec<_>>(),
        "source": row.source(),
        "note": row.note(),
    })
}

fn rates(rates: &Rates) -> Value {
    let Rates { input, output, cache_read, cache_write, cache_write_1h } = rates;
    json!({
        "input": input.map(dollars),
        "output": output.map(dollars),
        "cache_read": cache_read.map(dollars),
        "cache_write": cache_write.map(dollars),
        "cache_write_1h": cache_write_1h.map(dollars),
    })
}

/// For a million tokens.
fn dollars(rate: u64) -> f64 {
    rate as f64 / 1e6
}
