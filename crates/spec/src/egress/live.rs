//! A policy that changes while its sandbox lives, as it is told to those outside: rules that come, questions that wait for a person, and
//! what becomes of both.

use super::{EgressPolicy, Rule, RuleSource};
use serde::{Deserialize, Serialize};

/// What a rule does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum RuleEffect {
    Allow,
    Deny,
}

/// How long a rule counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RuleLasting {
    /// As long as the sandbox lives.
    Life,
    /// Until one connection was allowed by it.
    Once,
    Seconds(u64),
}

/// The answer to a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The connections that wait may be made.
    Once,
    /// The name may be reached as long as the sandbox lives.
    Sandbox,
    /// It may not.
    Deny,
}

/// The policy in force, each rule with its place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct PolicyReport {
    /// The digest: the same for policies that mean the same.
    pub policy: String,
    /// How often it changed since the start.
    pub version: u64,
    /// none, strict, ask or open.
    pub mode: String,
    /// TLS to every name is intercepted.
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
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct RuleReport {
    pub effect: RuleEffect,
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
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct QuestionReport {
    /// Its number in the sandbox.
    pub id: u64,
    pub name: String,
    pub port: u16,
    /// The rule that an answer adds.
    pub rule: String,
    pub since_ms: i64,
    /// How many connections wait.
    pub waiting: u64,
    /// What a program inside says that it is for; not to be believed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// What is told to those who watch a sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(tag = "notice", rename_all = "snake_case")]
pub enum LiveNotice {
    /// A person is asked.
    #[serde(rename = "asked")]
    Opened { question: QuestionReport },
    /// The question is over; without a verdict nobody answered in time.
    Answered { question: QuestionReport, verdict: Option<Verdict> },
    /// The policy has this digest now.
    Changed { policy: String, version: u64 },
    /// So many notices were missed.
    Missed { count: u64 },
}

impl RuleLasting {
    /// For the audit log and for people.
    pub fn words(self) -> String {
        match self {
            RuleLasting::Life => "while the sandbox lives".into(),
            RuleLasting::Once => "for one connection".into(),
            RuleLasting::Seconds(seconds) => format!("for {seconds} s"),
        }
    }
}

impl PolicyReport {
    /// Of a policy with this digest, which no sandbox has yet.
    pub fn of(policy: &EgressPolicy, digest: &str) -> PolicyReport {
        let rules = |effect, rules: &[Rule]| -> Vec<RuleReport> {
            rules.iter().map(|rule| RuleReport::of(effect, rule)).collect()
        };
        let (deny, allow) = (rules(RuleEffect::Deny, &policy.deny), rules(RuleEffect::Allow, &policy.allow));
        PolicyReport {
            policy: digest.into(),
            version: 0,
            mode: policy.mode.to_string(),
            inspect: policy.inspect,
            rules: [deny, allow].concat(),
            private: policy.private.iter().map(ToString::to_string).collect(),
            only: policy.only.as_ref().map(|only| only.iter().map(ToString::to_string).collect()),
            questions: Vec::new(),
            connections: 0,
        }
    }
}

impl RuleReport {
    /// Of a rule, with its place.
    pub fn of(effect: RuleEffect, rule: &Rule) -> RuleReport {
        let (file, line) = match rule.label.source() {
            RuleSource::File { path, line } => (Some(path.to_string()), Some(*line as u64)),
            RuleSource::Flag
            | RuleSource::Group(_)
            | RuleSource::Program
            | RuleSource::Mode
            | RuleSource::Credential(_)
            | RuleSource::Live(_) => (None, None),
        };
        RuleReport {
            effect,
            rule: rule.to_string(),
            openings: rule.openings.iter().map(ToString::to_string).collect(),
            requests: rule.requests.as_ref().map(ToString::to_string),
            source: rule.label.source().to_string(),
            file,
            line,
            live: matches!(rule.label.source(), RuleSource::Live(_)),
            once: false,
            ends_s: None,
        }
    }
}
