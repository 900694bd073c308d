//! Agents, and runs of them.

use belljar_spec::SandboxRequest;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// An agent that can be run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AgentInfo {
    pub id: String,
    pub label: String,
    /// Whether it is installed here.
    pub available: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Why not, and what to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// A run of an agent to start. The answer is a stream of events; closing the connection ends the run, with the work so far kept.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AgentRun {
    /// The task; not with `messages`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub prompt: String,
    /// A whole conversation, which ends with the user's message. A program of one's own gets it as it is, other agents as text; `system`
    /// messages are instructions.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub messages: Vec<AgentMessage>,
    /// What the run is booked under at a LiteLLM server.
    #[serde(skip_serializing_if = "RunBill::is_empty")]
    pub bill: RunBill,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub effort: Option<String>,
    /// What may be used: `usd=5`, `turns=30,time=10m`. Of several, the strictest counts.
    pub budget: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 31536000)]
    pub timeout_s: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
    pub sandbox: SandboxRequest,
}

/// A message of a conversation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AgentMessage {
    pub role: MessageRole,
    pub content: String,
}

/// The author of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum MessageRole {
    System,
    User,
    Assistant,
}

/// What a run is booked under. A caller with a grant names `end_user` and `user_id` only if it may choose models (`allow_llm`).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RunBill {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end_user: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub graph_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
}

impl RunBill {
    pub fn is_empty(&self) -> bool {
        *self == RunBill::default()
    }
}

/// A run that was started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RunInfo {
    /// Its log, its audit log and its bill have the same: `belljar agent logs ID`.
    pub id: String,
    pub agent: String,
}

/// What happens in a run, over SSE. The name of an event is its `type`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum RunEvent {
    /// It began. The first event.
    Started { run: RunInfo },
    /// A line of its log, as it stands there. What the other events tell follows from these.
    Line {
        #[schema(value_type = Object)]
        line: serde_json::Value,
    },
    /// The model said something.
    TextDelta { text: String },
    /// What was used, as the gateway counted it; before the end.
    Usage { usage: RunUsage },
    /// It ended. The last event.
    Final {
        /// Whether it ended with an answer.
        ok: bool,
        /// The answer.
        content: String,
        stop_reason: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        error: Option<String>,
        usage: RunUsage,
    },
}

/// What a run used.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize, ToSchema)]
pub struct RunUsage {
    /// Answers of the model.
    pub turns: u64,
    pub input_tokens: u64,
    pub output_tokens: u64,
    pub cache_read_input_tokens: u64,
    pub cache_creation_input_tokens: u64,
    /// In dollars; omitted where it is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost_usd: Option<f64>,
    pub duration_ms: u64,
}
