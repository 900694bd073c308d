//! What a policy says of a name, and by which rule: for people who wonder. Asks `decide` as a connection would, and of the address
//! that would be dialled first whose it is. What else may happen on the way (a server that is not there, a limit, a name that leads
//! elsewhere a moment later) cannot be known before.

use belljar_gateway::decide::{addresses, opening};
use belljar_gateway::dns::is_localhost;
use belljar_gateway::judge_first;
use belljar_spec::egress::{
    EgressPolicy, HostName, Mode, PortRange, Protocol, ProtocolSet, Reason, Refusal, RequestFilter, Rule,
    RuleLabel,
};
use std::collections::BTreeSet;
use std::net::IpAddr;

/// How a name becomes addresses. Passed in, since asking takes time and tells a resolver what is asked.
pub type Resolve<'a> = &'a dyn Fn(&HostName) -> Result<Vec<IpAddr>, String>;

/// What a policy says of a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Explanation {
    pub name: HostName,
    /// The port that was asked about; none means all.
    pub port: Option<u16>,
    pub outcome: Outcome,
    /// The rules about requests, where TLS or HTTP is looked into: one of them has to allow each. None where the gateway does not look.
    pub requests: Vec<(RuleLabel, RequestFilter)>,
    /// Where the name leads; asked only if a rule allows it.
    pub addresses: Addresses,
}

/// Whether it may be reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// It may: at least one.
    Allowed(Vec<Grant>),
    /// It may not, and the rule that says so, if it is one.
    Refused { refusal: Refusal, by: Option<RuleLabel> },
}

/// What a rule lets through.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    pub ports: PortRange,
    pub protocols: ProtocolSet,
    pub rule: RuleLabel,
}

/// Where a name leads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Addresses {
    /// The resolver was not asked.
    NotResolved,
    /// There is none, and why.
    Failed(String),
    /// To these.
    Found(Vec<IpAddr>),
}

/// What a policy says of a name, at one port or at all.
pub fn explain(
    policy: &EgressPolicy,
    name: &HostName,
    port: Option<u16>,
    resolve: Option<Resolve<'_>>,
) -> Explanation {
    let mut explanation = Explanation {
        name: name.clone(),
        port,
        outcome: by_rules(policy, name, port),
        requests: Vec::new(),
        addresses: Addresses::NotResolved,
    };
    let Outcome::Allowed(grants) = &explanation.outcome else { return explanation };
    explanation.requests = requests(policy, name, grants);
    let first = grants.first().map(|grant| (grant.ports.first(), grant.protocols.iter().next()));
    let (Some(resolve), Some((at, Some(protocol)))) = (resolve, first) else { return explanation };
    let found = match resolve(name) {
        Ok(found) => found,
        Err(why) => {
            explanation.addresses = Addresses::Failed(why);
            return explanation;
        }
    };
    let judged = opening(policy, name, at)
        .map_err(|reason| Refusal::new(name, port, reason))
        .and_then(|allowed| addresses(policy, allowed, protocol, &found))
        .and_then(|permit| judge_first(policy, &permit));
    if let Err(refusal) = judged {
        explanation.outcome = Outcome::Refused { refusal, by: None };
    }
    explanation.addresses = Addresses::Found(found);
    explanation
}

/// Every address of a name, as a connection by this policy would find it now.
pub async fn resolve(policy: &EgressPolicy, name: &HostName) -> Result<Vec<IpAddr>, String> {
    belljar_gateway::resolve(policy, name).await
}

fn by_rules(policy: &EgressPolicy, name: &HostName, port: Option<u16>) -> Outcome {
    let grants = match port {
        Some(port) => PortRange::only(port).map_or_else(|_| Vec::new(), |ports| grants(policy, name, ports)),
        None => everywhere(policy, name),
    };
    let refused = |reason: Reason, why: &str| Outcome::Refused {
        refusal: Refusal::new(name, port, reason).detail(why),
        by: None,
    };
    if is_localhost(name) {
        return refused(Reason::PrivateAddress, "inside, this is the sandbox itself");
    }
    if !grants.is_empty() {
        return Outcome::Allowed(grants);
    }
    if port == Some(PortRange::DNS) && opening(policy, name, PortRange::DNS).is_ok() {
        return refused(Reason::PortNotAllowed, "every connection to port 53 is a question for names");
    }
    let reason = match port {
        Some(port) => opening(policy, name, port).err(),
        None => belljar_gateway::decide::name(policy, name).err(),
    };
    let reason = reason.unwrap_or(Reason::NameNotAllowed);
    let by = match reason {
        // Of several, the one that forbids most.
        Reason::NameDenied => {
            policy.deny.iter().filter(|rule| rule.matches(name, port)).max_by_key(|rule| ports(rule))
        }
        _ => None,
    };
    Outcome::Refused { refusal: Refusal::new(name, port, reason), by: by.map(|rule| rule.label.clone()) }
}

