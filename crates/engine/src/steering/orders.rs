//! Orders and replies: one JSON object in a line each. Both sides may be of different versions of belljar: an unknown order is
//! refused, and an unknown field of a reply is skipped.

use super::report::{PolicyReport, QuestionReport};
use belljar_gateway::{Answer, Changed, Effect, Lasting, LiveEvent};
use belljar_spec::{ErrorCode, SandboxError};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// What a sandbox is told to do. `by` says who wants it, for the audit log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "order", rename_all = "snake_case", deny_unknown_fields)]
pub enum Order {
    /// Say what the policy is.
    Show {},
    /// Add a rule.
    Change { effect: RuleEffect, rule: String, lasting: RuleLasting, by: String },
    /// Answer a question.
    Answer { question: u64, verdict: Verdict, by: String },
    /// Tell what happens, until the connection ends.
    Watch {},
}

/// What a rule does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
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
    Once,
    Seconds(u64),
}

/// The answer to a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The connections that wait may be made.
    Once,
    /// The name may be reached as long as the sandbox lives.
    Sandbox,
    Deny,
}

/// What becomes of an order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "reply", rename_all = "snake_case")]
pub enum Reply {
    Policy(Box<PolicyReport>),
    /// The policy has this digest now; so many connections were ended.
    Changed {
        policy: String,
        version: u64,
        ended: u64,
    },
    Notice(LiveNotice),
    Refused {
        code: String,
        message: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        hint: Option<String>,
    },
}

/// What is told to those who watch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "notice", rename_all = "snake_case")]
pub enum LiveNotice {
    /// A person is asked.
    Asked { question: QuestionReport },
    /// The question is over; without a verdict nobody answered in time.
    Answered { question: QuestionReport, verdict: Option<Verdict> },
    /// The policy has this digest now.
    Changed { policy: String, version: u64 },
    /// So many notices were missed.
    Missed { count: u64 },
}

impl Reply {
    pub(super) fn refused(error: &SandboxError) -> Reply {
        Reply::Refused {
            code: error.code.as_str().into(),
            message: error.message.clone(),
            hint: error.hint.as_ref().map(ToString::to_string),
        }
    }

    /// The reply, if the order was carried out.
    pub(super) fn accepted(self) -> Result<Reply, SandboxError> {
        let Reply::Refused { code, message, hint } = self else { return Ok(self) };
        let error = code.parse().unwrap_or(ErrorCode::Internal).error(message);
        Err(match hint {
            Some(hint) => error.hint(hint),
            None => error,
        })
    }
}

impl From<Changed> for Reply {
    fn from(changed: Changed) -> Reply {
        let Changed { number, digest, ended } = changed;
        Reply::Changed { policy: digest.to_string(), version: number, ended: ended as u64 }
    }
}

impl From<LiveEvent> for LiveNotice {
    fn from(event: LiveEvent) -> LiveNotice {
        match event {
            LiveEvent::Asked(question) => LiveNotice::Asked { question: (&question).into() },
            LiveEvent::Answered { question, answer } => {
                LiveNotice::Answered { question: (&question).into(), verdict: answer.map(Verdict::from) }
            }
            LiveEvent::Changed { number, digest } => {
                LiveNotice::Changed { policy: digest.to_string(), version: number }
            }
        }
    }
}

impl From<RuleEffect> for Effect {
    fn from(effect: RuleEffect) -> Effect {
        match effect {
            RuleEffect::Allow => Effect::Allow,
            RuleEffect::Deny => Effect::Deny,
        }
    }
}

impl From<RuleLasting> for Lasting {
    fn from(lasting: RuleLasting) -> Lasting {
        match lasting {
            RuleLasting::Life => Lasting::Life,
            RuleLasting::Once => Lasting::Once,
            RuleLasting::Seconds(seconds) => Lasting::For(Duration::from_secs(seconds)),
        }
    }
}

impl From<Verdict> for Answer {
    fn from(verdict: Verdict) -> Answer {
        match verdict {
            Verdict::Once => Answer::Once,
            Verdict::Sandbox => Answer::Sandbox,
            Verdict::Deny => Answer::Deny,
        }
    }
}

impl From<Answer> for Verdict {
    fn from(answer: Answer) -> Verdict {
        match answer {
            Answer::Once => Verdict::Once,
            Answer::Sandbox => Verdict::Sandbox,
            Answer::Deny => Verdict::Deny,
        }
    }
}
