//! Profiles: named choices of a sandbox, built in or configured, and which of them work on this machine.
//!
//! A profile is the base of a request, and the request fills in or replaces what it says, with some exceptions: the wall and
//! the root that a profile names, the weakest wall that it takes, and the width of its egress can be made stricter and never wider; and
//! what it says of `nested` and `inspect` is not the request's to undo. Lists are joined.

use crate::admit;
use belljar_api::{EgressRequest, LimitsRequest, ProfileInfo, SandboxRequest, WorkspaceRequest};
use belljar_engine::WallReport;
use belljar_engine::config::{self, nearest};
use belljar_spec::egress::{Mode, Protocol, Rule, RuleSource};
use belljar_spec::{Assurance, BackendChoice, BackendName, SandboxError};
use std::fmt::Display;
use std::str::FromStr;

/// A profile that somebody wrote, or that belljar has.
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
    /// Whether commands may make user namespaces; left out, whoever asks says so.
    pub nested: Option<bool>,
    /// `built-in`, or the file that it comes from.
    pub source: String,
}

/// Every profile, and whether it works here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Profiles {
    all: Vec<(Profile, Works)>,
    default: String,
}

/// The wall that a profile has here, or why it has none.
type Works = Result<BackendName, String>;

impl Profiles {
    /// Those that are built in and those that were configured, beside these walls, all of which hold every limit. `default` is taken
    /// where none is named; left out, it is the built-in one.
    pub fn new(
        walls: &[WallReport],
        configured: Vec<Profile>,
        default: Option<String>,
    ) -> Result<Profiles, SandboxError> {
        Profiles::with_limits(walls, configured, default, |_| Ok(Vec::new()))
    }

    /// The same where some limits are only held by Docker.
    fn with_limits(
        walls: &[WallReport],
        configured: Vec<Profile>,
        default: Option<String>,
        not_held: impl Fn(&LimitsRequest) -> Result<Vec<&'static str>, SandboxError>,
    ) -> Result<Profiles, SandboxError> {
        let mut all: Vec<(Profile, Works)> = Vec::new();
        for profile in built_in().into_iter().chain(configured) {
            if let Some((known, _)) = all.iter().find(|(known, _)| known.name == profile.name) {
                let message = format!(
                    "there are two profiles `{}`: {} and {}",
                    profile.name, known.source, profile.source
                );
                return Err(
                    SandboxError::policy("profile_twice", message).hint("give one of them another name")
                );
            }
            is_name(&profile)?;
            let works = works(&profile, walls, &not_held(&profile.base.limits)?)?;
            all.push((profile, works));
        }
        let default = default.unwrap_or_else(|| DEFAULT.into());
        let profiles = Profiles { all, default };
        profiles.find(&profiles.default)?;
        Ok(profiles)
    }

    /// Those of this machine's files as well.
    pub fn of_this_machine(walls: &[WallReport]) -> Result<Profiles, SandboxError> {
        let written = config::profiles()?;
        let default = written.iter().find(|profile| profile.default).map(|profile| profile.name.clone());
        let written = written.into_iter().map(Profile::written).collect();
        Profiles::with_limits(walls, written, default, admit::not_held)
    }

    /// What can be chosen here.
    pub fn advertised(&self) -> Vec<ProfileInfo> {
        let info = |(profile, works): &(Profile, Works)| {
            let wall = works.as_ref().ok()?;
            Some(ProfileInfo {
                name: profile.name.clone(),
                label: profile.label.clone(),
                description: profile.description.clone(),
                remote: profile.remote,
                backend: wall.as_str().into(),
                assurance: wall.assurance().as_str().into(),
                egress: egress(profile, *wall),
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
                Err(SandboxError::unavailable("profile_unavailable", message).hint(self.offer()))
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
            SandboxError::policy("profile_unknown", format!("there is no profile `{name}`"))
                .hint(format!("{meant}{}", self.offer()))
        })
    }

    fn offer(&self) -> String {
        let names =
            self.all.iter().filter(|(_, works)| works.is_ok()).map(|(profile, _)| profile.name.as_str());
        match names.collect::<Vec<_>>().join(", ") {
            none if none.is_empty() => "none works here; `belljar doctor` says why".into(),
            names => format!("on offer here: {names}"),
        }
    }
}

impl Profile {
    /// One of a file.
    fn written(profile: config::Profile) -> Profile {
        let limits = LimitsRequest {
            memory: profile.memory,
            cpus: profile.cpus,
            pids: profile.pids,
            open_files: None,
            disk: profile.disk,
            timeout: profile.timeout,
            output: profile.output,
            ready: None,
        };
        let egress = EgressRequest {
            mode: profile.egress,
            allow: profile.allow,
            deny: Vec::new(),
            groups: profile.groups,
            inspect: profile.inspect,
        };
        let base = SandboxRequest {
            backend: profile.backend,
            at_least: profile.at_least,
            rootfs: profile.rootfs,
            egress,
            secrets: profile.secrets,
            limits,
            ..SandboxRequest::default()
        };
        Profile {
            label: profile.label.unwrap_or_else(|| profile.name.clone()),
            name: profile.name,
            description: profile.description,
            remote: false,
            base,
            nested: profile.nested,
            source: profile.place.to_string(),
        }
    }

