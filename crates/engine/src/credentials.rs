//! What a sandbox is given of secrets before it starts: placeholders for its environment, and, where a run asked for
//! that, real values. What cannot be read starts nothing.

use crate::egress_reach;
use belljar_audit::Event;
use belljar_backend::EnvFiles;
use belljar_gateway::{Credentials, Gateway, InEnvFileError, Proxy, danger_forward};
use belljar_spec::secret::{Forwarded, GitHubGrant, SecretRef, SecretSource};
use belljar_spec::{EnvName, ErrorCode, SandboxError, SandboxSpec, Term, hint};
use belljar_vault::{Secret, SecretError, SecretStore};
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

/// A sandbox that was asked for, with its credentials.
pub(crate) struct Prepared {
    /// As it was asked for, with placeholders in its environment.
    pub(crate) spec: SandboxSpec,
    pub(crate) credentials: Arc<Credentials>,
    /// The proxy of its policy, with what it wants to be told.
    pub(crate) proxy: Option<Arc<Proxy>>,
}

impl Prepared {
    pub(crate) fn new(
        spec: &SandboxSpec,
        gateway: &OnceLock<Gateway>,
        store: impl FnOnce() -> Arc<dyn SecretStore>,
    ) -> Result<Prepared, SandboxError> {
        let needs_proxy = spec.egress.as_ref().and_then(|policy| policy.proxy.clone());
        if spec.credentials.is_empty()
            && spec.forwarded.is_empty()
            && spec.github.is_none()
            && needs_proxy.is_none()
        {
            let (spec, credentials) = (spec.clone(), Arc::new(Credentials::none()));
            return Ok(Prepared { spec, credentials, proxy: None });
        }
        let store = store();
        let proxy = needs_proxy.map(|terms| Proxy::new(terms, &*store)).transpose().map_err(unavailable)?;
        let proxy = proxy.map(Arc::new);
        let mut spec = spec.clone();
        for Forwarded { variable, source } in all_forwarded(&spec)? {
            let value = danger_forward(&*store, &source).map_err(unavailable)?;
            add(&mut spec, variable, value)?;
        }
        if spec.credentials.is_empty() && spec.github.is_none() {
            return Ok(Prepared { spec, credentials: Arc::new(Credentials::none()), proxy });
        }
        let gateway = egress_reach::start(gateway).map_err(|error| {
            ErrorCode::Internal.error(format!("the gateway cannot be started: {error}")).caused_by(error)
        })?;
        let trust = spec.egress.as_ref().map_or(&[][..], |policy| &policy.authorities);
        let credentials = gateway
            .credentials(spec.credentials.clone(), spec.github.clone(), store, trust, proxy.clone())
            .map(Arc::new)
            .map_err(unavailable)?;
        for (variable, placeholder) in credentials.variables() {
            if let Err(twice) = add(&mut spec, variable.clone(), placeholder.into()) {
                gateway.forget(Arc::clone(&credentials));
                return Err(twice);
            }
        }
        Ok(Prepared { spec, credentials, proxy })
    }

    /// The same for one that is only described: nothing is read and no token made; what would stand for a secret is named.
    pub(crate) fn sketch(spec: &SandboxSpec) -> Result<SandboxSpec, SandboxError> {
        let mut sketched = spec.clone();
        for Forwarded { variable, source } in all_forwarded(spec)? {
            add(&mut sketched, variable, format!("<the value of {source}>").into())?;
        }
        for credential in &spec.credentials {
            for variable in &credential.variables {
                add(
                    &mut sketched,
                    variable.clone(),
                    format!("<a placeholder for {}>", credential.name).into(),
                )?;
            }
        }
        Ok(sketched)
    }

    /// For a sandbox that came to nothing.
    pub(crate) fn give_back(&self, gateway: &OnceLock<Gateway>) {
        if let Some(gateway) = gateway.get() {
            gateway.forget(Arc::clone(&self.credentials));
        }
    }
}

