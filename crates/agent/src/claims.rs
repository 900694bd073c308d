//! What an agent says of its run as a whole. Kept beside the host's own figures, and never taken for them.

use crate::entry::Tokens;
use serde::{Deserialize, Serialize};

/// All that it claims.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Claims {
    /// What it calls its session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub turns: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens: Option<Tokens>,
    /// In dollars.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost_usd: Option<f64>,
    /// How it says that it ended; nothing where it does not say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ending: Option<Ending>,
    /// Its last words on what went wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Its answer: what stands in the result as output.
    #[serde(skip)]
    pub output: Option<String>,
    /// The last tool that came back had failed, and no answer came after.
    #[serde(skip)]
    pub tool_failed: bool,
}

/// How an agent says that it ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    /// With an answer.
    Answered,
    /// The model was cut off at its longest answer.
    Length,
    /// The model declined.
    Refusal,
    /// A limit of the agent's own: turns or money.
    OwnLimit,
    /// Something went wrong: `error` says what.
    Error,
    /// It was stopped from outside.
    Aborted,
    /// A tool was called, and nothing came after.
    OnTool,
}