/// What is asked about each request, at the ports of some grants.
fn requests(policy: &EgressPolicy, name: &HostName, grants: &[Grant]) -> Vec<(RuleLabel, RequestFilter)> {
    let mut found: Vec<(RuleLabel, RequestFilter)> = Vec::new();
    for port in grants.iter().map(|grant| grant.ports.first()) {
        let opened = opening(policy, name, port).ok();
        let looked = opened.as_ref().is_some_and(|allowed| {
            [Protocol::Tls, Protocol::Http].into_iter().any(|protocol| allowed.is_inspected(protocol))
        });
        let reads_tls =
            policy.inspect && opened.is_some_and(|allowed| allowed.protocols().contains(Protocol::Tls));
        for rule in policy.allow.iter().filter(|rule| rule.matches(name, Some(port))) {
            let granted = rule.protocols_at(port);
            let is_read = reads_tls && (granted.contains(Protocol::Tls) || granted.contains(Protocol::Tcp));
            let filter = if looked || is_read { rule.requests.clone() } else { None };
            if let Some(filter) = filter.or(is_read.then_some(RequestFilter::ANY))
                && !found.iter().any(|(label, _)| *label == rule.label)
            {
                found.push((rule.label.clone(), filter));
            }
        }
    }
    for grant in grants.iter().filter(|grant| policy.inspect && grant.protocols.contains(Protocol::Tls)) {
        // What the mode allows has no rule.
        if !found.iter().any(|(label, _)| *label == grant.rule) {
            found.push((grant.rule.clone(), RequestFilter::ANY));
        }
    }
    found
}

fn ports(rule: &Rule) -> usize {
    rule.openings.iter().map(|opening| usize::from(opening.ports.last() - opening.ports.first()) + 1).sum()
}

/// At every port. What is granted changes only where a range of some rule begins or ends.
fn everywhere(policy: &EgressPolicy, name: &HostName) -> Vec<Grant> {
    let rules = policy.allow.iter().chain(&policy.deny).filter(|rule| rule.host.matches(name));
    let mut edges: BTreeSet<u16> = rules
        .flat_map(|rule| &rule.openings)
        .flat_map(|opening| [Some(opening.ports.first()), opening.ports.last().checked_add(1)])
        .flatten()
        .collect();
    if policy.mode == Mode::Open {
        edges.insert(PortRange::ALL.first());
    }
    edges.extend([PortRange::DNS, PortRange::DNS + 1]);
    let edges: Vec<u16> = edges.into_iter().collect();
    let mut all: Vec<Grant> = Vec::new();
    for (index, first) in edges.iter().enumerate() {
        let last = edges.get(index + 1).map_or(u16::MAX, |next| next - 1);
        let Ok(ports) = PortRange::new(*first, last) else { continue };
        for grant in grants(policy, name, ports) {
            let goes_on = |before: &&mut Grant| {
                before.ports.last().checked_add(1) == Some(grant.ports.first())
                    && (before.protocols, &before.rule) == (grant.protocols, &grant.rule)
            };
            match all.iter_mut().rev().find(goes_on) {
                Some(before) => {
                    before.ports =
                        PortRange::new(before.ports.first(), grant.ports.last()).unwrap_or(before.ports);
                }
                None => all.push(grant),
            }
        }
    }
    all
}

/// What is granted at ports that no rule tells apart, by the rules that are recorded for it.
fn grants(policy: &EgressPolicy, name: &HostName, ports: PortRange) -> Vec<Grant> {
    if ports.first() == PortRange::DNS {
        return Vec::new();
    }
    let Ok(allowed) = opening(policy, name, ports.first()) else { return Vec::new() };
    let mut grants: Vec<Grant> = Vec::new();
    for protocol in allowed.protocols().iter() {
        let Some(rule) = allowed.rule(protocol) else { continue };
        match grants.iter_mut().find(|grant| grant.rule == *rule) {
            Some(grant) => grant.protocols = grant.protocols.union(protocol.into()),
            None => grants.push(Grant { ports, protocols: protocol.into(), rule: rule.clone() }),
        }
    }
    grants
}

#[cfg(test)]
mod tests {
    use super::*;
    use belljar_spec::egress::{RuleSource, group};

    fn policy(allow: &[&str], deny: &[&str]) -> EgressPolicy {
        let mut policy = EgressPolicy::strict();
        policy.allow = allow.iter().map(|text| Rule::allow(text, RuleSource::Flag).expect(text)).collect();
        policy.deny = deny.iter().map(|text| Rule::deny(text, RuleSource::Flag).expect(text)).collect();
        policy
    }

    fn shown(policy: &EgressPolicy, name: &str, port: Option<u16>) -> String {
        let name = name.parse().expect("a name");
        match explain(policy, &name, port, None).outcome {
            Outcome::Allowed(grants) => {
                let shown = |grant: &Grant| format!("{} {} by {}", grant.ports, grant.protocols, grant.rule);
                grants.iter().map(shown).collect::<Vec<_>>().join("; ")
            }
            Outcome::Refused { refusal, by } => {
                format!("{} {:?}", refusal.reason.code(), by.map(|by| by.text().to_string()))
            }
        }
    }

