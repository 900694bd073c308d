//! The credentials of a run: those requested by flag, from the active files or belljar's built-in ones. Their hosts are allowed,
//! within the operator's limits.

use crate::layer::Settings;
use crate::load::Loaded;
use crate::merge::Layers;
use crate::origin::At;
use belljar_spec::egress::{EgressPolicy, Mode, PathGlob, PortRange, RequestFilter, Rule, RuleSource};
use belljar_spec::request::{GitHubRequest, WebSearch};
use belljar_spec::secret::{
    Credential, CredentialBinding, Forwarded, GitHubApp, GitHubGrant, GitHubProfile, Inject, SecretName,
    SecretRef, SecretSource, built_in, built_ins, searches,
};
use belljar_spec::{CommandLine, EnvName, ErrorCode, SandboxError, Term, hint};
use belljar_vault::SecretStore;

/// The secrets requested for one run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CredentialFlags {
    /// `--secret`.
    pub secrets: Vec<SecretName>,
    /// `--web-search`.
    pub web_search: Option<WebSearch>,
    /// `--env NAME=secret:KEY`.
    pub variables: Vec<(EnvName, SecretName)>,
    /// `--forward-secret`: the real value, for the variables that name it.
    pub forward: Vec<SecretName>,
    /// `--github`.
    pub github: Option<GitHubRequest>,
    /// `--danger-forward-app-key`.
    pub danger_forward_app_key: bool,
}

impl Loaded {
    /// The same, with the credentials that a run asks for.
    pub fn with_credentials(
        mut self,
        flags: &CredentialFlags,
        store: &dyn SecretStore,
    ) -> Result<Loaded, SandboxError> {
        if *flags == CredentialFlags::default() {
            return Ok(self);
        }
        let mut chosen = Chosen { layers: &self.layers, credentials: Vec::new() };
        for name in &flags.secrets {
            chosen.take(name)?;
        }
        let is_shut = self.policy.as_ref().is_some_and(|policy| policy.mode == Mode::None);
        if let Some(search) = &flags.web_search
            && !(is_shut && *search == WebSearch::IfStored)
        {
            chosen.search(search, store)?;
        }
        let forwarded = chosen.variables(flags)?;
        let github = flags
            .github
            .as_ref()
            .map(|request| chosen.github(request, flags.danger_forward_app_key))
            .transpose()?;
        let credentials = chosen.credentials;
        let mut egress = self.flags.clone();
        for credential in &credentials {
            egress.allow.extend(rules(credential)?);
        }
        if !credentials.is_empty() {
            // Earlier notes still hold; the same note is not repeated.
            let (policy, origins) = self.layers.merge(&egress, &mut Vec::new())?;
            has_egress(&policy, &credentials)?;
            (self.policy, self.origins) = (Some(policy), origins);
        }
        (self.credentials, self.github, self.forwarded) = (credentials, github, forwarded);
        Ok(self)
    }

    /// All active credentials of the files, highest layer first.
    pub fn bindings(&self) -> Vec<&At<Credential>> {
        let mut counting: Vec<&At<Credential>> = Vec::new();
        for binding in self.layers.iter().flat_map(|layer| &layer.credentials) {
            if !counting.iter().any(|known| known.value.name == binding.value.name) {
                counting.push(binding);
            }
        }
        counting
    }

    /// All credentials that a run can ask for: those of the files, and the built-in ones.
    pub fn known_credentials(&self) -> Vec<&Credential> {
        let mut known: Vec<&Credential> = self.bindings().into_iter().map(|binding| &binding.value).collect();
        for built_in in built_ins().map(|built_in| &built_in.credential) {
            if !known.iter().any(|other| other.name == built_in.name) {
                known.push(built_in);
            }
        }
        known
    }

    /// The active GitHub App.
    pub fn github_app(&self) -> Option<&At<GitHubApp>> {
        self.layers.iter().find_map(|layer| layer.github.as_ref())
    }
}

struct Chosen<'a> {
    layers: &'a Layers,
    credentials: Vec<Credential>,
}

