//! Profiles: named choices of a sandbox, built in or configured, and which of them work on this machine.
//!
//! A profile is the base of a request: see [`SandboxRequest::over`].

use crate::admit;
use belljar_api::ProfileInfo;
use belljar_config::{self as config, nearest};
use belljar_engine::BackendReport;
use belljar_spec::egress::Mode;
use belljar_spec::request::{EgressRequest, LimitsRequest, SandboxRequest, Wider};
use belljar_spec::{
    Assurance, BackendChoice, BackendName, ErrorCode, Hint, Runtime, SandboxError, Term, hint,
};

/// A profile from the configuration, or one that is built in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Profile {
    pub name: String,
    /// For people.
    pub label: String,
    pub description: Option<String>,
    /// Its sandboxes are on another machine.
    pub remote: bool,
    /// What it says of a sandbox.
    pub base: SandboxRequest,
    /// `built-in`, or the file that it comes from.
    pub source: String,
}

/// All profiles, built in and of this machine's files, whether they work here or not.
pub fn known_profiles() -> Result<Vec<Profile>, SandboxError> {
    Ok(with_built_in(config::profiles()?.into_iter().map(Profile::written).collect()))
}

fn with_built_in(configured: Vec<Profile>) -> Vec<Profile> {
    // Profiles for Docker are younger than files that name one of their own so.
    let is_replaced = |built_in: &Profile| {
        REPLACEABLE.contains(&built_in.name.as_str())
            && configured.iter().any(|profile| profile.name == built_in.name)
    };
    let mut all: Vec<Profile> = built_in().into_iter().filter(|profile| !is_replaced(profile)).collect();
    all.extend(configured);
    all
}

/// Every profile, and whether it works here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Profiles {
    all: Vec<(Profile, Works)>,
    default: String,
}

/// The backend that a profile gets here, or why none works.
type Works = Result<BackendName, String>;

impl Profiles {
    /// Those that are built in and those that were configured, with these backends, all of which hold every limit. `default` is
    /// taken where none is named; without it, the built-in one.
    pub fn new(
        backends: &[BackendReport],
        configured: Vec<Profile>,
        default: Option<String>,
    ) -> Result<Profiles, SandboxError> {
        Profiles::with_limits(backends, configured, default, |_| Vec::new())
    }

    /// The same where some limits are only held by Docker.
    fn with_limits(
        backends: &[BackendReport],
        configured: Vec<Profile>,
        default: Option<String>,
        not_held: impl Fn(&LimitsRequest) -> Vec<&'static str>,
    ) -> Result<Profiles, SandboxError> {
        let mut all: Vec<(Profile, Works)> = Vec::new();
        for profile in with_built_in(configured) {
            if let Some((known, _)) = all.iter().find(|(known, _)| known.name == profile.name) {
                let message = format!(
                    "there are two profiles `{}`: {} and {}",
                    profile.name, known.source, profile.source
                );
                return Err(ErrorCode::RequestConflict.error(message).hint("give one of them another name"));
            }
            is_name(&profile)?;
            let works = works(&profile, backends, &not_held(&profile.base.limits));
            all.push((profile, works));
        }
        let default = default.unwrap_or_else(|| DEFAULT.into());
        let profiles = Profiles { all, default };
        profiles.find(&profiles.default)?;
        Ok(profiles)
    }

    /// Those of this machine's files as well.
    pub fn of_this_machine(backends: &[BackendReport]) -> Result<Profiles, SandboxError> {
        let written = config::profiles()?;
        let default = written.iter().find(|profile| profile.default).map(|profile| profile.name.clone());
        let written = written.into_iter().map(Profile::written).collect();
        Profiles::with_limits(backends, written, default, admit::not_held)
    }

    /// What can be chosen here.
    pub fn advertised(&self) -> Vec<ProfileInfo> {
        let info = |(profile, works): &(Profile, Works)| {
            let isolation = works.as_ref().ok()?;
            Some(ProfileInfo {
                name: profile.name.clone(),
                label: profile.label.clone(),
                description: profile.description.clone(),
                remote: profile.remote,
                backend: isolation.as_str().into(),
                assurance: isolation.assurance().as_str().into(),
                egress: egress(profile, *isolation),
                default: profile.name == self.default,
                source: profile.source.clone(),
            })
        };
        self.all.iter().filter_map(info).collect()
    }

    /// The profile of this name, or the default one; refused, with what is on offer, if it is not known or does not work here.
    pub fn choose(&self, name: Option<&str>) -> Result<&Profile, SandboxError> {
        let (profile, works) = self.find(name.unwrap_or(&self.default))?;
        match works {
            Ok(_) => Ok(profile),
            Err(reason) => {
                let message = format!("the profile `{}` does not work here: {reason}", profile.name);
                Err(ErrorCode::ProfileUnavailable.error(message).hint(self.offer()))
            }
        }
    }

    /// Whether it is the one that is taken where none is named.
    pub fn is_default(&self, profile: &Profile) -> bool {
        profile.name == self.default
    }

    fn find(&self, name: &str) -> Result<&(Profile, Works), SandboxError> {
        let found = self.all.iter().find(|(profile, _)| profile.name == name);
        found.ok_or_else(|| {
            let names: Vec<&str> = self.all.iter().map(|(profile, _)| profile.name.as_str()).collect();
            let meant =
                nearest(name, &names).map(|meant| format!("did you mean `{meant}`? ")).unwrap_or_default();
            ErrorCode::ProfileUnknown.error(format!("there is no profile `{name}`")).hint(hint!(
                "{}{}",
                meant,
                self.offer()
            ))
        })
    }

