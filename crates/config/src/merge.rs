//! Merges layers and flags into one policy. No layer can restore what a higher one removed.
//!
//! | setting | who wins |
//! | --- | --- |
//! | `deny` | the lists of all layers apply |
//! | `allow`, `groups` | add up, within the operator's `only` |
//! | `mode` | flag, else repository (never wider than without it), else user, else operator, else strict; within `widest` |
//! | `connections`, `bytes` | the smallest; a repository cannot raise the default |
//! | `resolvers`, `proxy` | the operator's, else the user's |
//! | `private`, `host_ports` | the operator's and the user's add up; a user's only for sandboxes of their own |
//! | `authorities` | add up |
//! | `inspect` | true if any layer says so |

use crate::flags::EgressFlags;
use crate::layer::{Layer, Settings, source};
use crate::load::Note;
use crate::origin::{At, Origin, Position};
use belljar_spec::egress::{
    EgressLimits, EgressPolicy, GroupName, HostPattern, Mode, Rule, RuleLabel, RuleSource, THIS_MACHINE,
    group,
};
use belljar_spec::{ByteSize, ErrorCode, SandboxError, Term, hint};
use ipnet::IpNet;
use std::fmt;
use std::net::SocketAddr;

/// The origins of a policy's parts; its rules have their own.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Origins {
    pub mode: Origin,
    pub connections: Origin,
    pub bytes: Origin,
    pub resolvers: Origin,
    pub proxy: Origin,
    /// The origin of each group.
    pub groups: Vec<(GroupName, Origin)>,
    pub private: Vec<(IpNet, Origin)>,
    pub authorities: Vec<(String, Origin)>,
    /// The origin of the setting that TLS to every name is intercepted.
    pub inspect: Origin,
    /// The reason of a rule, in its author's words.
    pub reasons: Vec<(RuleLabel, String)>,
}

/// The settings of the active files, at most one per layer.
#[derive(Debug, Default)]
pub(crate) struct Layers {
    pub(crate) operator: Option<Settings>,
    pub(crate) user: Option<Settings>,
    pub(crate) repository: Option<Settings>,
}

