//! The route to a model: one upstream, set up by the person who runs the sandbox. Programs inside find it at a port of
//! loopback; they choose neither where it leads, nor who pays, nor how much.

mod budget;
mod model;
mod money;
mod outcome;
mod price;
mod totals;
mod upstream;

pub use budget::{Budget, BudgetError};
pub use model::{ModelGlob, ModelGlobError};
pub use money::{Usd, UsdError};
pub use outcome::{AnswerEnd, LlmOutcome, LlmOutcomes};
pub use price::{
    Band, Cost, Date, DateError, ListPrice, OffPeak, PeakHours, Price, PriceChange, RateError, Rates, Tokens,
};
pub use totals::{CostUnknown, LlmTotals};
pub use upstream::{Upstream, UpstreamError, UpstreamKind, UpstreamKindError};

use crate::secret::SecretRef;
use serde::Serialize;

/// The port of loopback, unless another is asked for: one that no usual server has, and below those that the kernel gives to connections.
pub const ROUTE_PORT: u16 = 14180;

/// A route to a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LlmRoute {
    /// Where it leads.
    pub upstream: Upstream,
    /// What is spoken there.
    pub kind: UpstreamKind,
    /// What it is opened with; read at each call. Without one, calls go out with no key.
    pub key: Option<SecretRef>,
    /// Certificates in PEM that count for the upstream, beside the system's.
    pub trust: Vec<u8>,
    /// Which models may be called: of each list one must match. No list, any model.
    pub models: Vec<Vec<ModelGlob>>,
    /// How much may be used.
    pub budget: Budget,
    /// What models cost, where the upstream does not say so itself. The first that matches counts.
    pub prices: Vec<(ModelGlob, Price)>,
    /// What models cost that none of `prices` matches.
    pub list: &'static [ListPrice],
    /// Whom LiteLLM is told to bill.
    pub billing: Billing,
    /// Where it is found inside.
    pub port: u16,
}

impl LlmRoute {
    /// A route that leads there, with nothing else said.
    pub fn to(upstream: Upstream) -> LlmRoute {
        LlmRoute {
            kind: upstream.guessed_kind(),
            upstream,
            key: None,
            trust: Vec::new(),
            models: Vec::new(),
            budget: Budget::default(),
            prices: Vec::new(),
            list: &[],
            billing: Billing::default(),
            port: ROUTE_PORT,
        }
    }

    /// Whether a model may be called.
    pub fn allows(&self, model: &str) -> bool {
        self.models.iter().all(|list| list.iter().any(|glob| glob.matches(model)))
    }

    /// What a model costs, and where that is from.
    pub fn price(&self, model: &str) -> Option<(&Price, PriceOrigin)> {
        let configured = self.prices.iter().find(|(glob, _)| glob.matches(model));
        let configured = configured.map(|(_, price)| (price, PriceOrigin::Configured));
        let listed = || self.list.iter().find(|row| row.is_for(model));
        configured.or_else(|| listed().map(|row| (&row.price, PriceOrigin::Listed)))
    }

    /// Whether a budget in dollars cannot be kept with this model: it has no price at this second, counted from 1970.
    pub fn lacks_price(&self, model: &str, second: u64) -> bool {
        self.budget.cost.is_some() && !self.price(model).is_some_and(|(price, _)| price.is_known(second))
    }
}

/// Where a price is from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PriceOrigin {
    /// The configuration.
    Configured,
    /// The built-in list.
    Listed,
}

/// Who pays, in the words of LiteLLM. The run's id is added when the sandbox is made.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Billing {
    /// The account: LiteLLM's `end_user`.
    #[serde(skip)]
    pub end_user: Option<String>,
    pub attempt: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub graph_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub existing_trace_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trace_user_id: Option<String>,
}

impl Billing {
    /// The account that is billed when none is named.
    pub const DEFAULT_END_USER: &str = "belljar";

    /// The account.
    pub fn account(&self) -> &str {
        self.end_user.as_deref().unwrap_or(Billing::DEFAULT_END_USER)
    }
}
