//! Names and ports against the rules.

use belljar_spec::egress::{
    EgressPolicy, HostName, Mode, Opening, PortRange, Protocol, ProtocolSet, Reason, RequestFilter, Rule,
    RuleLabel, RuleSource, is_this_machine,
};
use std::sync::LazyLock;

/// A name and a port that may be dialled, speaking some of the protocols. Only [`opening`] makes one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Allowed {
    name: HostName,
    port: u16,
    grants: Vec<Grant>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Grant {
    label: RuleLabel,
    protocols: ProtocolSet,
    /// Only some requests, so the gateway has to inspect them.
    some_requests: bool,
}

impl Allowed {
    /// The host's name.
    pub fn name(&self) -> &HostName {
        &self.name
    }

    /// The port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// What may be spoken there, all rules together.
    pub fn protocols(&self) -> ProtocolSet {
        self.grants.iter().fold(ProtocolSet::EMPTY, |all, grant| all.union(grant.protocols))
    }

    /// The first rule that lets this protocol through.
    pub fn rule(&self, protocol: Protocol) -> Option<&RuleLabel> {
        self.grants.iter().find(|grant| grant.protocols.contains(protocol)).map(|grant| &grant.label)
    }

    /// Whether every rule that lets this protocol through does so for some requests only. One that lets anything
    /// through, lets this through unseen.
    pub fn is_inspected(&self, protocol: Protocol) -> bool {
        let lets =
            |grant: &&Grant| grant.protocols.contains(protocol) || grant.protocols.contains(Protocol::Tcp);
        let mut grants = self.grants.iter().filter(lets).peekable();
        grants.peek().is_some() && grants.all(|grant| grant.some_requests)
    }
}

/// May any port of this name be dialled? Says the first rule that thinks so.
pub fn name(policy: &EgressPolicy, name: &HostName) -> Result<RuleLabel, Reason> {
    if policy.mode == Mode::None {
        return Err(Reason::EgressOff);
    }
    if is_this_machine(name) && policy.host_ports.is_empty() {
        return Err(Reason::PrivateAddress);
    }
    let denials = Denials::of(policy, name);
    let mut named = false;
    for rule in granting(policy, name, None) {
        named = true;
        if rule.openings.iter().any(|opening| denials.leave_some_of(opening)) {
            return Ok(rule.label.clone());
        }
    }
    Err(if named || denials.are_total() { Reason::NameDenied } else { Reason::NameNotAllowed })
}

/// May this port of this name be dialled, and what may be spoken there?
pub fn opening(policy: &EgressPolicy, name: &HostName, port: u16) -> Result<Allowed, Reason> {
    if policy.mode == Mode::None {
        return Err(Reason::EgressOff);
    }
    if policy.opens_host_port(name, port) == Some(false) {
        // Also where a rule or the mode would allow it, and not a question for a person: it was not opened at the start.
        return Err(Reason::PrivateAddress);
    }
    let denied = Denials::of(policy, name).at(port);
    let (mut named, mut taken) = (false, false);
    let mut grants = Vec::new();
    for rule in granting(policy, name, Some(port)) {
        named = true;
        let granted = rule.protocols_at(port);
        let left = granted.without(denied);
        taken |= left != granted;
        if !left.is_empty() {
            let some_requests = rule.requests.is_some();
            grants.push(Grant { label: rule.label.clone(), protocols: left, some_requests });
        }
    }
    if policy.inspect && grants.iter().any(|grant| grant.protocols.contains(Protocol::Tls)) {
        // Unchecked bytes could be TLS that escapes inspection: from a client that begins late, or with something else
        // first.
        for grant in &mut grants {
            grant.protocols = grant.protocols.without(Protocol::Tcp.into());
        }
        grants.retain(|grant| !grant.protocols.is_empty());
    }
    if !grants.is_empty() {
        return Ok(Allowed { name: name.clone(), port, grants });
    }
    Err(match named {
        _ if taken || denied == ProtocolSet::all() => Reason::NameDenied,
        true => Reason::PortNotAllowed,
        false => Reason::NameNotAllowed,
    })
}

/// Whether a person is asked before it is refused for this reason.
pub fn needs_approval(policy: &EgressPolicy, reason: Reason) -> bool {
    policy.mode == Mode::Ask && matches!(reason, Reason::NameNotAllowed | Reason::PortNotAllowed)
}

