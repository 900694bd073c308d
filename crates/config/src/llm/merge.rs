//! Merges layers and flags into one route.

use super::{LlmSettings, prices};
use crate::fault::{argument, at};
use crate::origin::{At, Origin};
use belljar_spec::llm::{Billing, Budget, LlmRoute, ModelGlob, Price, ROUTE_PORT, Upstream, UpstreamKind};
use belljar_spec::request::{LlmRequest, LlmUrl};
use belljar_spec::secret::SecretRef;
use belljar_spec::{ErrorCode, SandboxError, Term, hint};
use std::path::PathBuf;

/// The files' settings of the route.
#[derive(Debug, Clone, Default)]
pub struct LlmLayers {
    pub(crate) operator: Option<LlmSettings>,
    pub(crate) user: Option<LlmSettings>,
}

/// A route, and the settings that belong to it.
#[derive(Debug, Clone)]
pub struct LlmLoaded {
    pub route: LlmRoute,
    /// The key to the spend records of a LiteLLM.
    pub admin_key: Option<SecretRef>,
    /// The origin of its URL.
    pub origin: Origin,
}

/// The settings of one server.
#[derive(Clone)]
struct Server {
    url: Upstream,
    origin: Origin,
    kind: Option<UpstreamKind>,
    key: Option<SecretRef>,
    admin_key: Option<SecretRef>,
    authority: Option<At<PathBuf>>,
}

impl LlmLayers {
    /// The route of a run, if it has one.
    pub fn route(&self, flags: &LlmRequest) -> Result<Option<LlmLoaded>, SandboxError> {
        if flags.url == Some(LlmUrl::Off) {
            return Ok(None);
        }
        let Some(server) = self.server(flags) else {
            return match flags == &LlmRequest::default() {
                true => Ok(None),
                false => Err(ErrorCode::RequestConflict
                    .error("no model URL is configured")
                    .hint(hint!("add {}, or `url` to `[llm]` in your belljar.toml", Term::LlmUrl.to("URL")))),
            };
        };
        let mut route = LlmRoute::to(server.url);
        route.kind = server.kind.unwrap_or(route.kind);
        route.key = server.key;
        route.trust = server.authority.as_ref().map(certificates).transpose()?.unwrap_or_default();
        route.models = self.iter().filter_map(|layer| layer.models.clone()).collect();
        if !flags.models.is_empty() {
            route.models.push(flags.models.clone());
        }
        route.budget = self.budget(&flags.budget.unwrap_or_default())?;
        route.prices = self.prices();
        route.list = prices::list();
        route.billing = self.billing();
        let port = |layer: &Option<LlmSettings>| layer.as_ref().and_then(|layer| layer.port);
        route.port = port(&self.user).or_else(|| port(&self.operator)).unwrap_or(ROUTE_PORT);
        Ok(Some(LlmLoaded { route, admin_key: server.admin_key, origin: server.origin }))
    }

    /// The prices of all files; the first that matches a model counts.
    pub fn prices(&self) -> Vec<(ModelGlob, Price)> {
        self.iter().flat_map(|layer| layer.prices.iter().cloned()).collect()
    }

    /// Highest first.
    fn iter(&self) -> impl Iterator<Item = &LlmSettings> {
        [&self.operator, &self.user].into_iter().flatten()
    }

    /// A layer that names another server starts anew; one that names none adds to the present settings.
    fn server(&self, flags: &LlmRequest) -> Option<Server> {
        let mut server: Option<Server> = None;
        for layer in self.iter() {
            if let Some(url) = &layer.url {
                server = moved(server, &url.value, Origin::Line(url.place.clone()));
            }
            if let Some(server) = &mut server {
                server.kind = layer.kind.or(server.kind);
                server.key = layer.key.clone().or(server.key.take());
                server.admin_key = layer.admin_key.clone().or(server.admin_key.take());
                server.authority = layer.authority.clone().or(server.authority.take());
            }
        }
        if let Some(LlmUrl::To(url)) = &flags.url {
            server = moved(server, url, Origin::Flag);
        }
        if let Some(server) = &mut server {
            server.kind = flags.kind.or(server.kind);
            server.key = flags.key.clone().or(server.key.take());
        }
        server
    }

    fn budget(&self, flags: &Budget) -> Result<Budget, SandboxError> {
        let of = |layer: &Option<LlmSettings>| layer.as_ref().map(|layer| layer.budget).unwrap_or_default();
        let (operator, user) = (of(&self.operator), of(&self.user));
        let too_much = |what: &str, requested: String, most: String| {
            let place = self.operator.as_ref().map(|layer| layer.place.to_string()).unwrap_or_default();
            let what = format!("a run may use {most} {what} of the model at most, not {requested} ({place})");
            ErrorCode::NotGranted.error(what).hint("ask for less, or ask the operator")
        };
        let within = |what: &str, flag: Option<u64>, user: Option<u64>, most: Option<u64>| match (
            flag.or(user).or(most),
            most,
        ) {
            (Some(requested), Some(most)) if requested > most => {
                Err(too_much(what, requested.to_string(), most.to_string()))
            }
            (requested, _) => Ok(requested),
        };
        let cost = flags.cost.or(user.cost).or(operator.cost);
        if let (Some(requested), Some(most)) = (cost, operator.cost)
            && requested > most
        {
            return Err(too_much("USD", requested.to_string(), most.to_string()));
        }
        Ok(Budget {
            calls: within("calls", flags.calls, user.calls, operator.calls)?,
            turns: within("turns", flags.turns, user.turns, operator.turns)?,
            tokens: within("tokens", flags.tokens, user.tokens, operator.tokens)?,
            cost,
        })
    }

    /// The operator decides who pays.
    fn billing(&self) -> Billing {
        let first = |field: fn(&Billing) -> &Option<String>| {
            self.iter().find_map(|layer| field(&layer.billing).clone())
        };
        Billing {
            end_user: first(|billing| &billing.end_user),
            attempt: 0,
            user_id: first(|billing| &billing.user_id),
            graph_id: first(|billing| &billing.graph_id),
            session_id: first(|billing| &billing.session_id),
            existing_trace_id: first(|billing| &billing.existing_trace_id),
            trace_user_id: first(|billing| &billing.trace_user_id),
        }
    }
}

/// Settings for one server are not used with another.
fn moved(known: Option<Server>, url: &Upstream, origin: Origin) -> Option<Server> {
    let same = known.filter(|known| known.url.same_server(url));
    let none = Server {
        url: url.clone(),
        origin: origin.clone(),
        kind: None,
        key: None,
        admin_key: None,
        authority: None,
    };
    Some(Server { url: url.clone(), origin, ..same.unwrap_or(none) })
}

fn certificates(path: &At<PathBuf>) -> Result<Vec<u8>, SandboxError> {
    std::fs::read(&path.value).map_err(|error| {
        let what = format!("the certificate `{}` cannot be read: {error}", argument(&path.value));
        at(&path.place, what).hint("name a file with certificates in PEM").caused_by(error)
    })
}