    fn offer(&self) -> Hint {
        let names =
            self.all.iter().filter(|(_, works)| works.is_ok()).map(|(profile, _)| profile.name.as_str());
        match names.collect::<Vec<_>>().join(", ") {
            none if none.is_empty() => hint!("none works here; {} says why", Term::Capabilities),
            names => format!("on offer here: {names}").into(),
        }
    }
}

impl Profile {
    /// One of a file.
    fn written(profile: config::Profile) -> Profile {
        Profile {
            label: profile.label.unwrap_or_else(|| profile.name.clone()),
            name: profile.name,
            description: profile.description,
            remote: false,
            base: profile.base,
            source: profile.place.to_string(),
        }
    }

    /// Whether its sandboxes are isolated.
    pub fn is_isolated(&self) -> bool {
        let named = match self.base.backend {
            Some(BackendChoice::Named(name)) => Some(name.assurance()),
            Some(BackendChoice::Auto) | None => None,
        };
        // If neither is said, the strongest that works is taken, and never none.
        named
            .or(self.base.at_least)
            .is_none_or(|weakest| weakest.isolates() || weakest.is_at_least(Assurance::Container))
            && named.is_none_or(Assurance::isolates)
    }

    /// The request with what the profile says.
    pub fn apply(&self, request: SandboxRequest) -> Result<SandboxRequest, SandboxError> {
        request.over(&self.base).map_err(|Wider { field, requested, base }| {
            let message = format!("`{field}` is {requested}, and the profile `{}` says {base}", self.name);
            ErrorCode::NotGranted.error(message).hint("leave it out, or choose another profile")
        })
    }
}

/// The egress mode, if the request does not say another one. Without a network of its own a sandbox reaches what the host reaches.
fn egress(profile: &Profile, isolation: BackendName) -> String {
    let usual = if !isolation.assurance().isolates() { Mode::Open } else { Mode::default() };
    profile.base.egress.mode.unwrap_or(usual).to_string()
}

/// The backend that a profile gets on a machine with these, where only Docker holds the limits `unheld`.
fn works(profile: &Profile, backends: &[BackendReport], unheld: &[&str]) -> Works {
    let choice = profile.base.backend.unwrap_or_default();
    let tried: Vec<BackendName> = match choice {
        BackendChoice::Named(name) => vec![name],
        BackendChoice::Auto => BackendName::AUTO.into(),
    };
    let mut reasons = Vec::new();
    for name in tried {
        let report = backends.iter().find(|report| report.backend == name);
        match report.map(|report| &report.outcome) {
            _ if let Some(least) = profile.base.at_least
                && !name.assurance().is_at_least(least) =>
            {
                reasons.push(format!("{name} is {}, and {least} is wanted", name.assurance()));
            }
            Some(Ok(()))
                if !name.assurance().isolates() && profile.base.egress != EgressRequest::default() =>
            {
                reasons.push(format!(
                    "{name} does not isolate the network, so nothing holds what it says of egress"
                ));
            }
            Some(Ok(())) if !unheld.is_empty() && !matches!(name, BackendName::Docker(_)) => {
                reasons.push(format!("{name} cannot hold its limit on {} here", unheld.join(" and ")));
            }
            Some(Ok(())) => return Ok(name),
            Some(Err(error)) => reasons.push(format!("{name}: {error}")),
            None => reasons.push(format!("{name} was not tried")),
        }
    }
    Err(reasons.join("; "))
}

fn is_name(profile: &Profile) -> Result<(), SandboxError> {
    let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-' || byte == b'_';
    let name = &profile.name;
    if (1..=MAX_NAME_BYTES).contains(&name.len()) && name.bytes().all(fits) {
        return Ok(());
    }
    let message = format!("`{name}` is no name of a profile ({})", profile.source);
    Err(ErrorCode::RequestValue.error(message).hint("write small letters, digits, `-` and `_`"))
}

fn built_in() -> Vec<Profile> {
    let one = |name: &str, label: &str, description: &str, backend: BackendChoice| Profile {
        name: name.into(),
        label: label.into(),
        description: Some(description.into()),
        remote: false,
        base: SandboxRequest { backend: Some(backend), ..SandboxRequest::default() },
        source: BUILT_IN.into(),
    };
    vec![
        one(DEFAULT, "Default", "the strongest backend that works here", BackendChoice::Auto),
        one(
            "native",
            "Namespaces",
            "namespaces of belljar's own making",
            BackendChoice::Named(BackendName::Native),
        ),
        one(
            "bwrap",
            "bubblewrap",
            "the same isolation, made by bubblewrap",
            BackendChoice::Named(BackendName::Bwrap),
        ),
        one(
            DOCKER,
            "Docker",
            "a container of the Docker daemon",
            BackendChoice::Named(BackendName::Docker(Runtime::Runc)),
        ),
        one(
            GVISOR,
            "gVisor",
            "a container of the Docker daemon, on gVisor's kernel",
            BackendChoice::Named(BackendName::Docker(Runtime::Runsc)),
        ),
        one(
            "container",
            "Container",
            "the container around belljar, shared with everything in it",
            BackendChoice::Named(BackendName::Container),
        ),
        one(
            "host",
            "No isolation",
            "no isolation: a sandbox may do all that this user may",
            BackendChoice::Named(BackendName::Host),
        ),
    ]
}

/// The source of a profile that no file defines.
pub const BUILT_IN: &str = "built-in";
const DEFAULT: &str = "default";
const DOCKER: &str = "docker";
const GVISOR: &str = "gvisor";
/// Built-in profiles whose place one of a file may take.
const REPLACEABLE: [&str; 2] = [DOCKER, GVISOR];
const MAX_NAME_BYTES: usize = 64;

#[cfg(test)]
#[path = "profiles/tests.rs"]
mod tests;
