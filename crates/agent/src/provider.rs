//! Who makes models: where each is reached, and what its key is called. For runs where no model URL is configured.

use crate::adapter::ModelName;
use crate::run::Agent;
use belljar_config::prices;
use belljar_spec::llm::{Budget, LlmRoute, UpstreamKind};
use belljar_spec::request::{LlmRequest, LlmUrl, WebSearch};
use belljar_spec::secret::SecretRef;
use belljar_spec::{ErrorCode, SandboxError, SandboxRequest, Term, hint};

/// A maker of models.
#[derive(Debug, PartialEq, Eq)]
pub struct Provider {
    /// What stands before the slash in the name of a model; the first is also what its key is called in the vault.
    pub names: &'static [&'static str],
    pub url: &'static str,
}

/// All of them.
pub const PROVIDERS: [Provider; 4] = [
    Provider { names: &["anthropic"], url: "https://api.anthropic.com" },
    Provider { names: &["openai"], url: "https://api.openai.com" },
    Provider { names: &["openrouter"], url: "https://openrouter.ai/api/v1" },
    Provider { names: &["gemini", "google"], url: "https://generativelanguage.googleapis.com" },
];

impl Provider {
    /// Whose model it is; without a model, whose words the agent speaks best.
    pub fn of(model: Option<&ModelName>, agent: &Agent) -> Option<&'static Provider> {
        match (model, agent) {
            (Some(model), _) => named(&model.provider),
            (None, Agent::Known(adapter)) => adapter.speaks.iter().find_map(|kind| maker(*kind)),
            (None, Agent::Program(_)) => None,
        }
    }

    /// The secret of the vault that opens it, unless another is named.
    pub fn key(&self) -> SecretRef {
        let name = self.names[0].parse().expect("a test reads every name of the table");
        SecretRef::Vault(name)
    }
}

/// The request of an agent's sandbox, with the budget of its run.
pub fn for_agent(mut request: SandboxRequest, budget: Budget) -> SandboxRequest {
    // Agents search by themselves; a key of the vault is one way more.
    if request.web_search == Some(WebSearch::Detect) {
        request.web_search = Some(WebSearch::IfStored);
    }
    if budget != Budget::default() {
        let llm = request.llm.get_or_insert_default();
        llm.budget = Some(llm.budget.unwrap_or_default().strictest(budget));
    }
    request
}

/// What was said of the model's server, and what follows from the model where nothing was said. `is_configured` says that a file
/// names a server: then that is the one.
pub fn server(
    mut flags: LlmRequest,
    is_configured: bool,
    model: Option<&ModelName>,
    agent: &Agent,
) -> Result<LlmRequest, SandboxError> {
    if flags.url.is_some() || is_configured {
        return Ok(flags);
    }
    let Some(provider) = Provider::of(model, agent) else {
        return Err(unknown(model, agent));
    };
    flags.url = Some(LlmUrl::To(provider.url.parse().expect("a test reads every URL of the table")));
    flags.key = flags.key.or_else(|| Some(provider.key()));
    Ok(flags)
}

/// Refuses a budget in dollars for a model without a price, before anything is started. A model that the caller does not name is known only when
/// it is called.
pub fn check_price(
    route: Option<&LlmRoute>,
    model: Option<&ModelName>,
    agent: &Agent,
) -> Result<(), SandboxError> {
    let (Some(route), Some(ModelName { model, .. })) = (route, model) else { return Ok(()) };
    // LiteLLM tells what a call costs that is no stream; the agents that belljar knows use streams.
    let is_reported = route.kind == UpstreamKind::LiteLlm && matches!(agent, Agent::Program(_));
    match is_reported {
        true => Ok(()),
        false => prices::check(route, model),
    }
}

fn unknown(model: Option<&ModelName>, agent: &Agent) -> SandboxError {
    let known = PROVIDERS.map(|provider| provider.names[0]).join(", ");
    let message = match model {
        Some(model) => format!(
            "no URL is known for the model `{model}`: `{}` is not a provider that belljar knows",
            model.provider
        ),
        None => format!("no model is configured for `{}`", agent.name()),
    };
    ErrorCode::RequestConflict.error(message).hint(hint!(
        "name a model of {} with {}, or a server with {} and {}, or `url` in `[llm]` of your belljar.toml",
        known.to_string(),
        Term::Model.to("PROVIDER/MODEL"),
        Term::LlmUrl.to("URL"),
        Term::LlmKey.to("REF")
    ))
}

fn named(name: &str) -> Option<&'static Provider> {
    PROVIDERS.iter().find(|provider| provider.names.contains(&name))
}

fn maker(kind: UpstreamKind) -> Option<&'static Provider> {
    match kind {
        UpstreamKind::Anthropic => named("anthropic"),
        UpstreamKind::OpenAi => named("openai"),
        UpstreamKind::Gemini => named("gemini"),
        UpstreamKind::LiteLlm => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use belljar_spec::llm::Upstream;

    fn program() -> Agent {
        Agent::Program("./agent".into())
    }

    #[test]
    fn every_row_of_the_table_makes_sense() {
        for provider in &PROVIDERS {
            let url: Upstream = provider.url.parse().unwrap();
            assert_eq!(url.as_str(), provider.url);
            assert_ne!(url.guessed_kind(), UpstreamKind::LiteLlm, "{provider:?}");
            assert_eq!(provider.key().to_string(), format!("secret:{}", provider.names[0]));
        }
    }

    #[test]
    fn a_server_follows_from_the_model_if_none_is_named() {
        let model: ModelName = "openrouter/anthropic/claude-sonnet-4.5".parse().unwrap();
        let flags = server(LlmRequest::default(), false, Some(&model), &program()).unwrap();
        assert_eq!(flags.url, Some(LlmUrl::To("https://openrouter.ai/api/v1".parse().unwrap())));
        assert_eq!(flags.key.unwrap().to_string(), "secret:openrouter");
        let own = LlmRequest { key: Some("env:MINE".parse().unwrap()), ..LlmRequest::default() };
        assert_eq!(
            server(own, false, Some(&model), &program()).unwrap().key.unwrap().to_string(),
            "env:MINE"
        );
        let off = LlmRequest { url: Some(LlmUrl::Off), ..LlmRequest::default() };
        assert_eq!(server(off.clone(), false, Some(&model), &program()).unwrap(), off);
        assert_eq!(
            server(LlmRequest::default(), true, Some(&model), &program()).unwrap(),
            LlmRequest::default()
        );
    }

    #[test]
    fn who_names_nothing_is_told_what_to_do() {
        let error = server(LlmRequest::default(), false, None, &program()).unwrap_err();
        assert_eq!(error.message, "no model is configured for `./agent`");
        let model: ModelName = "acme/m".parse().unwrap();
        let error = server(LlmRequest::default(), false, Some(&model), &program()).unwrap_err();
        assert!(error.message.contains("`acme` is not a provider"), "{error}");
        assert!(error.hint.unwrap().to_string().contains("`model: PROVIDER/MODEL`"));
    }
}
