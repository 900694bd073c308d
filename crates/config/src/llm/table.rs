//! The table as written, and its parsed settings.

use crate::fault::{at, plain};
use crate::file::Scalar;
use crate::origin::{At, Position};
use crate::read::Text;
use belljar_spec::SandboxError;
use belljar_spec::llm::{Billing, Budget, ModelGlob, Price, Rates, Upstream, UpstreamKind};
use belljar_spec::secret::SecretRef;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use toml::Spanned;

/// `[llm]`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct LlmTable {
    url: Option<Spanned<String>>,
    kind: Option<Spanned<String>>,
    key: Option<Spanned<String>>,
    admin_key: Option<Spanned<String>>,
    authority: Option<Spanned<String>>,
    models: Option<Vec<Spanned<String>>>,
    port: Option<Spanned<i64>>,
    end_user: Option<Spanned<String>>,
    user_id: Option<String>,
    graph_id: Option<String>,
    session_id: Option<String>,
    existing_trace_id: Option<String>,
    trace_user_id: Option<String>,
    budget: BudgetTable,
    price: BTreeMap<String, Spanned<PriceTable>>,
}

/// `[llm.budget]`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct BudgetTable {
    calls: Option<Spanned<Scalar>>,
    turns: Option<Spanned<Scalar>>,
    tokens: Option<Spanned<Scalar>>,
    usd: Option<Spanned<Scalar>>,
}

/// `[llm.price."MODEL"]`: dollars for a million tokens. Free items can be omitted, except for these two.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct PriceTable {
    input: f64,
    output: f64,
    /// Without it, the same as input: too much rather than too little.
    cache_read: Option<f64>,
    cache_write: Option<f64>,
    /// Without it, the same as `cache_write`.
    cache_write_1h: Option<f64>,
}

/// One file's settings of the route.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LlmSettings {
    /// The position of its first setting.
    pub place: Position,
    pub url: Option<At<Upstream>>,
    pub kind: Option<UpstreamKind>,
    pub key: Option<SecretRef>,
    /// The key to LiteLLM's spend records.
    pub admin_key: Option<SecretRef>,
    pub authority: Option<At<PathBuf>>,
    pub models: Option<Vec<ModelGlob>>,
    pub port: Option<u16>,
    pub billing: Billing,
    pub budget: Budget,
    /// The most specific first.
    pub prices: Vec<(ModelGlob, Price)>,
}

impl LlmSettings {
    pub(crate) fn understand(text: &Text, table: &Spanned<LlmTable>) -> Result<LlmSettings, SandboxError> {
        let reader = Reader { text };
        let place = text.place(table.span().start);
        let table = table.get_ref();
        let models = table.models.as_ref();
        let models =
            models.map(|models| models.iter().map(|model| reader.value(model, |m| m.parse())).collect());
        let mut prices = Vec::new();
        for (model, price) in &table.price {
            prices.push(reader.price(model, price)?);
        }
        // A name without a star before one with a star, and a longer one before a shorter.
        prices.sort_by_key(|(glob, _): &(ModelGlob, _)| {
            (glob.as_str().contains('*'), std::cmp::Reverse(glob.as_str().len()))
        });
        Ok(LlmSettings {
            url: table.url.as_ref().map(|url| reader.at(url, |url| url.parse())).transpose()?,
            kind: reader.optional(&table.kind, |kind| kind.parse())?,
            key: reader.optional(&table.key, |key| key.parse())?,
            admin_key: reader.optional(&table.admin_key, |key| key.parse())?,
            authority: table
                .authority
                .as_ref()
                .map(|path| reader.at(path, |path| absolute(path)))
                .transpose()?,
            models: models.transpose()?,
            port: reader.optional(&table.port, |port| route_port(*port))?,
            billing: Billing {
                end_user: reader.optional(&table.end_user, |account| visible(account))?,
                attempt: 0,
                user_id: table.user_id.clone(),
                graph_id: table.graph_id.clone(),
                session_id: table.session_id.clone(),
                existing_trace_id: table.existing_trace_id.clone(),
                trace_user_id: table.trace_user_id.clone(),
            },
            budget: Budget {
                calls: reader.optional(&table.budget.calls, |Scalar(calls)| Budget::number(calls))?,
                turns: reader.optional(&table.budget.turns, |Scalar(turns)| Budget::number(turns))?,
                tokens: reader.optional(&table.budget.tokens, |Scalar(tokens)| Budget::number(tokens))?,
                cost: reader.optional(&table.budget.usd, |Scalar(usd)| usd.parse())?,
            },
            prices,
            place,
        })
    }
}

/// Parses values, and names the line of an invalid one.
struct Reader<'a> {
    text: &'a Text,
}

impl Reader<'_> {
    fn at<W, T, E: fmt::Display>(
        &self,
        written: &Spanned<W>,
        parse: impl FnOnce(&W) -> Result<T, E>,
    ) -> Result<At<T>, SandboxError> {
        let place = self.text.place(written.span().start);
        match parse(written.get_ref()) {
            Ok(value) => Ok(At { value, place }),
            Err(error) => Err(at(&place, error)),
        }
    }

    fn value<W, T, E: fmt::Display>(
        &self,
        written: &Spanned<W>,
        parse: impl FnOnce(&W) -> Result<T, E>,
    ) -> Result<T, SandboxError> {
        Ok(self.at(written, parse)?.value)
    }

    fn optional<W, T, E: fmt::Display>(
        &self,
        written: &Option<Spanned<W>>,
        parse: impl FnOnce(&W) -> Result<T, E>,
    ) -> Result<Option<T>, SandboxError> {
        written.as_ref().map(|written| self.value(written, parse)).transpose()
    }

    fn price(&self, model: &str, price: &Spanned<PriceTable>) -> Result<(ModelGlob, Price), SandboxError> {
        let glob: ModelGlob = self.value(price, |_| model.parse())?;
        let PriceTable { input, output, cache_read, cache_write, cache_write_1h } = price.get_ref();
        let each = |dollars: f64| self.value(price, |_| Rates::per_million(dollars)).map(Some);
        let cache_write = cache_write.unwrap_or(*input);
        let rates = Rates {
            input: each(*input)?,
            output: each(*output)?,
            cache_read: each(cache_read.unwrap_or(*input))?,
            cache_write: each(cache_write)?,
            cache_write_1h: each(cache_write_1h.unwrap_or(cache_write))?,
        };
        Ok((glob, Price::flat(rates)))
    }
}

fn absolute(path: &str) -> Result<PathBuf, String> {
    match path.starts_with('/') {
        true => Ok(path.into()),
        false => Err(format!("`{}` is not an absolute path: write it from the root", plain(path))),
    }
}

fn route_port(port: i64) -> Result<u16, String> {
    // Lower ports need a capability that no process inside has, and one of them is the gateway's own.
    u16::try_from(port)
        .ok()
        .filter(|port| *port >= 1024)
        .ok_or_else(|| format!("`{port}` is not a port for the route: write 1024 to 65535"))
}

fn visible(account: &str) -> Result<String, String> {
    let fits =
        !account.is_empty() && account.len() <= 200 && account.bytes().all(|byte| byte.is_ascii_graphic());
    match fits {
        true => Ok(account.to_string()),
        false => Err("`end_user` is not an account: write visible letters without spaces".into()),
    }
}
