//! From the agent's events to the log: one entry for each event, none of them larger than a reader can bear.
//!
//! What is too long is cut, and says so. The result of a tool that was not called is marked as such. Pure: the clock and
//! the file are the log's.

use crate::clip::clip;
use crate::entry::{Assistant, AssistantMessage, Block, Entry, System, ToolResult, UserContent, UserMessage};
use crate::event::{AgentEvent, MessageBlock};
use crate::recent::Recent;
use serde_json::Value;

/// What was said so far, as far as it matters for what comes.
#[derive(Debug)]
pub struct Transcript {
    /// Tools that were called.
    called: Recent,
}

impl Transcript {
    #[expect(clippy::new_without_default, reason = "there is nothing to leave out")]
    pub fn new() -> Transcript {
        Transcript { called: Recent::new(MAX_CALLS) }
    }

    /// As it is written.
    pub fn entry(&mut self, event: &AgentEvent) -> Entry {
        match event {
            AgentEvent::Session { id, model } => Entry::System(System::AgentSession {
                id: id.as_deref().map(name),
                model: model.as_deref().map(name),
            }),
            AgentEvent::Message { model, blocks, usage } => Entry::Assistant(Assistant {
                message: Some(AssistantMessage {
                    role: "assistant".into(),
                    model: model.as_deref().map(name),
                    content: blocks.iter().map(|block| self.block(block)).collect(),
                    usage: *usage,
                }),
                ..Assistant::default()
            }),
            AgentEvent::ToolResult { id, content, is_error } => self.tool_result(id, content, *is_error),
            AgentEvent::Retry { attempt, why } => {
                Entry::System(System::Retry { attempt: *attempt, error: cut(why, MAX_OUTPUT) })
            }
            AgentEvent::Error(what) => Entry::Assistant(Assistant {
                message: None,
                is_api_error: true,
                error: Some(cut(what, MAX_OUTPUT)),
            }),
            AgentEvent::Other(text) => Entry::System(System::Output { text: cut(text, MAX_OUTPUT) }),
            AgentEvent::Dropped(bytes) => Entry::System(System::Dropped { bytes: *bytes }),
        }
    }

    fn block(&mut self, block: &MessageBlock) -> Block {
        match block {
            MessageBlock::Text(text) => Block::Text { text: cut(text, MAX_BLOCK_BYTES) },
            MessageBlock::Thinking(thinking) => Block::Thinking { thinking: cut(thinking, MAX_BLOCK_BYTES) },
            MessageBlock::ToolUse { id, name: tool, input } => {
                self.called.insert(id);
                Block::ToolUse { id: name(id), name: name(tool), input: bearable(input) }
            }
        }
    }

    fn tool_result(&mut self, id: &str, content: &str, is_error: bool) -> Entry {
        let (tool_use_id, content) = (name(id), cut(content, MAX_OUTPUT));
        if !self.called.contains(id) {
            return Entry::System(System::OrphanResult { tool_use_id, content });
        }
        let result = ToolResult { tool_use_id, content, is_error };
        let content = UserContent::Results(vec![result]);
        Entry::User { message: UserMessage { role: "user".into(), content } }
    }
}

fn cut(text: &str, limit: usize) -> String {
    clip(text, limit).into_owned()
}

fn name(text: &str) -> String {
    cut(text, MAX_NAME)
}

/// What a tool was given. What is too long, or too deep to be read back in its place in the line, is there as text.
fn bearable(input: &Value) -> Value {
    let text = input.to_string();
    if text.len() > MAX_BLOCK_BYTES || depth(input) > MAX_DEPTH {
        return Value::String(cut(&text, MAX_BLOCK_BYTES));
    }
    input.clone()
}

fn depth(value: &Value) -> usize {
    let below = match value {
        Value::Array(values) => values.iter().map(depth).max(),
        Value::Object(values) => values.values().map(depth).max(),
        _ => return 0,
    };
    1 + below.unwrap_or(0)
}

/// What tools give and programs print: more than a person reads.
const MAX_OUTPUT: usize = 64 << 10;

/// What a model says or gives to a tool: a file that it writes comes as one.
const MAX_BLOCK_BYTES: usize = 1 << 20;

/// Names of tools, calls, models and sessions.
const MAX_NAME: usize = 1 << 10;

/// JSON is read to a depth of 128; a tool's input stands four deep in its line.
const MAX_DEPTH: usize = 64;

/// Calls that are remembered. A result comes soon after its call.
const MAX_CALLS: usize = 1 << 16;

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn call(id: &str, input: Value) -> AgentEvent {
        let call = MessageBlock::ToolUse { id: id.into(), name: "sh".into(), input };
        AgentEvent::Message { model: None, blocks: vec![call], usage: None }
    }

    fn result(id: &str, content: &str) -> AgentEvent {
        AgentEvent::ToolResult { id: id.into(), content: content.into(), is_error: false }
    }

    fn written(event: &[AgentEvent]) -> Vec<Value> {
        let mut transcript = Transcript::new();
        event.iter().map(|event| serde_json::to_value(transcript.entry(event)).unwrap()).collect()
    }

    #[test]
    fn a_result_without_a_call_is_marked() {
        let lines = written(&[result("a", "x"), call("a", json!({})), result("a", "y"), result("a", "z")]);
        assert_eq!(
            lines[0],
            json!({"type": "system", "subtype": "orphan_result", "tool_use_id": "a", "content": "x"})
        );
        for (line, content) in [(2, "y"), (3, "z")] {
            let block = json!({"type": "tool_result", "tool_use_id": "a", "content": content});
            assert_eq!(lines[line], json!({"type": "user", "message": {"role": "user", "content": [block]}}));
        }
    }

    #[test]
    fn what_is_too_long_is_cut_and_says_so() {
        let long = "é".repeat(40 << 10);
        let lines = written(&[call("a", json!({})), result("a", &long), AgentEvent::Other(long.clone())]);
        let expected = format!("{}…[truncated 8192 chars]", "é".repeat(32 << 10));
        assert_eq!(lines[1]["message"]["content"][0]["content"], expected.as_str());
        assert_eq!(lines[2]["text"], expected.as_str());

        let longer = "x".repeat((1 << 20) + 5);
        let blocks = vec![MessageBlock::Text(longer.clone()), MessageBlock::Thinking(longer.clone())];
        let message = AgentEvent::Message { model: Some(longer.clone()), blocks, usage: None };
        let lines = written(&[message, call("a", json!({ "content": longer }))]);
        let expected = format!("{}…[truncated 5 chars]", "x".repeat(1 << 20));
        assert_eq!(lines[0]["message"]["content"][0]["text"], expected.as_str());
        assert_eq!(lines[0]["message"]["content"][1]["thinking"], expected.as_str());
        let input = lines[1]["message"]["content"][0]["input"].as_str().unwrap();
        assert!(input.starts_with("{\"content\":\"xxx") && input.ends_with("xx…[truncated 19 chars]"));
    }

    #[test]
    fn an_input_that_is_too_deep_is_text() {
        let deep = (0..120).fold(json!(1), |inner, _| json!([inner]));
        let lines = written(&[call("a", deep.clone())]);
        assert_eq!(lines[0]["message"]["content"][0]["input"], deep.to_string().as_str());
    }
}
