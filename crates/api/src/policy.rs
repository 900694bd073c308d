//! The policy of a sandbox that lives: its rules, changes of it, and questions that wait for a person.

use belljar_spec::egress::{LiveNotice, QuestionReport, RuleEffect, Verdict};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A rule for a sandbox that lives. It takes effect at once, and ends with the sandbox's processes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ChangePolicy {
    /// `allow` or `deny`. A rule that denies ends the connections that it is about.
    pub effect: RuleEffect,
    /// `example.com`, `=api.example.com:8443`.
    pub rule: String,
    /// For so many seconds. Left out: as long as the sandbox lives.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 31536000)]
    pub for_s: Option<u64>,
    /// For one connection.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub once: bool,
}

/// What became of a change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PolicyChanged {
    /// The digest of the policy that decides from now on.
    pub policy: String,
    /// How often it has changed since the start.
    pub version: u64,
    /// How many connections it ended.
    pub ended: u64,
}

/// An answer to a question of a sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AnswerQuestion {
    /// The question's `rule`, as it was shown: refused where the question of this number is another one by now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// `once`, `sandbox` or `deny`.
    pub verdict: Verdict,
}

/// A question, and the sandbox that asks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SandboxQuestion {
    pub sandbox: String,
    /// The name of its present life.
    pub sandbox_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub folder: Option<String>,
    pub question: QuestionReport,
}

/// What happened in a sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SandboxNotice {
    pub sandbox: String,
    #[serde(flatten)]
    pub notice: LiveNotice,
}
