//! How a model is asked, for agents that know several ways: by whose model it is, and by what its server speaks.

use super::{ModelName, Task};
use belljar_spec::llm::UpstreamKind;
use belljar_spec::{ErrorCode, SandboxError, Term, hint};

/// A way to ask.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Dialect {
    /// Anthropic's.
    Messages,
    /// OpenAI's own.
    Responses,
    /// OpenAI's chat completions, which most other providers speak.
    Completions,
    /// Google's.
    Generate,
}

/// Whom to ask, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Way<'t> {
    /// As opencode and pi call it.
    pub(super) provider: &'t str,
    pub(super) dialect: Dialect,
    /// Nothing said, the agent's own choice among that provider's.
    pub(super) model: Option<&'t str>,
}

impl<'t> Way<'t> {
    pub(super) fn of(task: &Task<'t>) -> Way<'t> {
        let provider = match task.model.map(|model| model.provider.as_str()) {
            Some("gemini") => "google",
            Some(provider) => provider,
            None => match task.upstream {
                UpstreamKind::OpenAi => "openai",
                UpstreamKind::Gemini => "google",
                UpstreamKind::Anthropic | UpstreamKind::LiteLlm => "anthropic",
            },
        };
        let dialect = match (task.upstream, provider) {
            (UpstreamKind::Anthropic, _) | (UpstreamKind::LiteLlm, "anthropic") => Dialect::Messages,
            (UpstreamKind::Gemini, _) | (UpstreamKind::LiteLlm, "google") => Dialect::Generate,
            (UpstreamKind::OpenAi | UpstreamKind::LiteLlm, "openai") => Dialect::Responses,
            (UpstreamKind::OpenAi | UpstreamKind::LiteLlm, _) => Dialect::Completions,
        };
        Way { provider, dialect, model: task.model.map(|model| model.model.as_str()) }
    }

    /// Whether the provider is the one whose dialect it is: agents know its models, and their prices.
    pub(super) fn is_native(self) -> bool {
        matches!(
            (self.dialect, self.provider),
            (Dialect::Messages, "anthropic") | (Dialect::Responses, "openai") | (Dialect::Generate, "google")
        )
    }

    /// `provider/model`.
    pub(super) fn full_name(self) -> Option<String> {
        self.model.map(|model| format!("{}/{model}", self.provider))
    }
}

/// Whether a server that speaks so can have that model: what Anthropic makes is not at OpenAI's.
pub(super) fn is_there(kind: UpstreamKind, model: &ModelName) -> Result<(), SandboxError> {
    let home = HOMES.iter().find(|(provider, _)| *provider == model.provider);
    match home {
        Some((_, speaks)) if kind != UpstreamKind::LiteLlm && *speaks != kind => {
            let message =
                format!("`{model}` is asked in the words of {speaks}, and the model's server speaks {kind}");
            Err(ErrorCode::RequestConflict.error(message).hint(hint!(
                "give its own server, or a LiteLLM, with {}; if this one has it, say so: {}",
                Term::LlmUrl.to("URL"),
                Term::Model.to(format!("server/{}", model.model))
            )))
        }
        _ => Ok(()),
    }
}

/// Well-known providers, and what is spoken there.
const HOMES: [(&str, UpstreamKind); 5] = [
    ("anthropic", UpstreamKind::Anthropic),
    ("openai", UpstreamKind::OpenAi),
    ("openrouter", UpstreamKind::OpenAi),
    ("google", UpstreamKind::Gemini),
    ("gemini", UpstreamKind::Gemini),
];
