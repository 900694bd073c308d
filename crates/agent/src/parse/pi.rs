//! pi, `--mode json`: both names of it, `@earendil-works/pi-coding-agent` and the older `@mariozechner/pi-coding-agent`.
//!
//! `message_start` and `message_update` are snapshots of what is still being said; `message_end` is what was said. It carries
//! what the turn used, and so counts as the turn: `turn_end` says the same once more, and a run that is killed in a tool has
//! none. A failed call of the model is a message too, without tokens; it is no turn.

use super::Parser;
use super::pick::{count, dollars, each, flat, plain, text, tokens, words};
use super::tally::Tally;
use crate::claims::{Claims, Ending};
use crate::entry::Tokens;
use crate::event::{AgentEvent, MessageBlock};
use serde_json::Value;

pub fn parser() -> Box<dyn Parser> {
    Box::new(Pi { tally: Tally::default() })
}

struct Pi {
    tally: Tally,
}

impl Parser for Pi {
    fn event(&mut self, event: &Value) -> Vec<AgentEvent> {
        match text(event, "/type") {
            Some("session") => self.tally.session(text(event, "/id"), None),
            Some("message_end") => self.message(&event["message"]),
            Some("tool_execution_end") => {
                let id = text(event, "/toolCallId").unwrap_or_default();
                let given = event.pointer("/result/content").unwrap_or(&event["result"]);
                self.tally.tool_result(id, flat(given), event["isError"] == true);
            }
            Some("auto_retry_start") => {
                let why = plain(text(event, "/errorMessage").unwrap_or("error"));
                self.tally.retry(count(event, "/attempt"), &why);
            }
            Some("agent_settled") if event["aborted"] == true => self.tally.ended(Ending::Aborted),
            Some(known) if PASSED_OVER.contains(&known) => {}
            _ => self.tally.other(event.to_string()),
        }
        self.tally.take()
    }

    fn end(&mut self) -> (Vec<AgentEvent>, Claims) {
        self.tally.finish()
    }
}

impl Pi {
    fn message(&mut self, message: &Value) {
        match text(message, "/role") {
            Some("assistant") => self.assistant(message),
            // The prompt; its own instructions; what tools gave, which came before.
            Some("user" | "system" | "toolResult") => {}
            _ => self.tally.other(message.to_string()),
        }
    }

    fn assistant(&mut self, message: &Value) {
        let usage =
            tokens(message, ["/usage/input", "/usage/output", "/usage/cacheRead", "/usage/cacheWrite"]);
        let model = text(message, "/model");
        let stop = text(message, "/stopReason").unwrap_or_default();
        let is_turn = usage != Tokens::default() || !matches!(stop, "error" | "aborted");
        if is_turn {
            self.tally.turn();
            self.tally.spent(usage, dollars(message, "/usage/cost/total"));
        }
        self.tally.message(
            model,
            each(message, "/content").iter().filter_map(block).collect(),
            is_turn.then_some(usage),
        );
        match stop {
            "stop" => self.tally.ended_well(),
            "length" => self.tally.ended(Ending::Length),
            "error" => {
                self.tally.error(&plain(words(message, "/errorMessage").unwrap_or("it does not say why")));
                if text(message, "/rawStopReason") == Some("refusal") {
                    self.tally.ended(Ending::Refusal);
                }
            }
            "aborted" => self.tally.ended(Ending::Aborted),
            // `toolUse`: it continues.
            _ => {}
        }
    }
}

fn block(block: &Value) -> Option<MessageBlock> {
    let string = |path| text(block, path).unwrap_or_default().to_string();
    match text(block, "/type")? {
        "text" => Some(MessageBlock::Text(string("/text"))),
        "thinking" => words(block, "/thinking").map(|thought| MessageBlock::Thinking(thought.into())),
        "toolCall" => Some(MessageBlock::ToolUse {
            id: string("/id"),
            name: string("/name"),
            input: block["arguments"].clone(),
        }),
        _ => None,
    }
}

/// Events that say nothing which others do not say better.
const PASSED_OVER: [&str; 12] = [
    "agent_start",
    "agent_end",
    "agent_settled",
    "turn_start",
    "turn_end",
    "message_start",
    "message_update",
    "tool_execution_start",
    "tool_execution_update",
    "auto_retry_end",
    "entry_appended",
    "queue_update",
];