    /// Whether its sandboxes have a wall of their own.
    pub fn has_wall(&self) -> bool {
        let level = |text: &String| text.parse::<Assurance>().ok();
        let named = match self.base.backend.as_deref().map(str::parse) {
            Some(Ok(BackendChoice::Named(name))) => Some(name.assurance()),
            _ => None,
        };
        let weakest = named.or_else(|| self.base.at_least.as_ref().and_then(level));
        // Without a word of either, the strongest that works is taken, and never none.
        weakest.is_none_or(|weakest| weakest >= Assurance::Container)
            && named.is_none_or(|named| named >= Assurance::Namespace)
    }

    /// The request with what the profile says.
    pub fn apply(&self, asked: SandboxRequest) -> Result<SandboxRequest, SandboxError> {
        let base = self.base.clone();
        Ok(SandboxRequest {
            backend: self.wall(asked.backend)?,
            at_least: self.weakest(asked.at_least)?,
            rootfs: self.root(asked.rootfs)?,
            workspace: workspace(base.workspace, asked.workspace),
            egress: self.egress(asked.egress)?,
            llm: asked.llm.or(base.llm),
            secrets: joined(base.secrets, asked.secrets),
            web_search: asked.web_search.or(base.web_search),
            github: asked.github.or(base.github),
            env: base.env.into_iter().chain(asked.env).collect(),
            limits: limits(base.limits, asked.limits),
            ports: joined(base.ports, asked.ports),
            nested: match self.nested {
                Some(false) if asked.nested => return Err(self.wider("nested", "true", "false")),
                Some(nested) => nested,
                None => asked.nested,
            },
            volumes: base.volumes.into_iter().chain(asked.volumes).collect(),
            admin: asked.admin || base.admin,
            root: asked.root || base.root,
        })
    }

    fn wall(&self, asked: Option<String>) -> Result<Option<String>, SandboxError> {
        match (&self.base.backend, asked) {
            (Some(base), Some(asked)) if base != "auto" && *base != asked && asked != "auto" => {
                Err(self.wider("backend", &asked, base))
            }
            (Some(base), Some(asked)) if base != "auto" && asked == "auto" => Ok(Some(base.clone())),
            (base, asked) => Ok(asked.or_else(|| base.clone())),
        }
    }

    /// A profile's root may be chosen for what it does not show.
    fn root(&self, asked: Option<String>) -> Result<Option<String>, SandboxError> {
        match (&self.base.rootfs, asked) {
            (Some(base), Some(asked)) if *base != asked => Err(self.wider("rootfs", &asked, base)),
            (base, asked) => Ok(asked.or_else(|| base.clone())),
        }
    }

    fn weakest(&self, asked: Option<String>) -> Result<Option<String>, SandboxError> {
        let understood = |text: &Option<String>| {
            text.as_ref().map(|text| understood::<Assurance>("at_least", text)).transpose()
        };
        let strictest = understood(&self.base.at_least)?.max(understood(&asked)?);
        Ok(strictest.map(|level| level.as_str().into()))
    }

    fn egress(&self, asked: EgressRequest) -> Result<EgressRequest, SandboxError> {
        let base = self.base.egress.clone();
        if let (Some(base), Some(asked)) = (&base.mode, &asked.mode)
            && understood::<Mode>("egress.mode", asked)? > understood::<Mode>("egress.mode", base)?
        {
            return Err(self.wider("egress.mode", asked, base));
        }
        let unseen = |word: &&String| {
            let rule = Rule::allow(word, RuleSource::Program);
            let passes_tcp = |rule: Rule| rule.openings.iter().any(|to| to.protocols.contains(Protocol::Tcp));
            rule.is_ok_and(passes_tcp) && !base.allow.contains(word)
        };
        if let Some(unseen) = asked.allow.iter().find(|word| base.inspect && unseen(word)) {
            return Err(self.wider("egress.allow", unseen, "`inspect`, and nobody looks into tcp"));
        }
        Ok(EgressRequest {
            mode: asked.mode.or(base.mode),
            allow: joined(base.allow, asked.allow),
            deny: joined(base.deny, asked.deny),
            groups: joined(base.groups, asked.groups),
            inspect: base.inspect || asked.inspect,
        })
    }