/// Whether everything that one policy lets through to a name and port, another one does too, and looks into no more of it: then a
/// connection that the first one allowed may go on. Conservative: where two rules together say what one said, it may not.
pub fn keeps(before: &EgressPolicy, after: &EgressPolicy, name: &HostName, port: u16) -> bool {
    let (Ok(old), Ok(new)) = (opening(before, name, port), opening(after, name, port)) else { return false };
    let looks_into =
        |allowed: &Allowed, policy: &EgressPolicy| policy.inspect || allowed.is_inspected(Protocol::Tls);
    if looks_into(&new, after) && !looks_into(&old, before) {
        return false;
    }
    let (denied_before, denied_after) =
        (Denials::of(before, name).at(port), Denials::of(after, name).at(port));
    granting(before, name, Some(port)).all(|old| {
        let left = old.protocols_at(port).without(denied_before);
        left.is_empty()
            || granting(after, name, Some(port)).any(|new| {
                let requests = new.requests.is_none() || new.requests == old.requests;
                requests && left.without(new.protocols_at(port).without(denied_after)).is_empty()
            })
    })
}

/// Does a rule forbid this name: this protocol at this port, or all of it?
pub fn is_forbidden(policy: &EgressPolicy, name: &HostName, at: Option<(u16, Protocol)>) -> bool {
    let denials = Denials::of(policy, name);
    match at {
        Some((port, protocol)) => denials.at(port).contains(protocol),
        None => denials.are_total(),
    }
}

/// The rules that allow something of this name; in open mode the mode itself comes last, so that a rule that says the same
/// is the one that is recorded. At a port where a rule is about requests, the mode says nothing, and neither does the rule
/// that comes with a credential: the author of that rule did not mean "and any other request".
pub(super) fn granting<'a>(
    policy: &'a EgressPolicy,
    name: &'a HostName,
    port: Option<u16>,
) -> impl Iterator<Item = Granting<'a>> {
    let rules = || policy.allow.iter().filter(|rule| rule.host.matches(name));
    let is_narrowed = port
        .is_some_and(|port| rules().any(|rule| rule.requests.is_some() && rule.matches(name, Some(port))));
    // Who wants something unseen has said so, by a rule.
    let is_unseen = policy.inspect
        && port.is_some_and(|port| {
            let denied = Denials::of(policy, name).at(port);
            rules().any(|rule| rule.protocols_at(port).without(denied).contains(Protocol::Tcp))
        });
    let open = (policy.mode == Mode::Open && !is_narrowed && !is_unseen).then(|| Granting {
        label: &OPEN.0,
        openings: if policy.inspect { &OPEN.2 } else { &OPEN.1 },
        requests: None,
    });
    let granting = |rule: &'a Rule| Granting {
        label: &rule.label,
        openings: &rule.openings,
        requests: rule.requests.as_ref(),
    };
    let counts =
        move |rule: &&Rule| !is_narrowed || !matches!(rule.label.source(), RuleSource::Credential(_));
    rules().filter(counts).map(granting).chain(open)
}

pub(super) struct Granting<'a> {
    pub(super) label: &'a RuleLabel,
    openings: &'a [Opening],
    /// Of TLS and HTTP, only these.
    pub(super) requests: Option<&'a RequestFilter>,
}

impl Granting<'_> {
    pub(super) fn protocols_at(&self, port: u16) -> ProtocolSet {
        Opening::protocols_at(self.openings, port)
    }
}

/// The rules that forbid something of a name.
pub(super) struct Denials<'a>(Vec<&'a Rule>);

impl Denials<'_> {
    pub(super) fn of<'a>(policy: &'a EgressPolicy, name: &HostName) -> Denials<'a> {
        Denials(policy.deny.iter().filter(|rule| rule.host.matches(name)).collect())
    }

    /// What is forbidden at a port. Where one protocol is, unchecked bytes are too: they could be that protocol.
    pub(super) fn at(&self, port: u16) -> ProtocolSet {
        let denied = self.0.iter().fold(ProtocolSet::EMPTY, |all, rule| all.union(rule.protocols_at(port)));
        if denied.is_empty() { denied } else { denied.union(Protocol::Tcp.into()) }
    }

    /// Is there a port of the opening at which something is left? What is forbidden changes only where a forbidden
    /// range begins or ends: these ports stand for all.
    fn leave_some_of(&self, opening: &Opening) -> bool {
        let edges = self.0.iter().flat_map(|rule| &rule.openings).flat_map(|denied| {
            [Some(denied.ports.first()), denied.ports.last().checked_add(1)].into_iter().flatten()
        });
        edges
            .chain([opening.ports.first()])
            .filter(|port| opening.ports.contains(*port))
            .any(|port| !opening.protocols.without(self.at(port)).is_empty())
    }

    /// Nothing of the name is left, whatever a rule might allow.
    fn are_total(&self) -> bool {
        !self.leave_some_of(&EVERYTHING)
    }
}

/// What open mode allows of every name, and what of that where everything is looked into: what can be.
static OPEN: LazyLock<(RuleLabel, [Opening; 1], [Opening; 1])> = LazyLock::new(|| {
    let readable = ProtocolSet::from(Protocol::Tls).union(Protocol::Http.into());
    let label = RuleLabel::new(RuleSource::Mode, "open");
    (label, [*EVERYTHING], [Opening { protocols: readable, ..*EVERYTHING }])
});

