//! Credentials: a sandbox holds placeholders, and the gateway puts the real values in on the way to where they belong.
//!
//! ```text
//! request head ──> screen ──> carrier: placeholder -> value, in its place only
//!                    │   └──> elsewhere? refused, recorded
//! request body ──> watch: a placeholder ends the request
//! response ──────> redact: value -> placeholder
//! ```
//!
//! One [`Credentials`] a sandbox, made before it starts: what cannot be read starts nothing. Values are read anew for
//! each request, so that a secret that was changed counts at once. Everything here but [`Credentials`] itself is pure.

mod bound;
mod env_file;
mod forms;
mod forward;
mod held;
mod location;
mod placeholder;
mod redact;
mod screen;
mod sought;
#[cfg(test)]
mod tests;
mod watch;
mod wrapped;

pub use env_file::{EnvFault, EnvFileError};
pub use forward::danger_forward;
#[cfg(test)]
pub(crate) use redact::MAX_EMPTY_FRAMES;
pub use redact::Redact;
pub(crate) use screen::RANGE_HEADERS;
pub use sought::Known;
pub(crate) use watch::Watch;

use crate::github::Tokens;
use crate::record::Recorder;
use crate::tally::Many;
use belljar_audit::Event;
use belljar_spec::EnvName;
use belljar_spec::egress::HostName;
use belljar_spec::secret::{Credential, SecretName, SecretSource};
use belljar_vault::{Secret, SecretError, SecretStore};
use bound::Bound;
use hyper::http::request::Parts;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// What one sandbox may use without holding it.
pub struct Credentials {
    bound: Vec<Bound>,
    store: Option<Arc<dyn SecretStore>>,
    /// Who makes what is not kept.
    tokens: Option<Arc<Tokens>>,
    /// Every value that there was.
    known: Arc<Known>,
    recorder: OnceLock<Arc<Recorder>>,
    /// What happened before there was a record.
    waiting: Mutex<Vec<Event>>,
}

/// Where a request goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Origin {
    pub(crate) name: HostName,
    pub(crate) port: u16,
    /// By TLS, to a server whose certificate is verified.
    pub(crate) secure: bool,
}

/// What else has to happen to an exchange.
pub(crate) struct Screened {
    /// Looks at the body of the request.
    pub(crate) request: Option<Watch>,
    /// Changes the response. Such a response must not be compressed.
    pub(crate) response: Option<Redact>,
}

impl Credentials {
    /// With the values that the store has now, each read once for its shape.
    pub fn new(
        credentials: Vec<Credential>,
        store: Arc<dyn SecretStore>,
    ) -> Result<Credentials, SecretError> {
        Credentials::bind(credentials, store, None)
    }

    /// The same, with a token of a GitHub App for those that want one.
    pub(crate) async fn with_app(
        credentials: Vec<Credential>,
        store: Arc<dyn SecretStore>,
        tokens: Arc<Tokens>,
    ) -> Result<Credentials, SecretError> {
        let token = tokens.token().await?;
        match Credentials::bind(credentials, store, Some(&token)) {
            Ok(made) => {
                tokens.events().into_iter().for_each(|event| made.note(event));
                Ok(Credentials { tokens: Some(tokens), ..made })
            }
            Err(error) => {
                tokens.revoke().await;
                Err(error)
            }
        }
    }

    fn bind(
        credentials: Vec<Credential>,
        store: Arc<dyn SecretStore>,
        token: Option<&Secret>,
    ) -> Result<Credentials, SecretError> {
        let known = Arc::new(Known::default());
        let one = |credential: Credential| match (&credential.source, token) {
            (SecretSource::Stored(reference), _) => {
                let value = store.read(reference)?;
                Bound::new(credential, &value, &known)
            }
            (SecretSource::GitHubApp, Some(token)) => Bound::new(credential, token, &known),
            (SecretSource::GitHubApp, None) => Err(no_app(&credential)),
        };
        let bound = credentials.into_iter().map(one).collect::<Result<_, _>>()?;
        Ok(Credentials { bound, store: Some(store), known, ..Credentials::none() })
    }

    /// None at all.
    pub fn none() -> Credentials {
        Credentials {
            bound: Vec::new(),
            store: None,
            tokens: None,
            known: Arc::default(),
            recorder: OnceLock::new(),
            waiting: Mutex::default(),
        }
    }

    /// Is there none?
    pub fn is_empty(&self) -> bool {
        self.bound.is_empty()
    }

    /// The placeholders, under the names by which programs look for them.
    pub fn variables(&self) -> impl Iterator<Item = (&EnvName, &str)> {
        self.bound.iter().flat_map(|bound| {
            bound.credential.variables.iter().map(|name| (name, bound.placeholder.as_str()))
        })
    }

