//! A route to a model.

use super::field::request;
use crate::llm::{Budget, ModelGlob, Upstream, UpstreamError, UpstreamKind};
use crate::secret::SecretRef;
use std::fmt;
use std::str::FromStr;

request! {
    /// A route to a model.
    pub struct LlmRequest {
        /// Where it is, or `off`: none, whatever the configuration says. Left out: as the configuration says.
        url: Option<LlmUrl> as Option<String>, grant;
        /// What opens it, and never enters: `secret:NAME`, a name of the vault. Variables and files of the host cannot be named here.
        key: Option<SecretRef> as Option<String>, owner;
        /// What is spoken there: litellm, anthropic, openai or gemini.
        #[serde(with = "crate::text::exact")]
        kind: Option<UpstreamKind> as Option<String>, anyone;
        /// The only models that may be asked: `claude-*`.
        models: Vec<ModelGlob> as Vec<String>, anyone;
        /// What may be spent: `calls=100`, `tokens=2m,usd=5`.
        budget: Option<Budget> as Option<String>, anyone;
    }
}

/// Where a route leads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LlmUrl {
    /// Nowhere, whatever the configuration says.
    Off,
    To(Upstream),
}

impl FromStr for LlmUrl {
    type Err = UpstreamError;

    fn from_str(text: &str) -> Result<LlmUrl, UpstreamError> {
        if text == OFF { Ok(LlmUrl::Off) } else { text.parse().map(LlmUrl::To) }
    }
}

impl fmt::Display for LlmUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LlmUrl::Off => f.write_str(OFF),
            LlmUrl::To(upstream) => write!(f, "{upstream}"),
        }
    }
}

crate::text::serde_as_text!(LlmUrl);

const OFF: &str = "off";