static EVERYTHING: LazyLock<Opening> =
    LazyLock::new(|| Opening { ports: PortRange::ALL, protocols: ProtocolSet::all() });

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_everything_is_looked_into_nothing_passes_unchecked() {
        let at = |policy: EgressPolicy, port: u16| {
            let policy = EgressPolicy { inspect: true, ..policy };
            opening(&policy, &"x.com".parse().expect("a name"), port).map(|allowed| allowed.protocols())
        };
        let readable = ProtocolSet::from(Protocol::Tls).union(Protocol::Http.into());
        assert_eq!(at(policy(Mode::Open, &[], &[]), 443), Ok(readable));
        assert_eq!(
            at(policy(Mode::Open, &["x.com:22/ssh"], &[]), 22),
            Ok(readable.union(Protocol::Ssh.into()))
        );
        let both = policy(Mode::Strict, &["x.com:443/tls", "x.com:443/tcp"], &[]);
        assert_eq!(at(both, 443), Ok(Protocol::Tls.into()));
        // A rule that names `tcp` alone asks for no inspection.
        assert_eq!(at(policy(Mode::Strict, &["x.com:443/tcp"], &[]), 443), Ok(Protocol::Tcp.into()));
        assert_eq!(at(policy(Mode::Open, &["x.com:443/tcp"], &[]), 443), Ok(Protocol::Tcp.into()));
        assert_eq!(at(policy(Mode::Open, &["x.com:443/tcp"], &["x.com:443/ssh"]), 443), Ok(readable));
    }

    fn policy(mode: Mode, allow: &[&str], deny: &[&str]) -> EgressPolicy {
        let mut policy = EgressPolicy { mode, ..EgressPolicy::default() };
        policy.allow = allow.iter().map(|text| Rule::allow(text, RuleSource::Flag).expect(text)).collect();
        policy.deny = deny.iter().map(|text| Rule::deny(text, RuleSource::Program).expect(text)).collect();
        policy
    }

    fn host(text: &str) -> HostName {
        text.parse().expect(text)
    }

    #[test]
    fn a_port_is_open_as_the_rules_say() {
        let strict = |allow: &[&str], deny: &[&str]| policy(Mode::Strict, allow, deny);
        let open = |deny: &[&str]| policy(Mode::Open, &["=x.com:443"], deny);
        for (policy, name, port, expected) in [
            (policy(Mode::None, &["x.com"], &[]), "x.com", 443, Err(Reason::EgressOff)),
            (strict(&[], &[]), "x.com", 443, Err(Reason::NameNotAllowed)),
            (strict(&["x.com"], &[]), "a.x.com", 443, Ok("tls")),
            (strict(&["x.com"], &[]), "x.com", 80, Ok("http")),
            (strict(&["x.com"], &[]), "x.com", 22, Err(Reason::PortNotAllowed)),
            (strict(&["x.com"], &[]), "evilx.com", 443, Err(Reason::NameNotAllowed)),
            (strict(&["=x.com"], &[]), "a.x.com", 443, Err(Reason::NameNotAllowed)),
            (strict(&["x.com:7/tls", "a.x.com:7/ssh"], &[]), "a.x.com", 7, Ok("tls, ssh")),
            (strict(&["x.com"], &["a.x.com"]), "a.x.com", 443, Err(Reason::NameDenied)),
            (strict(&["a.x.com"], &["x.com"]), "a.x.com", 443, Err(Reason::NameDenied)),
            (strict(&["x.com"], &["a.x.com"]), "x.com", 443, Ok("tls")),
            (strict(&["x.com"], &["com"]), "x.com", 443, Err(Reason::NameDenied)),
            (strict(&[], &["x.com"]), "x.com", 443, Err(Reason::NameDenied)),
            (strict(&["x.com"], &["x.com:80"]), "x.com", 80, Err(Reason::NameDenied)),
            (strict(&["x.com"], &["x.com:80"]), "x.com", 443, Ok("tls")),
            (strict(&["x.com:443", "x.com:443/ssh"], &["x.com/ssh"]), "x.com", 443, Ok("tls")),
            (strict(&["x.com:22/tcp"], &["x.com/ssh"]), "x.com", 22, Err(Reason::NameDenied)),
            (open(&[]), "anything.example", 9, Ok("tls, http, ssh, postgres, tcp")),
            (open(&[]), "x.com", 0, Err(Reason::PortNotAllowed)),
            (open(&["x.com/ssh"]), "x.com", 22, Ok("tls, http, postgres")),
            (open(&["x.com"]), "x.com", 443, Err(Reason::NameDenied)),
        ] {
            let judged = opening(&policy, &host(name), port).map(|allowed| allowed.protocols().to_string());
            assert_eq!(judged, expected.map(str::to_string), "{name}:{port} under {policy:?}");
        }
    }

    #[test]
    fn a_name_is_known_if_any_port_is_open() {
        for (allow, deny, name, expected) in [
            (&["x.com"][..], &[][..], "a.x.com", Ok("`x.com` (--allow)")),
            (&["x.com:7-9/tls"], &["x.com:7", "x.com:9"], "x.com", Ok("`x.com:7-9/tls` (--allow)")),
            (&["x.com:7-9/tls"], &["x.com:7-8", "x.com:9"], "x.com", Err(Reason::NameDenied)),
            (&["x.com:7-9/tls"], &["x.com:7/ssh"], "x.com", Ok("`x.com:7-9/tls` (--allow)")),
            (&["x.com:1-65535/tcp"], &["x.com:2-65535"], "x.com", Ok("`x.com:1-65535/tcp` (--allow)")),
            (&["x.com:1-65535/tcp"], &["x.com:1-65534"], "x.com", Ok("`x.com:1-65535/tcp` (--allow)")),
            (&["x.com"], &["x.com"], "x.com", Err(Reason::NameDenied)),
            (&[], &["x.com"], "x.com", Err(Reason::NameDenied)),
            (&[], &["x.com:25"], "x.com", Err(Reason::NameNotAllowed)),
            (&["x.com"], &[], "y.com", Err(Reason::NameNotAllowed)),
        ] {
            let judged =
                super::name(&policy(Mode::Strict, allow, deny), &host(name)).map(|label| label.to_string());
            assert_eq!(judged, expected.map(str::to_string), "{name} allow {allow:?} deny {deny:?}");
        }
    }

    #[test]
    fn a_connection_goes_on_where_nothing_is_taken_from_it() {
        let strict = |allow: &[&str], deny: &[&str]| policy(Mode::Strict, allow, deny);
        let limited = |texts: &[&str]| {
            let filter = RequestFilter { methods: vec!["GET".parse().expect("a method")], paths: Vec::new() };
            let mut policy = strict(&[], &[]);
            policy.allow = texts
                .iter()
                .map(|text| Rule::allow(text, RuleSource::Flag).expect(text).requests(filter.clone()))
                .collect();
            policy
        };
        let with = |mut policy: EgressPolicy, text: &str| {
            policy.allow.push(Rule::allow(text, RuleSource::Flag).expect(text));
            policy
        };
        for (before, after, expected) in [
            (strict(&["x.com"], &[]), strict(&["x.com", "y.com"], &[]), true),
            (strict(&["x.com"], &[]), strict(&["=x.com:443"], &[]), true),
            (strict(&["x.com"], &[]), strict(&["y.com"], &[]), false),
            (strict(&["x.com"], &[]), strict(&["x.com"], &["x.com"]), false),
            (strict(&["x.com"], &[]), strict(&["x.com"], &["x.com:80"]), true),
            (strict(&["x.com"], &[]), strict(&["x.com"], &["x.com/ssh"]), true),
            (strict(&["x.com:443/tcp"], &[]), strict(&["x.com:443/tcp"], &["x.com/ssh"]), false),
            (policy(Mode::Open, &[], &[]), strict(&["x.com"], &[]), false),
            (strict(&["x.com"], &[]), policy(Mode::Open, &[], &[]), true),
            (limited(&["x.com"]), limited(&["x.com"]), true),
            (limited(&["x.com"]), with(limited(&["x.com"]), "x.com"), true),
            (with(limited(&["x.com"]), "x.com"), limited(&["x.com"]), false),
            (
                EgressPolicy { inspect: true, ..with(limited(&["x.com"]), "x.com") },
                EgressPolicy { inspect: true, ..limited(&["x.com"]) },
                false,
            ),
            (strict(&["x.com"], &[]), EgressPolicy { inspect: true, ..strict(&["x.com"], &[]) }, false),
        ] {
            assert_eq!(keeps(&before, &after, &host("x.com"), 443), expected, "{before:?} {after:?}");
        }
    }

    #[test]
    fn the_rule_that_is_recorded_is_the_one_that_lets_it_through() {
        let policy = policy(Mode::Open, &["x.com:443/tls", "x.com:443/ssh"], &[]);
        let allowed = opening(&policy, &host("x.com"), 443).expect("allowed");
        let rule = |protocol| allowed.rule(protocol).map(RuleLabel::to_string);
        assert_eq!(rule(Protocol::Tls).as_deref(), Some("`x.com:443/tls` (--allow)"));
        assert_eq!(rule(Protocol::Ssh).as_deref(), Some("`x.com:443/ssh` (--allow)"));
        assert_eq!(rule(Protocol::Tcp).as_deref(), Some("open mode"));
    }
}
