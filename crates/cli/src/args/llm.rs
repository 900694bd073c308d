//! The words about the route to a model.

use belljar_spec::llm::{Budget, ModelGlob, UpstreamKind};
use belljar_spec::request::LlmRequest;
use belljar_spec::{ErrorCode, SandboxError};
use clap::{Args as ClapArgs, Subcommand};
use std::fmt;
use std::str::FromStr;

/// A URL and a reference are taken as text: clap would repeat them in its error, and they may be the key itself.
#[derive(Default, Clone, ClapArgs)]
#[command(next_help_heading = "Model")]
pub(crate) struct LlmArgs {
    /// Give the sandbox a route to the model at this URL: LiteLLM, Anthropic, Gemini, or whatever speaks as OpenAI does.
    /// Programs find it at http://127.0.0.1:14180, and variables tell them so. `off`: none, whatever your configuration
    /// says
    #[arg(long = "llm", value_name = "URL")]
    to: Option<String>,
    /// What opens it, and is never seen inside: `secret:NAME`, `env:NAME` or `file:/PATH`
    #[arg(long = "llm-key", value_name = "REF")]
    key: Option<String>,
    /// What is spoken there: litellm, anthropic, openai or gemini [default: by the name of the host, else litellm]
    #[arg(long = "llm-kind", value_name = "KIND")]
    kind: Option<UpstreamKind>,
    /// Allow only models of this name, where `*` stands for any letters: `claude-*`; may be repeated
    #[arg(long = "llm-model", value_name = "GLOB")]
    models: Vec<ModelGlob>,
    /// How much may be used: `calls=100`, `turns=30`, `tokens=2m`, `usd=5`, or several of them with commas
    #[arg(long = "llm-budget", value_name = "BUDGET")]
    budget: Option<Budget>,
}

impl LlmArgs {
    /// The route that flags say, if they say something of it.
    pub(crate) fn request(self) -> Result<Option<LlmRequest>, SandboxError> {
        let LlmArgs { to, key, kind, models, budget } = self;
        let request =
            LlmRequest { url: read("--llm", to)?, key: read("--llm-key", key)?, kind, models, budget };
        Ok(Some(request).filter(|request| *request != LlmRequest::default()))
    }
}

fn read<T: FromStr<Err: fmt::Display>>(flag: &str, text: Option<String>) -> Result<Option<T>, SandboxError> {
    let wrong = |error| ErrorCode::RequestValue.error(format!("`{flag}`: {error}"));
    text.map(|text| text.parse().map_err(wrong)).transpose()
}

impl fmt::Debug for LlmArgs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LlmArgs").finish_non_exhaustive()
    }
}

#[derive(Debug, ClapArgs)]
pub(crate) struct LlmSpendArgs {
    /// Whose: an id or its beginning [default: the newest]
    pub(crate) sandbox: Option<String>,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum LlmCommand {
    /// List what models cost: by your configuration, and by the built-in list
    #[command(
        after_help = "Your own prices come first: `[llm.price.\"MODEL\"]` in belljar.toml. An unknown figure is never guessed: \
        a call that needs it has an unknown cost.\n\n\
        Examples:\n  \
        belljar llm prices\n  \
        belljar llm prices claude-opus-5-5\n  \
        belljar llm prices --json"
    )]
    Prices(LlmPricesArgs),
}

impl LlmCommand {
    /// Whether a program is listening.
    pub(crate) fn wants_json(&self) -> bool {
        match self {
            LlmCommand::Prices(options) => options.json,
        }
    }
}

#[derive(Debug, ClapArgs)]
pub(crate) struct LlmPricesArgs {
    /// A model, with or without its provider: `claude-opus-5-5`, `openai/gpt-5`
    pub(crate) model: Option<String>,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}