    /// The placeholder of a credential.
    pub fn placeholder(&self, name: &SecretName) -> Option<&str> {
        self.bound.iter().find(|bound| bound.credential.name == *name).map(|bound| bound.placeholder.as_str())
    }

    /// A file of variables with a placeholder in the place of each value: that of a credential for its variables, and one that stands for
    /// nothing for every other one. By their names alone: programs inside may write such a file, and would see by its placeholder which of
    /// their guesses is the value of a credential.
    pub fn in_env_file(&self, text: Secret) -> Result<Vec<u8>, InEnvFileError> {
        let mut stand_in = |name: &str, _: &[u8]| {
            let is_named =
                |bound: &&Bound| bound.credential.variables.iter().any(|known| known.as_str() == name);
            self.bound.iter().find(is_named).map(|bound| bound.placeholder.clone())
        };
        Ok(placeholder::with_numbers(|draw| env_file::rendered(text.reveal(), &mut stand_in, draw))??)
    }

    /// Does a secret belong to this host and port? Then TLS there has to be terminated.
    pub fn covers(&self, name: &HostName, port: u16) -> bool {
        self.bound
            .iter()
            .any(|bound| bound.credential.bindings.iter().any(|binding| binding.is_at(name, port)))
    }

    /// Does a secret belong to some requests of this host and port, and not to others?
    pub(crate) fn limits_requests(&self, name: &HostName, port: u16) -> bool {
        let mut bindings = self.bound.iter().flat_map(|bound| &bound.credential.bindings);
        bindings.any(|binding| binding.is_at(name, port) && !binding.requests.is_any())
    }

    /// Who keeps the record of what happens from now on.
    pub(crate) fn record_in(&self, recorder: &Arc<Recorder>) {
        let _ = self.recorder.set(Arc::clone(recorder));
        let waiting = std::mem::take(&mut *self.waiting.lock().unwrap_or_else(PoisonError::into_inner));
        for event in waiting {
            // A record that takes no more lines lets no connection out either.
            let _ = recorder.write(&event);
        }
    }

    /// Gives back what was made for this sandbox alone.
    pub(crate) async fn end(&self) {
        if let Some(tokens) = &self.tokens {
            for event in tokens.revoke().await {
                self.note(event);
            }
        }
    }

    /// Is there something to give back?
    pub(crate) fn has_tokens(&self) -> bool {
        self.tokens.is_some()
    }

    /// The value of a credential now.
    async fn value(&self, bound: &Bound) -> Result<Secret, SecretError> {
        let value = match (&bound.credential.source, &self.store, &self.tokens) {
            (SecretSource::Stored(reference), Some(store), _) => store.read(reference)?,
            (SecretSource::GitHubApp, _, Some(tokens)) => {
                let token = tokens.token().await?;
                tokens.events().into_iter().for_each(|event| self.note(event));
                token
            }
            (SecretSource::Stored(_), None, _) | (SecretSource::GitHubApp, _, None) => {
                return Err(no_app(&bound.credential));
            }
        };
        bound.changed(&value)?;
        Ok(value)
    }

    /// Records something now, or when there is a record.
    fn note(&self, event: Event) {
        match self.recorder.get() {
            Some(recorder) => drop(recorder.write(&event)),
            None => self.waiting.lock().unwrap_or_else(PoisonError::into_inner).push(event),
        }
    }

    fn used(&self, credential: &SecretName, to: &Origin, head: &Parts) {
        let key = format!("{credential} {}:{}", to.name, to.port);
        self.write(Many::Uses, &key, |times| Event::CredentialUsed {
            credential: credential.clone(),
            name: to.name.clone(),
            port: to.port,
            method: head.method.as_str().into(),
            path: head.uri.path().into(),
            times,
        });
    }

    fn placeholder_elsewhere(&self, to: &Origin, credential: &SecretName, part: &'static str) {
        let key = format!("{credential} {}:{} {part}", to.name, to.port);
        self.write(Many::Incidents, &key, |times| Event::PlaceholderElsewhere {
            credential: credential.clone(),
            destination: to.name.clone().into(),
            port: to.port,
            part: part.into(),
            times,
        });
    }

    fn write(&self, of: Many, key: &str, event: impl FnOnce(u64) -> Event) {
        if let Some(recorder) = self.recorder.get() {
            recorder.write_some(of, key, event);
        }
    }
}

/// Why a file of variables is not shown.
#[derive(Debug, thiserror::Error)]
pub enum InEnvFileError {
    #[error(transparent)]
    File(#[from] EnvFileError),
    #[error(transparent)]
    Secret(#[from] SecretError),
}

fn no_app(credential: &Credential) -> SecretError {
    SecretError {
        message: format!("the credential `{}` needs a GitHub App, and none is configured", credential.name),
        hint: "name one under [github] in belljar.toml".into(),
    }
}