impl Layers {
    /// Highest first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Settings> {
        [&self.operator, &self.user, &self.repository].into_iter().flatten()
    }

    /// Makes one policy, or names the setting that exceeds a limit.
    pub(crate) fn merge(
        &self,
        flags: &EgressFlags,
        notes: &mut Vec<Note>,
    ) -> Result<(EgressPolicy, Origins), SandboxError> {
        let mut origins = Origins::default();
        let mut policy = EgressPolicy::strict();
        (policy.mode, origins.mode) = self.mode(flags)?;
        policy.allow = self.allow(flags, &mut origins)?;
        let denied = self.iter().flat_map(|layer| &layer.deny).chain(&flags.deny);
        policy.deny = denied.cloned().collect();
        let only = self.operator.as_ref().and_then(|operator| operator.only.as_ref());
        policy.only = only.map(|only| only.value.clone());
        for range in self.above_repository().flat_map(|layer| &layer.private) {
            policy.private.push(range.value);
            origins.private.push((range.value, Origin::Line(range.place.clone())));
        }
        self.open_host_ports(flags, &mut policy)?;
        notes.extend(policy.allow.iter().filter(|rule| means_localhost(rule)).map(|rule| Note {
            code: "rule_for_localhost",
            message: format!(
                "{} opens nothing of this machine: inside, the name is the sandbox itself",
                rule.label
            ),
            hint: Some(hint!(
                "{} opens a port of this machine, which is {} inside",
                Term::EgressHostPorts,
                THIS_MACHINE
            )),
        }));
        if let Some(resolvers) = self.resolvers(notes) {
            policy.resolvers = resolvers.value.clone();
            origins.resolvers = Origin::Line(resolvers.place.clone());
        }
        let proxies = self.above_repository().filter_map(|layer| layer.proxy.as_ref());
        if let Some(proxy) = proxies.into_iter().next() {
            policy.proxy = Some(proxy.value.clone());
            origins.proxy = Origin::Line(proxy.place.clone());
        }
        // They add up: the operator's CAs are trusted even if a user sets others.
        for file in self.iter().flat_map(|layer| &layer.authorities) {
            policy.authorities.extend_from_slice(&file.value.pem);
            policy.authorities.push(b'\n');
            let path = file.value.path.display().to_string();
            origins.authorities.push((path, Origin::Line(file.place.clone())));
        }
        if let Some(place) = self.iter().find_map(|layer| layer.inspect.clone()) {
            (policy.inspect, origins.inspect) = (true, Origin::Line(place));
        } else if flags.inspect {
            (policy.inspect, origins.inspect) = (true, Origin::Flag);
        }
        let (connections, origin) = self.connections();
        (policy.limits.connections, origins.connections) = (connections, origin);
        if let Some(bytes) = self.bytes() {
            policy.limits.bytes = Some(bytes.value);
            origins.bytes = Origin::Line(bytes.place.clone());
        }
        origins.reasons = self.iter().flat_map(|layer| layer.reasons.iter().cloned()).collect();
        if policy.mode == Mode::None && !(flags.allow.is_empty() && flags.groups.is_empty()) {
            notes.push(Note {
                code: "mode_is_none",
                message: format!("nothing can be reached: the mode is none ({})", origins.mode),
                hint: Some(hint!(
                    "add {} for {} and {} to take effect",
                    Term::Egress.to("strict"),
                    Term::EgressAllow,
                    Term::EgressGroups
                )),
            });
        }
        Ok((policy, origins))
    }

    /// The layers whose author is the person whose machine it is. A repository, and so an agent, opens nothing that is reserved.
    fn above_repository(&self) -> impl Iterator<Item = &Settings> {
        [&self.operator, &self.user].into_iter().flatten()
    }

    fn open_host_ports(&self, flags: &EgressFlags, policy: &mut EgressPolicy) -> Result<(), SandboxError> {
        let written = self.above_repository().flat_map(|layer| {
            layer.host_ports.iter().map(|port| (port.value, source(port.place.clone()), layer.layer))
        });
        let of_flags = flags.host_ports.iter().map(|(port, source)| (*port, source.clone(), Layer::User));
        let only = self.operator.as_ref().and_then(|operator| operator.only.as_ref());
        for (port, source, layer) in written.chain(of_flags) {
            let rule = port
                .rule(source.clone())
                .map_err(|error| ErrorCode::RequestValue.error(error.to_string()))?;
            covered(only.filter(|_| layer != Layer::Operator), &rule, &origin_of(&rule), || {
                format!("port {port} of this machine")
            })?;
            if !policy.host_ports.contains(&port) {
                policy.allow.push(rule);
                policy.host_ports.push(port);
            }
        }
        Ok(())
    }

    fn mode(&self, flags: &EgressFlags) -> Result<(Mode, Origin), SandboxError> {
        let (operator, user) = (self.operator.as_ref(), self.user.as_ref());
        let ceiling = operator.and_then(Ceiling::of_operator);
        let users_ceiling = user.and_then(Ceiling::of_user);
        let mode_of = |layer: Option<&Settings>| layer.and_then(|layer| layer.mode.clone());
        // An explicit mode must be within the limits; the default mode is narrowed to fit.
        if let Some(mode) = mode_of(operator) {
            within(&mode, ceiling.as_ref())?;
        }
        if let Some(mode) = mode_of(user) {
            within(&mode, ceiling.as_ref())?;
            within(&mode, users_ceiling.as_ref())?;
        }
        let (mut mode, mut origin) = match mode_of(user).or_else(|| mode_of(operator)) {
            Some(mode_of) => (mode_of.value, Origin::Line(mode_of.place)),
            None => (Mode::default(), Origin::Default),
        };
        for ceiling in [&ceiling, &users_ceiling].into_iter().flatten() {
            if ceiling.mode < mode {
                (mode, origin) = (ceiling.mode, Origin::Line(ceiling.place.clone()));
            }
        }
        if let Some(requested) = flags.mode {
            return match ceiling {
                Some(ceiling) if requested > ceiling.mode => Err(ErrorCode::NotGranted
                    .error(format!("egress mode `{requested}`: {ceiling}"))
                    .hint(hint!("use {}, or ask the operator", Term::Egress.to(ceiling.mode)))),
                _ => Ok((requested, Origin::Flag)),
            };
        }
        match mode_of(self.repository.as_ref()) {
            Some(requested) if requested.value > mode => {
                let what = format!(
                    "a repository cannot widen the mode: it says {}, without it the mode is {mode} ({origin})",
                    requested.value
                );
                Err(ErrorCode::NotGranted.error(format!("{}: {what}", &requested.place)).hint(hint!(
                    "remove the line; a single run can ask for it with {}",
                    Term::Egress.to(requested.value)
                )))
            }
            Some(requested) => Ok((requested.value, Origin::Line(requested.place))),
            None => Ok((mode, origin)),
        }
    }

    fn allow(&self, flags: &EgressFlags, origins: &mut Origins) -> Result<Vec<Rule>, SandboxError> {
        let only = self.operator.as_ref().and_then(|operator| operator.only.as_ref());
        let mut rules = flags.allow.clone();
        let groups = flags.groups.iter().map(|name| (*name, Origin::Flag));
        let below = |layer: &Settings| only.filter(|_| layer.layer != Layer::Operator);
        for rule in &flags.allow {
            covered(only, rule, &Origin::Flag, || match rule.label.source() {
                RuleSource::Credential(name) => format!("credential `{name}` goes to `{rule}`, which"),
                _ => format!("the rule `{rule}`"),
            })?;
        }
        for (name, origin) in groups {
            add_group(name, origin, only, &mut rules, origins)?;
        }
        for layer in self.iter() {
            for rule in &layer.allow {
                covered(below(layer), rule, &origin_of(rule), || format!("`{rule}`"))?;
                rules.push(rule.clone());
            }
            for named in &layer.groups {
                let origin = Origin::Line(named.place.clone());
                add_group(named.value, origin, below(layer), &mut rules, origins)?;
            }
        }
        Ok(rules)
    }

    fn resolvers(&self, notes: &mut Vec<Note>) -> Option<&At<Vec<SocketAddr>>> {
        let operator = self.operator.as_ref().and_then(|layer| layer.resolvers.as_ref());
        let user = self.user.as_ref().and_then(|layer| layer.resolvers.as_ref());
        if let (Some(operator), Some(user)) = (operator, user) {
            notes.push(Note {
                code: "resolvers_not_used",
                message: format!(
                    "`resolvers` at {} is not used: the operator has set them at {}",
                    user.place, operator.place
                ),
                hint: Some("take the line out".into()),
            });
        }
        operator.or(user)
    }

    fn connections(&self) -> (u32, Origin) {
        let connections_of = |layer: &Settings| layer.connections.clone();
        let above = [&self.operator, &self.user].into_iter().flatten().filter_map(connections_of);
        let (number, origin) = match above.min_by_key(|number| number.value) {
            Some(number) => (number.value, Origin::Line(number.place)),
            None => (EgressLimits::default().connections, Origin::Default),
        };
        match self.repository.as_ref().and_then(connections_of) {
            Some(less) if less.value < number => (less.value, Origin::Line(less.place)),
            _ => (number, origin),
        }
    }

    fn bytes(&self) -> Option<At<ByteSize>> {
        self.iter().filter_map(|layer| layer.bytes.clone()).min_by_key(|bytes| bytes.value)
    }
}

