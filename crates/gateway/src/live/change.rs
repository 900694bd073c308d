//! Changes of a living policy: rules that come and go. Pure: the clock is an argument.

use super::PolicyVersion;
use belljar_audit::PolicyChange;
use belljar_spec::egress::{
    EgressPolicy, Opening, PortRange, Rule, RuleEffect, RuleLasting, RuleSource, THIS_MACHINE,
};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A rule for a living sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    pub effect: RuleEffect,
    /// Its label says who wants it.
    pub rule: Rule,
    pub lasting: RuleLasting,
    /// Who wants it.
    pub by: Arc<str>,
}

/// A change that is in force.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LiveRule {
    pub effect: RuleEffect,
    pub rule: Rule,
    pub until: Until,
}

/// When a rule ends by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Until {
    End,
    Time(Instant),
    Used,
}

/// Why a policy was not changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ChangeRefused {
    /// A rule of the start forbids the name, and it wins.
    #[error("`{0}` stays out of reach: the rule {1} forbids it")]
    Denied(String, String),
    /// The operator says which names can be allowed at all.
    #[error(
        "`{0}` may not be allowed: the operator of this machine lets only certain names be (`only` under [egress])"
    )]
    NotByOperator(String),
    /// The sandbox's kernel leads only some ports to the gateway.
    #[error("the sandbox's kernel has no nf_tables: the port of `{0}` cannot be opened after the start")]
    PortNotLed(String),
    /// Reserved ranges are opened before a sandbox starts, by the person whose machine it is.
    #[error(
        "`{0}`: a port of this machine can only be opened when a sandbox starts, by the person whose machine it is"
    )]
    ThisMachine(String),
    /// The sandbox has no network that could be opened.
    #[error("this sandbox was started with egress `none`, which cannot be opened while it lives")]
    EgressOff,
    #[error("a rule that forbids cannot be for one connection")]
    DenyOnce,
    #[error("{MAX_RULES} rules were added to this sandbox already")]
    TooMany,
    /// What cannot be recorded does not happen.
    #[error("the audit log of the sandbox takes no more lines")]
    NotRecorded,
    /// No such question.
    #[error("there is no question {0}: it was answered, or its time was over")]
    NoQuestion(u64),
}

/// The rules of a start, and those that came later.
#[derive(Debug, Clone)]
pub(crate) struct Layers {
    pub(crate) base: EgressPolicy,
    pub(crate) rules: Vec<LiveRule>,
    /// The ports that the sandbox's kernel leads to the gateway; `None` means all.
    pub(crate) ports: Option<Vec<u16>>,
}

impl Layers {
    /// The policy of now. Rules for one connection are not in it: see [`Layers::once`].
    pub(crate) fn policy(&self) -> EgressPolicy {
        let mut policy = self.base.clone();
        for live in self.rules.iter().filter(|live| live.until != Until::Used) {
            match live.effect {
                RuleEffect::Allow => policy.allow.push(live.rule.clone()),
                RuleEffect::Deny => policy.deny.push(live.rule.clone()),
            }
        }
        policy
    }

    /// The policy of now as a version, with the rules for one connection beside it.
    pub(crate) fn version(&self, number: u64) -> PolicyVersion {
        let once = self.once().map(|(_, rule)| rule.clone()).collect();
        PolicyVersion::new(self.policy(), number).with_once(once)
    }

    /// The rules for one connection, and their places.
    pub(crate) fn once(&self) -> impl Iterator<Item = (usize, &Rule)> {
        let is_once = |(_, live): &(usize, &LiveRule)| live.until == Until::Used;
        self.rules.iter().enumerate().filter(is_once).map(|(at, live)| (at, &live.rule))
    }

    /// Adds a rule, and takes back its opposite: what was said last counts. Says what was taken back.
    pub(crate) fn change(&mut self, change: &Change, now: Instant) -> Result<Vec<LiveRule>, ChangeRefused> {
        let Change { effect, rule, lasting, by: _ } = change;
        match effect {
            RuleEffect::Allow => self.may_allow(rule)?,
            RuleEffect::Deny if *lasting == RuleLasting::Once => return Err(ChangeRefused::DenyOnce),
            RuleEffect::Deny => {}
        }
        // The same once more counts from now.
        let is_taken_back = |live: &LiveRule| match (live.effect == *effect, effect) {
            (true, _) => live.rule.host == rule.host && live.rule.openings == rule.openings,
            (false, RuleEffect::Allow) => takes_back(rule, &live.rule),
            (false, RuleEffect::Deny) => rule.host.covers(&live.rule.host) && covers(rule, &live.rule),
        };
        let (taken, remaining): (Vec<_>, Vec<_>) = self.rules.drain(..).partition(is_taken_back);
        self.rules = remaining;
        if self.rules.len() >= MAX_RULES {
            self.rules.extend(taken);
            return Err(ChangeRefused::TooMany);
        }
        let until = match lasting {
            RuleLasting::Life => Until::End,
            RuleLasting::Seconds(time) => Until::Time(now + Duration::from_secs(*time).min(MAX_TIME)),
            RuleLasting::Once => Until::Used,
        };
        self.rules.push(LiveRule { effect: *effect, rule: rule.clone(), until });
        let opposite = |live: &LiveRule| live.effect != *effect;
        Ok(taken.into_iter().filter(opposite).collect())
    }

