//! A sandbox's route to a model: what it is made of, and what programs inside are told of it.

use crate::record;
use belljar_audit::Event;
use belljar_backend::Isolation;
use belljar_gateway::llm::Route;
use belljar_gateway::{Proxy, Recorder};
use belljar_spec::llm::LlmRoute;
use belljar_spec::{BackendName, ErrorCode, SandboxError, SandboxId, SandboxSpec, Term, hint};
use belljar_vault::SecretStore;
use std::ffi::OsString;
use std::sync::Arc;

/// The sandbox with what a route adds to it, or why it can have none.
pub(crate) fn prepare(
    spec: &SandboxSpec,
    route: &LlmRoute,
    name: BackendName,
    isolation: Isolation,
    secrets: &dyn SecretStore,
) -> Result<SandboxSpec, SandboxError> {
    if matches!(isolation, Isolation::Absent | Isolation::Remote) {
        let message = format!("the backend {name} has no gateway of belljar's, and so no route to a model");
        return Err(ErrorCode::NotSupported.error(message).hint(hint!(
            "use {}, or omit {}, also in belljar.toml",
            Term::Backend.to("native"),
            Term::LlmUrl
        )));
    }
    if let Some(key) = &route.key {
        // Said now, and not at the first call, which only a program sees.
        let unreadable = |error: belljar_vault::SecretError| {
            ErrorCode::CredentialMissing
                .error(format!("the key for the model cannot be read: {error}"))
                .hint(error.hint.clone())
                .caused_by(error)
        };
        secrets.read(key).map_err(unreadable)?;
    }
    let mut spec = spec.clone();
    let is_set = |name: &str| spec.env.iter().any(|(known, _)| known.as_str() == name);
    let missing: Vec<_> = variables(route).into_iter().filter(|(name, _)| !is_set(name)).collect();
    for (name, value) in missing {
        let name = name.parse().expect("the names of our own variables are names");
        spec.env.push((name, OsString::from(value)));
    }
    Ok(spec)
}

/// Opens it: the record says so first.
pub(crate) fn open(
    spec: &SandboxSpec,
    id: SandboxId,
    secrets: &Arc<dyn SecretStore>,
    recorder: &Arc<Recorder>,
    proxy: Option<Arc<Proxy>>,
) -> Result<Option<Arc<Route>>, SandboxError> {
    let Some(terms) = spec.llm.clone() else { return Ok(None) };
    let lists = terms.models.iter();
    let models = lists.map(|list| list.iter().map(|glob| glob.as_str()).collect::<Vec<_>>().join(" or "));
    let opened = Event::RouteOpened {
        upstream: terms.upstream.to_string(),
        server: terms.kind,
        account: terms.billing.account().to_string(),
        models: models.collect(),
        budget: terms.budget.to_string(),
    };
    let wrong = |error: belljar_gateway::llm::RouteError| {
        ErrorCode::RequestValue
            .error(format!("there is no route to the model: {error}"))
            .hint(hint!("see {}, and `[llm]` in your belljar.toml", Term::LlmUrl))
            .caused_by(error)
    };
    let route = Route::new(terms, id, Arc::clone(secrets), Arc::clone(recorder), proxy).map_err(wrong)?;
    recorder.write(&opened).map_err(|_| record::full())?;
    Ok(Some(Arc::new(route)))
}

/// Where programs look for a model, and a key that opens nothing: some do not start without one.
fn variables(route: &LlmRoute) -> Vec<(&'static str, String)> {
    let base = format!("http://127.0.0.1:{}", route.port);
    vec![
        ("OPENAI_BASE_URL", format!("{base}/v1")),
        ("OPENAI_API_BASE", base.clone()),
        ("ANTHROPIC_BASE_URL", base.clone()),
        ("GOOGLE_GEMINI_BASE_URL", base),
        ("OPENAI_API_KEY", PLACEHOLDER.into()),
        ("ANTHROPIC_API_KEY", PLACEHOLDER.into()),
        ("GEMINI_API_KEY", PLACEHOLDER.into()),
    ]
}

const PLACEHOLDER: &str = "sk-belljar-puts-the-real-key-in-outside";
