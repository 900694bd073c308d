//! The token of one sandbox: minted, renewed before it ends, and given back.

use super::answer::{self, Granted};
use super::app;
use crate::outbound::{Body, Outbound, OutboundError};
use crate::upstream_proxy::Proxy;
use belljar_audit::{Event, Stamp};
use belljar_spec::secret::GitHubGrant;
use belljar_vault::{Secret, SecretError, SecretStore};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderValue, USER_AGENT};
use hyper::{Method, Request, StatusCode};
use serde_json::json;
use std::sync::{Arc, PoisonError};
use std::time::Duration;
use tokio::sync::Mutex;
use tokio::time::timeout;
use url::Url;

/// Mints tokens of one App for one sandbox.
pub(crate) struct Tokens {
    grant: GitHubGrant,
    store: Arc<dyn SecretStore>,
    api: Outbound,
    /// The API's path on its server; empty at github.com.
    base: String,
    /// Those that have not ended, the newest last. Held while one is minted, so that one is enough.
    alive: Mutex<Vec<Granted>>,
    /// Events of tokens that were minted and are not in the audit log yet.
    unsaid: Unsaid,
}

type Unsaid = std::sync::Mutex<Vec<Event>>;

impl Tokens {
    /// For what a sandbox was granted; `trust` is PEM of authorities beside the system's.
    pub(crate) fn new(
        grant: GitHubGrant,
        store: Arc<dyn SecretStore>,
        trust: &[u8],
        proxy: Option<Arc<Proxy>>,
    ) -> Result<Arc<Tokens>, SecretError> {
        let wrong = |error: &dyn std::fmt::Display| SecretError {
            message: format!("the GitHub App cannot be used: {error}"),
            hint: "see `api` under [github] in belljar.toml".into(),
        };
        let url = Url::parse(&grant.app.api).map_err(|error| wrong(&error))?;
        let api = Outbound::new(&url, trust).map_err(|error| wrong(&error))?.through(proxy);
        let base = url.path().trim_end_matches('/').to_string();
        let (alive, unsaid) = (Mutex::default(), Unsaid::default());
        Ok(Arc::new(Tokens { grant, store, api, base, alive, unsaid }))
    }

    /// A token that will live for some minutes at least. It is minted in a task of its own: the caller may be cancelled,
    /// and GitHub's answer must not be lost with it, or that token would never be given back.
    pub(crate) async fn token(self: &Arc<Tokens>) -> Result<Secret, SecretError> {
        let own = Arc::clone(self);
        tokio::spawn(async move { own.newest().await }).await.unwrap_or_else(|_| {
            let message = "no token could be made: the gateway is gone".into();
            Err(SecretError { message, hint: "try again".into() })
        })
    }

    /// What is to be recorded of tokens that are new.
    pub(crate) fn events(&self) -> Vec<Event> {
        std::mem::take(&mut *self.unsaid.lock().unwrap_or_else(PoisonError::into_inner))
    }

    async fn newest(&self) -> Result<Secret, SecretError> {
        let mut alive = self.alive.lock().await;
        let now = Stamp::now().second();
        alive.retain(|token| token.expires > now);
        let newest = alive.last().map(|newest| (newest.token.clone(), newest.expires));
        if let Some((token, expires)) = &newest
            && *expires > now + RENEWED
        {
            return Ok(token.clone());
        }
        match (self.mint(now).await, newest) {
            (Ok(granted), _) => {
                let token = granted.token.clone();
                self.unsaid.lock().unwrap_or_else(PoisonError::into_inner).push(self.event(&granted));
                alive.push(granted);
                Ok(token)
            }
            // It is not over yet, and the next request tries again.
            (Err(_), Some((token, _))) => Ok(token),
            (Err(error), None) => Err(error),
        }
    }

    /// Gives every token back that has not ended. Says how it went, for each.
    pub(crate) async fn revoke(&self) -> Vec<Event> {
        let mut alive = self.alive.lock().await;
        let mut events = self.events();
        for token in alive.drain(..) {
            let late = || "GitHub did not answer in time".to_string();
            let given = timeout(LAST, self.give_back(&token.token)).await;
            let error = given.unwrap_or_else(|_| Err(late())).err();
            events.push(Event::TokenRevoked { error: error.as_deref().map(Into::into) });
        }
        events
    }