/// Shows files of variables with placeholders: those of these credentials, and others that stand for nothing.
pub(crate) fn in_env_files(credentials: &Arc<Credentials>) -> EnvFiles {
    let credentials = Arc::clone(credentials);
    Arc::new(move |path, content| {
        credentials.in_env_file(Secret::new(content)).map_err(|error| match error {
            InEnvFileError::Secret(error) => unavailable(error),
            InEnvFileError::File(error) => {
                let message = format!("`{path}` cannot be shown with placeholders: {error}");
                ErrorCode::PathRefused
                    .error(message)
                    .hint(hint!("correct that line, or hide the file with {}", Term::Hide.to(path)))
            }
        })
    })
}

/// The real values that are inside, as variables.
pub(crate) fn real_values(spec: &SandboxSpec) -> Vec<Secret> {
    let is_real = |name: &EnvName| {
        spec.forwarded.iter().any(|one| one.variable == *name)
            || (name.as_str() == APP_KEY
                && spec.github.as_ref().is_some_and(|grant| grant.danger_forward_key))
    };
    let values = spec.env.iter().filter(|(name, _)| is_real(name));
    values.filter_map(|(_, value)| value.to_str().map(Secret::from_text)).collect()
}

/// The host's files in which the secrets of a sandbox are kept. Who could write one would choose what is sent as ours.
pub(crate) fn files(spec: &SandboxSpec) -> Vec<PathBuf> {
    let bound = spec.credentials.iter().filter_map(|credential| match &credential.source {
        SecretSource::Stored(reference) => Some(reference),
        SecretSource::GitHubApp => None,
    });
    let model = spec.llm.iter().filter_map(|route| route.key.as_ref());
    let app = spec.github.iter().map(|grant| &grant.app.key);
    let file = |reference: &SecretRef| match reference {
        SecretRef::File(path) => Some(path.clone()),
        SecretRef::Vault(_) | SecretRef::Env(_) => None,
    };
    let proxy = spec.egress.iter().filter_map(|policy| policy.proxy.as_ref()?.secret.as_ref());
    bound.chain(model).chain(app).chain(proxy).filter_map(file).collect()
}

/// What is recorded of real values that go inside.
pub(crate) fn forwarded(spec: &SandboxSpec) -> Vec<Event> {
    let event = |one: Forwarded| Event::SecretForwarded {
        variable: one.variable.to_string(),
        source: one.source.to_string(),
    };
    all_forwarded(spec).unwrap_or_default().into_iter().map(event).collect()
}

fn all_forwarded(spec: &SandboxSpec) -> Result<Vec<Forwarded>, SandboxError> {
    let mut all = spec.forwarded.clone();
    if let Some(GitHubGrant { app, danger_forward_key: true, .. }) = &spec.github {
        let variable: EnvName = APP_KEY.parse().map_err(|error: belljar_spec::EnvNameError| {
            ErrorCode::RequestValue.error(error.to_string()).caused_by(error)
        })?;
        all.push(Forwarded { variable, source: app.key.clone() });
    }
    Ok(all)
}

/// A variable that a secret has may not be set: it would be silently one or the other.
fn add(spec: &mut SandboxSpec, name: EnvName, value: OsString) -> Result<(), SandboxError> {
    if spec.env.iter().any(|(known, _)| *known == name) {
        let message = format!("the variable `{name}` is set, and a secret of this sandbox has the same one");
        return Err(ErrorCode::RequestConflict.error(message).hint(hint!(
            "omit {}: the sandbox gets a placeholder that works like the key",
            Term::Env.to(name)
        )));
    }
    spec.env.push((name, value));
    Ok(())
}

fn unavailable(error: SecretError) -> SandboxError {
    ErrorCode::SecretFailed.error(&error.message).hint(error.hint.clone()).caused_by(error)
}

/// Where tools look for the private key of an App.
const APP_KEY: &str = "GITHUB_APP_PRIVATE_KEY";