    fn may_allow(&self, rule: &Rule) -> Result<(), ChangeRefused> {
        let text = || rule.to_string();
        if let Some(only) = &self.base.only
            && !only.iter().any(|host| host.covers(&rule.host))
        {
            return Err(ChangeRefused::NotByOperator(text()));
        }
        if rule.host.name().as_str() == THIS_MACHINE {
            return Err(ChangeRefused::ThisMachine(text()));
        }
        if let Some(ports) = &self.ports {
            let is_led = |range: PortRange| range.first() == range.last() && ports.contains(&range.first());
            if !rule.openings.iter().any(|opening| is_led(opening.ports)) {
                return Err(ChangeRefused::PortNotLed(text()));
            }
        }
        // One that forbids all of it; one that forbids a port or a subdomain leaves the rest.
        let forbids = |deny: &&Rule| deny.host.covers(&rule.host) && covers(deny, rule);
        // A narrow rule does not take back a wider one, whose other names and ports would be open then.
        let wider = |live: &&LiveRule| live.effect == RuleEffect::Deny && !takes_back(rule, &live.rule);
        let live = self.rules.iter().filter(wider).map(|live| &live.rule);
        match self.base.deny.iter().chain(live).find(forbids) {
            Some(deny) => Err(ChangeRefused::Denied(text(), deny.label.to_string())),
            None => Ok(()),
        }
    }

    /// Takes back what has had its time.
    pub(crate) fn expire(&mut self, now: Instant) -> Vec<LiveRule> {
        let is_over = |live: &LiveRule| matches!(live.until, Until::Time(time) if time <= now);
        let (over, remaining) = self.rules.drain(..).partition(is_over);
        self.rules = remaining;
        over
    }

    /// When the next rule has had its time.
    pub(crate) fn next_expiry(&self) -> Option<Instant> {
        let time = |live: &LiveRule| match live.until {
            Until::Time(time) => Some(time),
            Until::End | Until::Used => None,
        };
        self.rules.iter().filter_map(time).min()
    }
}

/// As the audit log says it.
pub(crate) fn recorded(effect: RuleEffect) -> PolicyChange {
    match effect {
        RuleEffect::Allow => PolicyChange::Allowed,
        RuleEffect::Deny => PolicyChange::Denied,
    }
}

/// Whether a rule that allows is the opposite of one that forbids: about all of its names, and about all of its ports, or written without
/// any, as `deny NAME` is. One that names a port leaves the others forbidden.
fn takes_back(allow: &Rule, deny: &Rule) -> bool {
    let plain = Rule::allow(&allow.host.to_string(), RuleSource::Flag);
    let names_no_port = plain.is_ok_and(|plain| plain.openings == allow.openings);
    let within = |narrow: &Opening, wide: &Opening| {
        wide.ports.first() <= narrow.ports.first() && narrow.ports.last() <= wide.ports.last()
    };
    let all_ports = deny.openings.iter().all(|narrow| allow.openings.iter().any(|wide| within(narrow, wide)));
    allow.host.covers(&deny.host) && ports_meet(deny, allow) && (names_no_port || all_ports)
}

/// Whether there is a port that both rules are about.
fn ports_meet(one: &Rule, other: &Rule) -> bool {
    one.openings.iter().any(|one| {
        let touches =
            |other: PortRange| one.ports.first() <= other.last() && other.first() <= one.ports.last();
        other.openings.iter().any(|other| touches(other.ports))
    })
}

/// Whether the openings of the first rule have all that the second one's have.
fn covers(wide: &Rule, narrow: &Rule) -> bool {
    narrow.openings.iter().all(|narrow| {
        wide.openings.iter().any(|wide| {
            wide.ports.first() <= narrow.ports.first()
                && narrow.ports.last() <= wide.ports.last()
                && narrow.protocols.without(wide.protocols).is_empty()
        })
    })
}

/// More than a person adds; few enough for each connection to be judged by all of them.
const MAX_RULES: usize = 256;
/// A year; more is no time that can be added to a clock.
const MAX_TIME: Duration = Duration::from_secs(365 * 24 * 3600);

#[cfg(test)]
mod tests {
    use super::*;

    fn layers(allow: &[&str], deny: &[&str]) -> Layers {
        let mut base = EgressPolicy::strict();
        base.allow = allow.iter().map(|text| Rule::allow(text, RuleSource::Flag).unwrap()).collect();
        base.deny = deny.iter().map(|text| Rule::deny(text, RuleSource::Flag).unwrap()).collect();
        Layers { base, rules: Vec::new(), ports: None }
    }