    async fn mint(&self, now: u64) -> Result<Granted, SecretError> {
        let app = &self.grant.app;
        let failed = |why: &str| SecretError {
            message: format!("no token of the GitHub App {} could be made: {why}", app.app),
            hint:
                "see that app, installation and key under [github] belong together, and that the App has the \
                permissions and is installed for the repositories"
                    .into(),
        };
        let key = self.store.read(&app.key)?;
        let jwt = app::jwt(app, &key, now)?;
        let permissions: serde_json::Map<_, _> = self
            .grant
            .profile
            .permissions()
            .into_iter()
            .map(|(what, how)| (what.to_string(), json!(how)))
            .collect();
        let mut request = json!({ "permissions": permissions });
        if !self.grant.repositories.is_empty() {
            let names: Vec<&str> = self.grant.repositories.iter().map(|one| one.name()).collect();
            request["repositories"] = json!(names);
        }
        let path = format!("/app/installations/{}/access_tokens", app.installation);
        let (status, body) =
            self.ask(Method::POST, &path, &jwt, request.to_string()).await.map_err(|why| failed(&why))?;
        if status != StatusCode::CREATED {
            return Err(failed(&answer::complaint(status.as_u16(), &body)));
        }
        match answer::granted(&body, &self.grant) {
            Ok(granted) => Ok(granted),
            Err(unfit) => {
                if let Some(token) = unfit.token {
                    let _ = self.give_back(&token).await;
                }
                Err(failed(&unfit.why))
            }
        }
    }

    async fn give_back(&self, token: &Secret) -> Result<(), String> {
        let (status, body) = self.ask(Method::DELETE, "/installation/token", token, String::new()).await?;
        match status {
            StatusCode::NO_CONTENT => Ok(()),
            // It has ended by itself.
            StatusCode::UNAUTHORIZED => Ok(()),
            _ => Err(answer::complaint(status.as_u16(), &body)),
        }
    }

    /// One request, one answer, in good time.
    async fn ask(
        &self,
        method: Method,
        path: &str,
        key: &Secret,
        body: String,
    ) -> Result<(StatusCode, Bytes), String> {
        let mut bearer = HeaderValue::from_bytes(&[b"Bearer ", key.reveal()].concat())
            .map_err(|_| "its token cannot stand in a header".to_string())?;
        bearer.set_sensitive(true);
        let body: Body = Full::new(Bytes::from(body)).map_err(|never| match never {}).boxed();
        let request = Request::builder()
            .method(method)
            .uri(format!("{}{path}", self.base))
            .header(AUTHORIZATION, bearer)
            .header(ACCEPT, "application/vnd.github+json")
            .header(CONTENT_TYPE, "application/json")
            .header(USER_AGENT, concat!("belljar/", env!("CARGO_PKG_VERSION")))
            .header("x-github-api-version", "2022-11-28")
            .body(body)
            .map_err(|error| error.to_string())?;
        let answered = async {
            let answer = self.api.send(request).await.map_err(|error: OutboundError| error.to_string())?;
            let status = answer.response.status();
            let body = Limited::new(answer.response.into_body(), MAX_ANSWER_BYTES)
                .collect()
                .await
                .map_err(|error| format!("half an answer: {error}"))?;
            answer.connection.keep();
            Ok((status, body.to_bytes()))
        };
        timeout(SLOWEST, answered).await.unwrap_or_else(|_| Err("GitHub did not answer in time".into()))
    }

    fn event(&self, granted: &Granted) -> Event {
        let permissions = self.grant.profile.permissions().map(|(what, how)| format!("{what}:{how}"));
        Event::TokenMinted {
            profile: self.grant.profile.to_string(),
            permissions: permissions.join(" "),
            repositories: self.grant.repositories.iter().map(ToString::to_string).collect(),
            expires: Stamp::at(granted.expires).to_string(),
        }
    }
}

/// A token with less than this to live is not begun with; in seconds.
const RENEWED: u64 = 300;
/// Longer answers are none of GitHub's.
const MAX_ANSWER_BYTES: usize = 1 << 20;
const SLOWEST: Duration = Duration::from_secs(15);
/// A person waits for their prompt. A token that is not given back ends within the hour.
const LAST: Duration = Duration::from_secs(5);