    #[test]
    fn an_explanation_names_ports_protocols_and_rules() {
        let some = policy(&["x.com", "x.com:8000-8100/tcp", "a.x.com:443/ssh"], &["x.com:8050", "b.x.com"]);
        for (name, port, expected) in [
            ("x.com", Some(443), "443 tls by `x.com` (--allow)"),
            ("a.x.com", Some(443), "443 tls by `x.com` (--allow); 443 ssh by `a.x.com:443/ssh` (--allow)"),
            (
                "x.com",
                None,
                "80 http by `x.com` (--allow); 443 tls by `x.com` (--allow); \
                 8000-8049 tcp by `x.com:8000-8100/tcp` (--allow); 8051-8100 tcp by `x.com:8000-8100/tcp` (--allow)",
            ),
            ("x.com", Some(25), "port_not_allowed None"),
            ("x.com", Some(8050), "name_denied Some(\"x.com:8050\")"),
            ("b.x.com", None, "name_denied Some(\"b.x.com\")"),
            ("y.com", None, "name_not_allowed None"),
        ] {
            assert_eq!(shown(&some, name, port), expected, "{name} {port:?}");
        }
        assert_eq!(shown(&EgressPolicy::none(), "x.com", None), "egress_off None");
        let open = EgressPolicy { mode: Mode::Open, ..policy(&[], &["x.com:25"]) };
        assert_eq!(
            shown(&open, "x.com", None),
            "1-24 tls, http, ssh, postgres, tcp by open mode; 26-52 tls, http, ssh, postgres, tcp by open mode; \
             54-65535 tls, http, ssh, postgres, tcp by open mode"
        );
        assert_eq!(shown(&open, "x.com", Some(53)), "port_not_allowed None", "it is asked for names");
        assert_eq!(shown(&open, "localhost", Some(443)), "private_address None", "it is the sandbox itself");
        assert_eq!(shown(&open, "a.localhost", None), "private_address None");
        // No rule opens it, so none is proposed.
        let localhost = "localhost".parse().unwrap();
        let Outcome::Refused { refusal, .. } = explain(&some, &localhost, Some(5432), None).outcome else {
            panic!("localhost is never reached by a rule");
        };
        assert_eq!((refusal.reason, refusal.remedy()), (Reason::PrivateAddress, None));
    }

    #[test]
    fn an_explanation_says_what_is_looked_into() {
        let filter = RequestFilter {
            methods: vec!["GET".parse().expect("a method")],
            paths: vec!["/repos/**".parse().expect("a path")],
        };
        let mut some = policy(&["y.com"], &[]);
        some.allow.push(Rule::allow("x.com", RuleSource::Flag).expect("a rule").requests(filter));
        let shown = |policy: &EgressPolicy, name: &str| {
            let explanation = explain(policy, &name.parse().expect("a name"), None, None);
            let shown = explanation.requests.iter().map(|(rule, filter)| format!("{filter} by {rule}"));
            shown.collect::<Vec<_>>().join("; ")
        };
        assert_eq!(shown(&some, "x.com"), "GET of /repos/** by `x.com` (--allow)");
        assert_eq!(shown(&some, "y.com"), "");
        // The gateway does not look where another rule lets everything through.
        some.allow.push(Rule::allow("x.com:443", RuleSource::Flag).expect("a rule"));
        some.allow.push(Rule::allow("x.com:80", RuleSource::Flag).expect("a rule"));
        assert_eq!(shown(&some, "x.com"), "");
        // Unless everything is.
        some.inspect = true;
        assert_eq!(shown(&some, "y.com"), "any request by `y.com` (--allow)");
        assert_eq!(
            shown(&some, "x.com"),
            "GET of /repos/** by `x.com` (--allow); any request by `x.com:443` (--allow)"
        );
    }

    #[test]
    fn what_is_allowed_is_resolved_and_judged() {
        let policy = EgressPolicy::strict().allow_group(group("github").expect("a group"));
        let name = "api.github.com".parse().expect("a name");
        let public = |_: &HostName| Ok(vec![IpAddr::from([140, 82, 112, 5])]);
        let private = |_: &HostName| Ok(vec![IpAddr::from([140, 82, 112, 5]), IpAddr::from([10, 0, 0, 5])]);
        let nowhere = |_: &HostName| Err("no such name".to_string());
        let fine = explain(&policy, &name, Some(443), Some(&public));
        assert!(matches!(fine.outcome, Outcome::Allowed(_)));
        assert!(matches!(fine.addresses, Addresses::Found(found) if found.len() == 1));
        let below = explain(&policy, &name, Some(443), Some(&private));
        assert!(
            matches!(below.outcome, Outcome::Refused { refusal, .. } if refusal.reason == Reason::PrivateAddress)
        );
        let lost = explain(&policy, &name, None, Some(&nowhere));
        assert_eq!(lost.addresses, Addresses::Failed("no such name".into()));
        // The resolver is not asked about a name that is refused anyway.
        let resolver = |_: &HostName| panic!("asked");
        let refused = explain(&policy, &"y.com".parse().expect("a name"), None, Some(&resolver));
        assert_eq!(refused.addresses, Addresses::NotResolved);
    }
}