impl Chosen<'_> {
    /// The operator's, else the user's, else the built-in one.
    fn known(&self) -> impl Iterator<Item = &Credential> {
        let written = self.layers.iter().flat_map(|layer: &Settings| &layer.credentials);
        written.map(|at| &at.value).chain(built_ins().map(|known| &known.credential))
    }

    fn find(&self, name: &SecretName) -> Option<&Credential> {
        self.known().find(|credential| credential.name == *name)
    }

    fn take(&mut self, name: &SecretName) -> Result<(), SandboxError> {
        if built_in(name.as_str()).is_some_and(|known| known.is_search) {
            let message =
                format!("the credential `{name}` is for web search, which this run has not asked for");
            return Err(ErrorCode::CredentialMissing
                .error(message)
                .hint(hint!("use {}", Term::WebSearch.to(name))));
        }
        match self.find(name).cloned() {
            Some(credential) => self.push(credential),
            None if is_like_a_key(name) => {
                let message = "the name of the credential looks like a key, and every program of this machine can read the arguments \
                               of another one";
                Err(ErrorCode::CredentialMissing.error(message).hint(hint!(
                    "{} asks for the value, and this option takes that name; consider a new key, since your shell has stored this one",
                    CommandLine::SecretsSet.of("NAME")
                )))
            }
            None => {
                let message = format!("there is no credential `{name}`");
                let is_its = |known: &&Credential| {
                    known.variables.iter().any(|variable| variable.as_str() == name.as_str())
                };
                if let Some(meant) = self.known().find(is_its) {
                    let hint =
                        format!("`{name}` is the variable of the credential `{}`: use that name", meant.name);
                    return Err(ErrorCode::CredentialMissing.error(message).hint(hint));
                }
                let names: Vec<&str> = built_ins().map(|known| known.credential.name.as_str()).collect();
                Err(ErrorCode::CredentialMissing.error(message).hint(format!(
                    "say where it may go, under [credential.{name}] in your belljar.toml; belljar knows {}",
                    names.join(", ")
                )))
            }
        }
    }

    fn push(&mut self, credential: Credential) -> Result<(), SandboxError> {
        if self.credentials.iter().any(|known| known.name == credential.name) {
            return Ok(());
        }
        for other in &self.credentials {
            if let Some(twice) = credential.variables.iter().find(|name| other.variables.contains(name)) {
                let message = format!(
                    "`{twice}` would be set by two credentials, `{}` and `{}`",
                    other.name, credential.name
                );
                return Err(ErrorCode::RequestConflict
                    .error(message)
                    .hint("use one of them, or give one other `variables` in your belljar.toml"));
            }
        }
        self.credentials.push(credential);
        Ok(())
    }

    fn search(&mut self, search: &WebSearch, store: &dyn SecretStore) -> Result<(), SandboxError> {
        let names: Vec<&SecretName> = searches().map(|known| &known.credential.name).collect();
        let listed = names.iter().map(|name| name.as_str()).collect::<Vec<_>>().join(", ");
        let found = match search {
            WebSearch::Named(name) if names.contains(&name) => self.find(name).cloned(),
            WebSearch::Named(name) => {
                let message = format!("`{name}` does not search the web");
                return Err(ErrorCode::CredentialMissing.error(message).hint(format!("there are {listed}")));
            }
            WebSearch::Detect | WebSearch::IfStored => names.iter().find_map(|name| {
                let credential = self.find(name)?;
                let SecretSource::Stored(reference) = &credential.source else { return None };
                store.read(reference).ok().map(|_| credential.clone())
            }),
        };
        match found {
            Some(credential) => self.push(credential),
            None if *search == WebSearch::IfStored => Ok(()),
            None => Err(ErrorCode::CredentialMissing
                .error(format!("no search of the web has a secret: {listed}"))
                .hint(hint!("keep one: {}", CommandLine::SecretsSet.of("tavily")))),
        }
    }

    /// Variables that name a secret: the placeholder if it is bound, the real value if that was requested, else an error.
    fn variables(&mut self, flags: &CredentialFlags) -> Result<Vec<Forwarded>, SandboxError> {
        let mut forwarded = Vec::new();
        for (variable, key) in &flags.variables {
            let reference = SecretRef::Vault(key.clone());
            if flags.forward.contains(key) {
                forwarded.push(Forwarded { variable: variable.clone(), source: reference });
                continue;
            }
            let source = SecretSource::Stored(reference);
            let bound = self.known().find(|known| known.source == source).or_else(|| self.find(key)).cloned();
            let Some(bound) = bound else {
                let message = format!(
                    "`{variable}` cannot have a placeholder: no credential is bound to `secret:{key}`"
                );
                return Err(ErrorCode::CredentialMissing.error(message).hint(hint!(
                    "say where it may go, under [credential.{}] in your belljar.toml; or let this run \
                     hold the real value, with {}",
                    key.to_string(),
                    CommandLine::ForwardSecret.of(key)
                )));
            };
            let name = bound.name.clone();
            self.push(bound)?;
            for known in self.credentials.iter_mut().filter(|known| known.name == name) {
                if !known.variables.contains(variable) {
                    known.variables.push(variable.clone());
                }
            }
        }
        match flags.forward.iter().find(|key| !flags.variables.iter().any(|(_, named)| named == *key)) {
            Some(key) => Err(ErrorCode::RequestValue
                .error(format!("the secret `{key}` is to be forwarded, and no variable is named for it"))
                .hint(hint!("add {}", Term::Env.to(format!("NAME=secret:{key}"))))),
            None => Ok(forwarded),
        }
    }

    fn github(
        &mut self,
        request: &GitHubRequest,
        danger_forward_key: bool,
    ) -> Result<GitHubGrant, SandboxError> {
        let Some(app) = self.layers.iter().find_map(|layer: &Settings| layer.github.as_ref()) else {
            let message = "a token for GitHub needs a GitHub App, and none is configured";
            return Err(ErrorCode::CredentialMissing
                .error(message)
                .hint("name one under [github] in your belljar.toml: app, installation and key"));
        };
        if danger_forward_key && request.profile != GitHubProfile::RepoWrite {
            let message = format!(
                "the key of the GitHub App cannot be forwarded with the profile `{}`",
                request.profile
            );
            return Err(ErrorCode::NotGranted.error(message).hint(hint!(
                "a program that has the key can do all that the App can: it is forwarded only with {}",
                Term::GitHub.to("repo-write")
            )));
        }
        let app = app.value.clone();
        let credential = of_app(&app)?;
        if self.credentials.iter().any(|known| known.name == credential.name) {
            let message = "the token of the GitHub App and the credential `github` are both for GitHub";
            return Err(ErrorCode::RequestConflict.error(message).hint("use one of them"));
        }
        self.push(credential)?;
        Ok(GitHubGrant {
            app,
            profile: request.profile,
            repositories: request.repositories.clone(),
            danger_forward_key,
        })
    }
}

