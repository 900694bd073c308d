//! The lines of a log: one shape, whatever the agent. docs/agents.md is the table for people.
//!
//! The first line is the prompt, the last one the result. In between are the model's messages, the results of its tools,
//! and what belljar did (`system`). A program that reads the transcripts of Claude's SDK can read these.

use crate::claims::Claims;
use crate::stop::StopReason;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// A line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Line {
    #[serde(flatten)]
    pub entry: Entry,
    /// When the host wrote it, RFC 3339 in UTC.
    pub timestamp: String,
    /// The run's id, made by the host.
    #[serde(rename = "sessionId")]
    pub session_id: String,
}

/// What a line is about.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Entry {
    /// The prompt, or what tools gave back.
    User { message: UserMessage },
    /// What the model said; or, with `isApiErrorMessage`, what went wrong.
    Assistant(Assistant),
    /// What belljar did or noticed.
    System(System),
    /// How it ended; always the last line.
    Result(Box<Summary>),
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct UserMessage {
    /// Always `user`.
    pub role: String,
    pub content: UserContent,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum UserContent {
    Prompt(String),
    Results(Vec<ToolResult>),
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename = "tool_result")]
pub struct ToolResult {
    pub tool_use_id: String,
    pub content: String,
    #[serde(default, skip_serializing_if = "is_false")]
    pub is_error: bool,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
pub struct Assistant {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<AssistantMessage>,
    #[serde(rename = "isApiErrorMessage", default, skip_serializing_if = "is_false")]
    pub is_api_error: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AssistantMessage {
    /// Always `assistant`.
    pub role: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    pub content: Vec<Block>,
    /// As the agent claims it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage: Option<Tokens>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Block {
    Text { text: String },
    Thinking { thinking: String },
    ToolUse { id: String, name: String, input: Value },
}

/// Tokens, by what they cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Tokens {
    /// What was neither read from a cache nor written to one.
    #[serde(rename = "input_tokens")]
    pub input: u64,
    #[serde(rename = "output_tokens")]
    pub output: u64,
    #[serde(rename = "cache_read_input_tokens")]
    pub cache_read: u64,
    #[serde(rename = "cache_creation_input_tokens")]
    pub cache_write: u64,
}

/// What belljar did or noticed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "subtype", rename_all = "snake_case")]
pub enum System {
    /// What runs, and where.
    Init {
        agent: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        model: Option<String>,
        #[serde(skip_serializing_if = "Option::is_none")]
        backend: Option<String>,
        /// Inside.
        cwd: String,
    },
    /// A step of the run began, ended or failed.
    Step {
        step: Step,
        state: StepState,
        #[serde(skip_serializing_if = "Option::is_none")]
        duration_ms: Option<u64>,
        #[serde(skip_serializing_if = "Option::is_none")]
        error: Option<String>,
    },
    /// What the agent calls its session.
    AgentSession {
        #[serde(skip_serializing_if = "Option::is_none")]
        id: Option<String>,
        #[serde(skip_serializing_if = "Option::is_none")]
        model: Option<String>,
    },
    /// The agent asks its model again.
    Retry {
        #[serde(skip_serializing_if = "Option::is_none")]
        attempt: Option<u64>,
        error: String,
    },
    /// A line of the agent's that is not an event, or an event of an unknown kind.
    Output { text: String },
    /// The result of a tool that was not called.
    OrphanResult { tool_use_id: String, content: String },
    /// Of a line that was too long, so much was left out.
    Dropped { bytes: u64 },
    /// What the agent wrote to its standard error: the end of it.
    Stderr { text: String },
    /// Something a person should know.
    Warning { text: String },
}

/// A step of a run. A run that fails names the one it failed in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Step {
    /// What was asked for, and whether it may be.
    Policy,
    Workspace,
    Credentials,
    Sandbox,
    /// What the agent is told of the place it is in.
    Context,
    Agent,
    /// What it did.
    Collect,
    Teardown,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StepState {
    Started,
    Done,
    Failed,
}

/// The last line. Figures are the gateway's.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    pub subtype: StopReason,
    pub is_error: bool,
    pub result: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    pub num_turns: u64,
    /// `null` when it is not known.
    pub total_cost_usd: Option<f64>,
    pub total_input_tokens: u64,
    pub total_output_tokens: u64,
    pub total_cache_read_input_tokens: u64,
    pub total_cache_creation_input_tokens: u64,
    pub duration_ms: u64,
    /// What the agent says of the same.
    pub claims: Claims,
    /// All else that the result says, in the words of result.json: `refused`, `workspace`, `llm`, `hint`, …
    #[serde(flatten)]
    pub more: Map<String, Value>,
}

fn is_false(value: &bool) -> bool {
    !*value
}
