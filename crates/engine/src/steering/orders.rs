//! Orders and replies: one JSON object in a line each. Both sides may be of different versions of belljar: an unknown order is
//! refused, and an unknown field of a reply is skipped.

use belljar_gateway::Changed;
use belljar_spec::egress::{LiveNotice, PolicyReport, RuleEffect, RuleLasting, Verdict};
use belljar_spec::{ErrorCode, SandboxError};
use serde::{Deserialize, Serialize};

/// What a sandbox is told to do. `by` says who wants it, for the audit log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "order", rename_all = "snake_case", deny_unknown_fields)]
pub enum Order {
    /// Say what the policy is.
    Show {},
    /// Add a rule.
    Change { effect: RuleEffect, rule: String, lasting: RuleLasting, by: String },
    /// Answer a question. `rule` is what it was shown to be about: numbers begin anew where a sandbox gets new processes.
    Answer { question: u64, rule: String, verdict: Verdict, by: String },
    /// Tell what happens, until the connection ends.
    Watch {},
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