/// Where a token of an App may go: the hosts of github.com, or of a GitHub Enterprise server.
fn of_app(app: &GitHubApp) -> Result<Credential, SandboxError> {
    let known = built_in("github").map(|known| known.credential.clone());
    let mut credential = known.expect("the table of credentials has github, which a test checks");
    credential.source = SecretSource::GitHubApp;
    if app.host.as_str() == "github.com" {
        return Ok(credential);
    }
    let wrong = |error: &dyn std::fmt::Display| ErrorCode::ConfigInvalid.error(format!("[github]: {error}"));
    let rest = app.api.split_once("://").map_or(app.api.as_str(), |(_, rest)| rest);
    let (authority, base) = rest.split_once('/').unwrap_or((rest, ""));
    let git = credential.bindings.iter().find(|binding| binding.host.to_string() == "=github.com").cloned();
    let mut git = git.expect("the table of credentials has git at github.com");
    git.host = format!("={}", app.host).parse().map_err(|error| wrong(&error))?;
    let (name, port) = authority.split_once(':').unwrap_or((authority, "443"));
    credential.bindings = vec![git.clone()];
    // An API given by IP address is only for tests, and the sandbox could not reach it.
    if let Ok(host) = format!("={name}").parse() {
        let paths = match base {
            "" => Vec::new(),
            base => vec![format!("/{base}/**").parse::<PathGlob>().map_err(|error| wrong(&error))?],
        };
        let mut locations = git.locations;
        locations.reverse();
        credential.bindings.push(CredentialBinding {
            host,
            ports: port.parse::<PortRange>().map_err(|error| wrong(&error))?,
            requests: RequestFilter { methods: Vec::new(), paths },
            locations,
            inject: Inject::Placeholder,
        });
    }
    Ok(credential)
}

/// The rules that a credential needs to be of use.
fn rules(credential: &Credential) -> Result<Vec<Rule>, SandboxError> {
    let rule = |binding: &CredentialBinding| {
        let text = format!("{}:{}/tls", binding.host, binding.ports);
        Rule::allow(&text, RuleSource::Credential(credential.name.clone())).map_err(|error| {
            ErrorCode::ConfigInvalid
                .error(format!("credential `{}`: {error}", credential.name))
                .caused_by(error)
        })
    };
    credential.bindings.iter().map(rule).collect()
}

fn has_egress(policy: &EgressPolicy, credentials: &[Credential]) -> Result<(), SandboxError> {
    match (policy.mode, credentials.first()) {
        (Mode::None, Some(first)) => {
            let message =
                format!("the credential `{}` is of no use: the mode is none, and nothing leaves", first.name);
            Err(ErrorCode::RequestConflict
                .error(message)
                .hint(hint!("add {}, or remove the secret", Term::Egress.to("strict"))))
        }
        _ => Ok(()),
    }
}

/// Whether a name begins as keys of well-known services do, and is as long as one.
fn is_like_a_key(name: &SecretName) -> bool {
    name.as_str().len() >= 20 && KEYS.iter().any(|start| name.as_str().starts_with(start))
}

const KEYS: [&str; 9] = ["sk-", "ghp_", "gho_", "ghs_", "github_pat_", "glpat-", "npm_", "pypi-", "tvly-"];
