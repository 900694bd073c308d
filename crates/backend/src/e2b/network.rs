//! An egress policy as rules of a service. It knows names, and TLS and HTTP at their usual ports; a policy that says more is refused.

use belljar_e2b_client::{Network, NetworkRules};
use belljar_spec::egress::{EgressLimits, EgressPolicy, HostPattern, Mode, Rule};
use belljar_spec::{ErrorCode, SandboxError, Term, hint};

/// What the service is told.
pub(super) fn rules(policy: &EgressPolicy) -> Result<Network, SandboxError> {
    // Taken apart, so that a new part of a policy is not let through unseen. What is private to this machine (its reserved ranges, its
    // resolvers, its authorities, the proxy that it dials through) is out of reach there.
    let EgressPolicy {
        mode,
        allow,
        deny,
        only,
        private: _,
        host_ports,
        proxy: _,
        resolvers: _,
        authorities: _,
        inspect,
        limits,
    } = policy;
    if let Some(port) = host_ports.first() {
        return Err(refused(&format!("it does not reach port {port} of this machine")));
    }
    if *inspect {
        return Err(refused("it cannot look into TLS (`inspect`)"));
    }
    if *limits != EgressLimits::default() {
        return Err(refused("it counts neither connections nor bytes"));
    }
    match mode {
        Mode::None => Ok(Network::nothing()),
        Mode::Ask => Err(refused("it asks no person (`ask`)")),
        Mode::Open => match (deny.first(), only) {
            (Some(rule), _) => Err(refused(&format!("it denies no names (`{}`)", rule.label.text()))),
            (None, Some(_)) => Err(refused("the operator allows some names only")),
            (None, None) => {
                Ok(Network { allow_internet_access: true, network: Some(NetworkRules::default()) })
            }
        },
        Mode::Strict => {
            if let Some(rule) = deny.first() {
                return Err(refused(&format!("it denies no names (`{}`)", rule.label.text())));
            }
            let mut names = Vec::new();
            for rule in allow {
                let permitted =
                    only.as_ref().is_none_or(|only| only.iter().any(|one| one.covers(&rule.host)));
                if !permitted {
                    return Err(refused(&format!(
                        "the operator does not allow all of `{}`",
                        rule.label.text()
                    )));
                }
                names.extend(named(rule)?);
            }
            names.sort_unstable();
            names.dedup();
            if names.is_empty() {
                return Ok(Network::nothing());
            }
            let rules = NetworkRules {
                allow_out: names,
                deny_out: vec![EVERY_ADDRESS.into()],
                ..NetworkRules::default()
            };
            Ok(Network { allow_internet_access: true, network: Some(rules) })
        }
    }
}

/// The names of a rule, as the service writes them: one alone, or all below it.
fn named(rule: &Rule) -> Result<Vec<String>, SandboxError> {
    let text = rule.label.text();
    if rule.requests.is_some() {
        return Err(refused(&format!("it does not look into requests (`{text}`)")));
    }
    let usual = Rule::allow(&rule.host.to_string(), rule.label.source().clone())
        .map_err(|error| refused(&format!("`{text}`: {error}")))?;
    if rule.openings != usual.openings {
        let why = format!(
            "its rules have no ports: `{text}` would open TLS at 443 and HTTP at 80, and says something else"
        );
        return Err(refused(&why));
    }
    Ok(match &rule.host {
        HostPattern::Exact(name) => vec![name.to_string()],
        HostPattern::Subtree(name) => vec![name.to_string(), format!("*.{name}")],
    })
}

fn refused(why: &str) -> SandboxError {
    ErrorCode::NotSupported
        .error(format!("an E2B-compatible service cannot hold this egress policy: {why}"))
        .hint(hint!(
            "allow names alone, omit the rule (groups have rules too), use {}, or use {}",
            Term::Egress.to("none"),
            Term::Backend.to("native")
        ))
}

const EVERY_ADDRESS: &str = "0.0.0.0/0";

#[cfg(test)]
mod tests {
    use super::*;
    use belljar_spec::egress::RuleSource;

    fn allow(texts: &[&str]) -> EgressPolicy {
        let rule = |text: &&str| Rule::allow(text, RuleSource::Flag).expect("a rule");
        EgressPolicy { allow: texts.iter().map(rule).collect(), ..EgressPolicy::default() }
    }

    #[test]
    fn a_policy_of_names_is_told_to_the_service() {
        assert_eq!(rules(&EgressPolicy::none()), Ok(Network::nothing()));
        assert_eq!(rules(&EgressPolicy::default()), Ok(Network::nothing()), "strict, and no rule");
        let open = rules(&EgressPolicy::open()).expect("it can be");
        assert!(open.allow_internet_access);
        let strict = rules(&allow(&["example.com", "=one.test", "example.com"])).expect("it can be");
        let sent = strict.network.expect("rules");
        assert_eq!(sent.allow_out, ["*.example.com", "example.com", "one.test"]);
        assert_eq!((sent.deny_out, sent.allow_public_traffic), (vec!["0.0.0.0/0".to_string()], false));
    }

    #[test]
    fn what_the_service_cannot_hold_is_refused() {
        let deny = || Rule::deny("bad.test", RuleSource::Flag).expect("a rule");
        let limited = EgressLimits { connections: 1, ..EgressLimits::default() };
        for (policy, why) in [
            (allow(&["example.com:22/tcp"]), "no ports"),
            (allow(&["example.com:443"]), "no ports"),
            (EgressPolicy { mode: Mode::Ask, ..EgressPolicy::default() }, "asks no person"),
            (allow(&["example.com"]).deny(deny()), "denies no names"),
            (EgressPolicy::open().deny(deny()), "denies no names"),
            (EgressPolicy { inspect: true, ..EgressPolicy::default() }, "look into TLS"),
            (EgressPolicy { limits: limited, ..EgressPolicy::default() }, "counts neither"),
            (EgressPolicy { only: Some(Vec::new()), ..EgressPolicy::open() }, "operator"),
            (EgressPolicy { only: Some(Vec::new()), ..allow(&["a.test"]) }, "operator"),
        ] {
            let error = rules(&policy).expect_err(why);
            assert!(error.code == ErrorCode::NotSupported && error.message.contains(why), "{error}");
            assert!(error.hint.is_some());
        }
    }
}
