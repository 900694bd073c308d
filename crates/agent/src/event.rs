//! What an agent's output says, whatever the agent. Every parser speaks these words, and the log is written from them.

use crate::entry::Tokens;
use serde_json::Value;

/// Something that was said. All of it is the agent's word.
#[derive(Debug, Clone, PartialEq)]
pub enum AgentEvent {
    /// A session began, and what it is called.
    Session { id: Option<String>, model: Option<String> },
    /// The model said something, or called tools.
    Message { model: Option<String>, blocks: Vec<MessageBlock>, usage: Option<Tokens> },
    /// A tool came back.
    ToolResult { id: String, content: String, is_error: bool },
    /// It asks its model again.
    Retry { attempt: Option<u64>, why: String },
    /// Something went wrong.
    Error(String),
    /// Anything else that a person may want to see: a line that is not an event, an event of an unknown kind.
    Other(String),
    /// A line was too long to be looked at: so many bytes of it.
    Dropped(u64),
}

/// A part of what a model said.
#[derive(Debug, Clone, PartialEq)]
pub enum MessageBlock {
    Text(String),
    Thinking(String),
    ToolUse { id: String, name: String, input: Value },
}
