//! What a run used of its model.

use super::Usd;
use serde::Serialize;

/// Why the cost of a call is unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CostUnknown {
    /// The upstream reports no cost, and the model has no price.
    NoPrice,
    /// The model has a price, but not for all of the tokens: reading or writing a cache, a long request, or a later date.
    NoRate,
}

impl CostUnknown {
    /// For people.
    pub fn sentence(self) -> &'static str {
        match self {
            CostUnknown::NoPrice => "the model has no price",
            CostUnknown::NoRate => "the price of the model lacks a rate for some of the tokens",
        }
    }
}

/// What was used so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct LlmTotals {
    /// Calls that left, those on their way included.
    pub calls: u64,
    /// Answers of the model that came to their end.
    pub turns: u64,
    /// What was neither read from a cache nor written to one.
    pub input_tokens: u64,
    pub output_tokens: u64,
    pub cache_read: u64,
    pub cache_write: u64,
    /// In millionths of a dollar, of the calls whose cost is known.
    pub cost_usd: Usd,
    /// Calls that cost something, but whose cost is unknown.
    pub calls_without_cost: u64,
    /// Why the cost of the first of them is unknown.
    pub cost_unknown: Option<CostUnknown>,
    /// Calls whose tokens are estimated.
    pub calls_estimated: u64,
    /// Requests that were refused.
    pub refused: u64,
    /// How long calls took, all together.
    pub millis: u64,
}

impl LlmTotals {
    /// All of them.
    pub fn tokens(&self) -> u64 {
        [self.input_tokens, self.output_tokens, self.cache_read, self.cache_write]
            .into_iter()
            .fold(0, u64::saturating_add)
    }
}