    fn change(effect: RuleEffect, text: &str, lasting: RuleLasting) -> Change {
        let by: Arc<str> = "alice".into();
        let source = RuleSource::Live(Arc::clone(&by));
        let rule = match effect {
            RuleEffect::Allow => Rule::allow(text, source),
            RuleEffect::Deny => Rule::deny(text, source),
        };
        Change { effect, rule: rule.unwrap(), lasting, by }
    }

    fn texts(layers: &Layers) -> Vec<String> {
        let text = |live: &LiveRule| match live.effect {
            RuleEffect::Allow => format!("+{}", live.rule),
            RuleEffect::Deny => format!("-{}", live.rule),
        };
        layers.rules.iter().map(text).collect()
    }

    #[test]
    fn what_was_said_last_counts() {
        use RuleEffect::{Allow, Deny};
        for (changes, expected) in [
            (&[(Allow, "a.test"), (Deny, "a.test")][..], &["-a.test"][..]),
            (&[(Deny, "a.test"), (Allow, "a.test")], &["+a.test"]),
            (&[(Allow, "b.a.test"), (Deny, "a.test")], &["-a.test"]),
            (&[(Deny, "b.a.test"), (Allow, "a.test")], &["+a.test"]),
            (&[(Allow, "a.test"), (Deny, "b.a.test")], &["+a.test", "-b.a.test"]),
            (&[(Allow, "a.test"), (Deny, "a.test:80")], &["+a.test", "-a.test:80"]),
            (&[(Allow, "a.test"), (Allow, "a.test")], &["+a.test"]),
            (&[(Deny, "a.test"), (Allow, "c.test")], &["-a.test", "+c.test"]),
            (&[(Deny, "a.test:8443"), (Allow, "a.test:8443")], &["+a.test:8443"]),
            (&[(Deny, "a.test:8443"), (Allow, "a.test")], &["-a.test:8443", "+a.test"]),
        ] {
            let mut layers = layers(&[], &[]);
            for (effect, text) in changes {
                layers.change(&change(*effect, text, RuleLasting::Life), Instant::now()).unwrap();
            }
            assert_eq!(texts(&layers), expected, "{changes:?}");
        }
    }

    #[test]
    fn what_the_start_forbids_stays_forbidden() {
        let mut forbidden = layers(&[], &["a.test", "c.test:80"]);
        let allow = |layers: &mut Layers, text: &str| {
            layers.change(&change(RuleEffect::Allow, text, RuleLasting::Life), Instant::now()).map(drop)
        };
        for text in ["a.test", "b.a.test", "=a.test:443"] {
            assert!(matches!(allow(&mut forbidden, text), Err(ChangeRefused::Denied(..))), "{text}");
        }
        assert_eq!(allow(&mut forbidden, "c.test"), Ok(()));
        let mut operators = layers(&[], &[]);
        operators.base.only = Some(vec!["a.test".parse().unwrap()]);
        assert_eq!(allow(&mut operators, "b.a.test"), Ok(()));
        assert!(matches!(allow(&mut operators, "b.test"), Err(ChangeRefused::NotByOperator(_))));
        let mut some_ports = layers(&[], &[]);
        some_ports.ports = Some(vec![443]);
        assert_eq!(allow(&mut some_ports, "a.test"), Ok(()));
        assert!(matches!(allow(&mut some_ports, "a.test:8443"), Err(ChangeRefused::PortNotLed(_))));
        let once = change(RuleEffect::Deny, "a.test", RuleLasting::Once);
        let mut living = layers(&["a.test"], &[]);
        living.change(&change(RuleEffect::Deny, "a.test", RuleLasting::Life), Instant::now()).unwrap();
        assert!(
            matches!(allow(&mut living, "b.a.test"), Err(ChangeRefused::Denied(..))),
            "a.test stays denied"
        );
        assert!(
            matches!(allow(&mut living, "a.test:443"), Err(ChangeRefused::Denied(..))),
            "its other ports stay denied"
        );
        assert_eq!(allow(&mut living, "a.test"), Ok(()));
        assert_eq!(operators.change(&once, Instant::now()), Err(ChangeRefused::DenyOnce));
        for number in 0..MAX_RULES {
            allow(&mut some_ports, &format!("n{number}.test")).unwrap_or_else(|error| {
                assert_eq!((error, number), (ChangeRefused::TooMany, MAX_RULES - 1));
            });
        }
    }

    #[test]
    fn a_rule_has_its_time() {
        let (mut layers, now) = (layers(&[], &[]), Instant::now());
        let minute = Duration::from_secs(60);
        layers.change(&change(RuleEffect::Allow, "a.test", RuleLasting::Seconds(60)), now).unwrap();
        layers.change(&change(RuleEffect::Allow, "b.test", RuleLasting::Life), now).unwrap();
        assert_eq!(layers.next_expiry(), Some(now + minute));
        assert!(layers.expire(now + minute / 2).is_empty());
        assert_eq!(layers.expire(now + minute).len(), 1);
        assert_eq!((texts(&layers), layers.next_expiry()), (vec!["+b.test".to_string()], None));
    }
}