    fn wider(&self, field: &str, asked: &str, base: &str) -> SandboxError {
        let message = format!("`{field}` is {asked}, and the profile `{}` says {base}", self.name);
        SandboxError::policy("profile_narrower", message).hint("leave it out, or choose another profile")
    }
}

/// How wide the way out is, if nobody says otherwise. Without a wall of its own nothing holds it.
fn egress(profile: &Profile, wall: BackendName) -> String {
    match &profile.base.egress.mode {
        Some(mode) => mode.clone(),
        None if wall.assurance() < Assurance::Namespace => Mode::Open.as_str().into(),
        None => Mode::default().as_str().into(),
    }
}

fn workspace(base: WorkspaceRequest, asked: WorkspaceRequest) -> WorkspaceRequest {
    WorkspaceRequest {
        folder: asked.folder.or(base.folder),
        overlay: asked.overlay || base.overlay,
        branch: asked.branch.or(base.branch),
        clone: asked.clone.or(base.clone),
        depth: asked.depth.or(base.depth),
        same_path: asked.same_path || base.same_path,
        ro: joined(base.ro, asked.ro),
        rw: joined(base.rw, asked.rw),
        protect: joined(base.protect, asked.protect),
        push: joined(base.push, asked.push),
        share_git: asked.share_git || base.share_git,
        agent_context: joined(base.agent_context, asked.agent_context),
    }
}

fn limits(base: LimitsRequest, asked: LimitsRequest) -> LimitsRequest {
    LimitsRequest {
        memory: asked.memory.or(base.memory),
        cpus: asked.cpus.or(base.cpus),
        pids: asked.pids.or(base.pids),
        open_files: asked.open_files.or(base.open_files),
        disk: asked.disk.or(base.disk),
        timeout: asked.timeout.or(base.timeout),
        output: asked.output.or(base.output),
        ready: asked.ready.or(base.ready),
    }
}

fn joined<T: PartialEq>(mut base: Vec<T>, asked: Vec<T>) -> Vec<T> {
    for one in asked {
        if !base.contains(&one) {
            base.push(one);
        }
    }
    base
}

/// The wall that a profile has on a machine with these, where only Docker holds the limits `unheld`.
fn works(profile: &Profile, walls: &[WallReport], unheld: &[&str]) -> Result<Works, SandboxError> {
    let choice = match &profile.base.backend {
        Some(backend) => understood::<BackendChoice>("backend", backend)?,
        None => BackendChoice::Auto,
    };
    let weakest = match &profile.base.at_least {
        Some(level) => understood::<Assurance>("at_least", level)?,
        None => Assurance::Host,
    };
    if let Some(mode) = &profile.base.egress.mode {
        understood::<Mode>("egress.mode", mode)?;
    }
    let tried: Vec<BackendName> = match choice {
        BackendChoice::Named(name) => vec![name],
        BackendChoice::Auto => BackendName::AUTO.into(),
    };
    let mut reasons = Vec::new();
    for name in tried {
        let report = walls.iter().find(|report| report.backend == name);
        match report.map(|report| &report.outcome) {
            _ if name.assurance() < weakest => {
                reasons.push(format!("{name} is {}, and {weakest} is wanted", name.assurance()));
            }
            Some(Ok(())) if name.assurance() < Assurance::Namespace && says_egress(&profile.base.egress) => {
                reasons.push(format!(
                    "{name} does not isolate the network, so nothing holds what it says of egress"
                ));
            }
            Some(Ok(())) if !unheld.is_empty() && !matches!(name, BackendName::Docker(_)) => {
                reasons.push(format!("{name} cannot hold its limit on {} here", unheld.join(" and ")));
            }
            Some(Ok(())) => return Ok(Ok(name)),
            Some(Err(error)) => reasons.push(format!("{name}: {error}")),
            None => reasons.push(format!("{name} was not tried")),
        }
    }
    Ok(Err(reasons.join("; ")))
}

/// Whether something is said that a backend would have to hold, be it that everything is open.
fn says_egress(egress: &EgressRequest) -> bool {
    let EgressRequest { mode, allow, deny, groups, inspect } = egress;
    mode.is_some() || *inspect || ![allow, deny, groups].iter().all(|list| list.is_empty())
}

fn is_name(profile: &Profile) -> Result<(), SandboxError> {
    let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-' || byte == b'_';
    let name = &profile.name;
    if (1..=LONGEST_NAME).contains(&name.len()) && name.bytes().all(fits) {
        return Ok(());
    }
    let message = format!("`{name}` is no name of a profile ({})", profile.source);
    Err(SandboxError::policy("profile_name", message).hint("write small letters, digits, `-` and `_`"))
}

fn built_in() -> Vec<Profile> {
    let one = |name: &str, label: &str, description: &str, backend: &str| Profile {
        name: name.into(),
        label: label.into(),
        description: Some(description.into()),
        remote: false,
        base: SandboxRequest { backend: Some(backend.into()), ..SandboxRequest::default() },
        nested: None,
        source: BUILT_IN.into(),
    };
    vec![
        one(DEFAULT, "Default", "the strongest wall that works here", "auto"),
        one("native", "Namespaces", "namespaces of belljar's own making", "native"),
        one("bwrap", "bubblewrap", "the same kind of wall, made by bubblewrap", "bwrap"),
        one(
            "container",
            "Container",
            "the container around belljar, shared with everything in it",
            "container",
        ),
        one("host", "No wall", "no wall at all: everything this user may, a sandbox may", "host"),
    ]
}

fn understood<T: FromStr<Err: Display>>(field: &str, text: &str) -> Result<T, SandboxError> {
    text.parse().map_err(|error| SandboxError::policy("request_value", format!("`{field}`: {error}")))
}

const BUILT_IN: &str = "built-in";
const DEFAULT: &str = "default";
const LONGEST_NAME: usize = 64;

#[cfg(test)]
#[path = "profiles/tests.rs"]
mod tests;