/// RFC 6761: what no resolver answers.
fn means_localhost(rule: &Rule) -> bool {
    let name = rule.host.name().as_str();
    name == "localhost" || name.ends_with(".localhost")
}

fn origin_of(rule: &Rule) -> Origin {
    match rule.label.source() {
        RuleSource::File { path, line } => Origin::Line(Position { file: path.clone(), line: *line }),
        RuleSource::Flag
        | RuleSource::Group(_)
        | RuleSource::Program
        | RuleSource::Mode
        | RuleSource::Credential(_)
        | RuleSource::Live(_) => Origin::Flag,
    }
}

/// The widest allowed mode, and the setting that limits it.
struct Ceiling {
    mode: Mode,
    place: Position,
    layer: Layer,
    key: &'static str,
}

impl Ceiling {
    fn of_user(user: &Settings) -> Option<Ceiling> {
        let widest = user.widest.as_ref()?;
        Some(Ceiling { mode: widest.value, place: widest.place.clone(), layer: user.layer, key: "widest" })
    }

    /// Open mode reaches every name, so `only` closes it too.
    fn of_operator(operator: &Settings) -> Option<Ceiling> {
        let widest = Ceiling::of_user(operator);
        let only = operator.only.as_ref().map(|only| Ceiling {
            mode: Mode::Strict,
            place: only.place.clone(),
            layer: operator.layer,
            key: "only",
        });
        widest.into_iter().chain(only).min_by_key(|ceiling| ceiling.mode)
    }
}

impl fmt::Display for Ceiling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Ceiling { mode, place, layer, key } = self;
        write!(f, "the widest mode is {mode}, by `{key}` of {layer} ({place})")
    }
}

fn within(mode: &At<Mode>, ceiling: Option<&Ceiling>) -> Result<(), SandboxError> {
    match ceiling {
        Some(ceiling) if mode.value > ceiling.mode => {
            let what = format!("the mode cannot be {}: {ceiling}", mode.value);
            Err(ErrorCode::NotGranted
                .error(format!("{}: {what}", &mode.place))
                .hint(format!("write `mode = \"{}\"`, or take the line out", ceiling.mode)))
        }
        _ => Ok(()),
    }
}

fn add_group(
    name: GroupName,
    origin: Origin,
    only: Option<&At<Vec<HostPattern>>>,
    rules: &mut Vec<Rule>,
    origins: &mut Origins,
) -> Result<(), SandboxError> {
    let group = group(name.as_str()).expect("a name of a group is the name of one that there is");
    for rule in group.rules() {
        covered(only, rule, &origin, || format!("group `{name}` allows `{rule}`, which"))?;
    }
    if !origins.groups.iter().any(|(known, _)| *known == name) {
        rules.extend(group.rules().cloned());
        origins.groups.push((name, origin));
    }
    Ok(())
}

/// `only` has to cover every name that a rule covers.
fn covered(
    only: Option<&At<Vec<HostPattern>>>,
    rule: &Rule,
    origin: &Origin,
    what: impl FnOnce() -> String,
) -> Result<(), SandboxError> {
    let Some(only) = only else { return Ok(()) };
    if only.value.iter().any(|wide| wide.covers(&rule.host)) {
        return Ok(());
    }
    let what = format!("{} is outside of the operator's `only` ({})", what(), only.place);
    let error = match origin {
        Origin::Line(place) => ErrorCode::NotGranted.error(format!("{place}: {what}")),
        Origin::Flag | Origin::Default => ErrorCode::NotGranted.error(what),
    };
    Err(error.hint(format!("take it out, or ask the operator to add `{}` to `only`", rule.host)))
}
