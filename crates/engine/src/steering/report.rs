//! A policy as programs and people read it: each rule with its place, and the digest of the whole.

use belljar_gateway::{Effect, LiveRule, LiveState, PolicyDigest, Question, Until, rule_for};
use belljar_spec::egress::{EgressPolicy, Rule, RuleSource};
use serde::{Deserialize, Serialize};
use std::time::{Instant, UNIX_EPOCH};

/// The policy in force.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyReport {
    /// The digest: the same for policies that mean the same.
    pub policy: String,
    /// How often it changed since the start.
    pub version: u64,
    pub mode: String,
    pub inspect: bool,
    pub rules: Vec<RuleReport>,
    /// Reserved ranges that the operator opened.
    pub private: Vec<String>,
    /// The only names that anyone beside the operator may allow, where there are such.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub only: Option<Vec<String>>,
    pub questions: Vec<QuestionReport>,
    /// Connections that are open.
    pub connections: u64,
}

/// One rule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleReport {
    pub effect: super::RuleEffect,
    pub rule: String,
    /// Which ports, and what may be spoken there.
    pub openings: Vec<String>,
    /// Which requests, where it is about requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requests: Option<String>,
    /// Where it comes from, in words.
    pub source: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u64>,
    /// It came after the start.
    #[serde(default)]
    pub live: bool,
    /// It is for one connection.
    #[serde(default)]
    pub once: bool,
    /// It ends in so many seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ends_s: Option<u64>,
}

/// A question that waits for a person.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuestionReport {
    pub id: u64,
    pub name: String,
    pub port: u16,
    /// The rule that an answer adds.
    pub rule: String,
    pub since_ms: i64,
    /// How many connections wait.
    pub waiting: u64,
}

impl PolicyReport {
    /// Of a policy that no sandbox has yet.
    pub fn of(policy: &EgressPolicy) -> PolicyReport {
        let rules = |effect, rules: &[Rule]| -> Vec<RuleReport> {
            rules.iter().map(|rule| RuleReport::of(effect, rule)).collect()
        };
        PolicyReport {
            policy: PolicyDigest::of(policy).to_string(),
            version: 0,
            mode: policy.mode.to_string(),
            inspect: policy.inspect,
            rules: [
                rules(super::RuleEffect::Deny, &policy.deny),
                rules(super::RuleEffect::Allow, &policy.allow),
            ]
            .concat(),
            private: policy.private.iter().map(ToString::to_string).collect(),
            only: policy.only.as_ref().map(|only| only.iter().map(ToString::to_string).collect()),
            questions: Vec::new(),
            connections: 0,
        }
    }
}

impl From<&LiveState> for PolicyReport {
    fn from(state: &LiveState) -> PolicyReport {
        let mut report = PolicyReport::of(&state.version);
        // Those that came later are told with their time, and once.
        report.rules.retain(|rule| !rule.live);
        report.rules.extend(state.rules.iter().map(RuleReport::of_live));
        PolicyReport {
            policy: state.version.digest().to_string(),
            version: state.version.number(),
            questions: state.questions.iter().map(QuestionReport::from).collect(),
            connections: state.connections as u64,
            ..report
        }
    }
}

impl RuleReport {
    fn of(effect: super::RuleEffect, rule: &Rule) -> RuleReport {
        let (file, line) = match rule.label.source() {
            RuleSource::File { path, line } => (Some(path.to_string()), Some(*line as u64)),
            _ => (None, None),
        };
        RuleReport {
            effect,
            rule: rule.to_string(),
            openings: rule.openings.iter().map(ToString::to_string).collect(),
            requests: rule.requests.as_ref().map(ToString::to_string),
            source: source(rule),
            file,
            line,
            live: matches!(rule.label.source(), RuleSource::Live(_)),
            once: false,
            ends_s: None,
        }
    }

    fn of_live(live: &LiveRule) -> RuleReport {
        let effect = match live.effect {
            Effect::Allow => super::RuleEffect::Allow,
            Effect::Deny => super::RuleEffect::Deny,
        };
        let ends_s = match live.until {
            Until::Time(time) => Some(time.saturating_duration_since(Instant::now()).as_secs()),
            Until::End | Until::Used => None,
        };
        RuleReport {
            live: true,
            once: live.until == Until::Used,
            ends_s,
            ..RuleReport::of(effect, &live.rule)
        }
    }
}

fn source(rule: &Rule) -> String {
    match rule.label.source() {
        RuleSource::Flag => "--allow".into(),
        RuleSource::Group(group) => format!("group {group}"),
        RuleSource::File { path, line } => format!("{path}:{line}"),
        RuleSource::Program => "program".into(),
        RuleSource::Mode => "open mode".into(),
        RuleSource::Credential(name) => format!("credential {name}"),
        RuleSource::Live(who) => format!("live, by {who}"),
    }
}

impl From<&Question> for QuestionReport {
    fn from(question: &Question) -> QuestionReport {
        let Question { id, name, port, since, waiting } = question;
        let rule = rule_for(name, *port, Effect::Allow, &"".into());
        let since = since.duration_since(UNIX_EPOCH).unwrap_or_default();
        QuestionReport {
            id: *id,
            name: name.to_string(),
            port: *port,
            rule: rule.map_or_else(|_| format!("={name}"), |rule| rule.to_string()),
            since_ms: i64::try_from(since.as_millis()).unwrap_or(i64::MAX),
            waiting: *waiting as u64,
        }
    }
}
