//! Codex, `exec --json`.
//!
//! A "turn" is the whole prompt here: how often the model was asked is not told, nor which model, nor what it cost. The
//! tokens are those of the thread so far, all input as one number with the cached part in it. That the model declined is not
//! told either: the turn ends without an answer.

use super::Parser;
use super::pick::{flat, plain, text, tokens, words};
use super::tally::Tally;
use crate::claims::{Claims, Ending};
use crate::event::{AgentEvent, MessageBlock};
use crate::recent::Recent;
use serde_json::{Map, Value};

pub fn parser() -> Box<dyn Parser> {
    Box::new(Codex { tally: Tally::default(), started: Recent::new(MAX_ITEMS) })
}

struct Codex {
    tally: Tally,
    /// Calls of tools that were told of when they began.
    started: Recent,
}

impl Parser for Codex {
    fn event(&mut self, event: &Value) -> Vec<AgentEvent> {
        match text(event, "/type") {
            Some("thread.started") => self.tally.session(text(event, "/thread_id"), None),
            Some("turn.started" | "item.updated") => {}
            Some("item.started") => self.began(&event["item"]),
            Some("item.completed") => self.completed(&event["item"]),
            Some("turn.completed") => self.turn_completed(event),
            Some("turn.failed") => self.failed(text(event, "/error/message").unwrap_or("the turn failed")),
            Some("error") => self.error(text(event, "/message").unwrap_or("error")),
            _ => self.tally.other(event.to_string()),
        }
        self.tally.take()
    }

    fn end(&mut self) -> (Vec<AgentEvent>, Claims) {
        self.tally.finish()
    }
}

impl Codex {
    fn began(&mut self, item: &Value) {
        if is_tool(item) && text(item, "/id").is_none_or(|id| self.started.insert(id)) {
            self.tally.message(None, vec![call(item)], None);
        }
    }

    fn completed(&mut self, item: &Value) {
        let body = || text(item, "/text").unwrap_or_default().to_string();
        match text(item, "/type") {
            Some("agent_message") => self.tally.message(None, vec![MessageBlock::Text(body())], None),
            Some("reasoning") => self.tally.message(None, vec![MessageBlock::Thinking(body())], None),
            // An error after which the agent continues.
            Some("error") => self.tally.other(text(item, "/message").unwrap_or("error")),
            _ if !is_tool(item) => self.tally.other(item.to_string()),
            _ => {
                // Some are told of only when they are done.
                if text(item, "/id").is_none_or(|id| !self.started.contains(id)) {
                    self.began(item);
                }
                self.tally.tool_result(text(item, "/id").unwrap_or_default(), given(item), has_failed(item));
            }
        }
    }

    fn turn_completed(&mut self, event: &Value) {
        if event["usage"].is_object() {
            let paths = [
                "/usage/input_tokens",
                "/usage/output_tokens",
                "/usage/cached_input_tokens",
                "/usage/cache_write_input_tokens",
            ];
            let mut sum = tokens(event, paths);
            sum.input = sum.input.saturating_sub(sum.cache_read).saturating_sub(sum.cache_write);
            self.tally.spent_in_all(sum, None);
        }
        self.tally.ended_well();
    }

    fn error(&mut self, message: &str) {
        // `Reconnecting... 2/5 (why)`
        match message.strip_prefix("Reconnecting... ") {
            Some(rest) => {
                let attempt = rest.split('/').next().and_then(|number| number.parse().ok());
                let why = rest.split_once('(').map_or(rest, |(_, why)| why.trim_end_matches(')'));
                self.tally.retry(attempt, why);
            }
            None => self.failed(message),
        }
    }

    fn failed(&mut self, message: &str) {
        // Its words are `Incomplete response returned, reason: max_output_tokens`.
        let reason = message.rsplit_once("reason: ").map(|(_, reason)| reason);
        self.tally.error(&plain(message));
        match reason {
            Some("max_output_tokens") => self.tally.ended(Ending::Length),
            Some("content_filter") => self.tally.ended(Ending::Refusal),
            _ => self.tally.ended(Ending::Error),
        }
    }
}

fn is_tool(item: &Value) -> bool {
    let kind = text(item, "/type").unwrap_or_default();
    !matches!(kind, "agent_message" | "reasoning" | "error" | "plan" | "todo_list" | "")
}

/// A call, from what the item says of it beside what came of it.
fn call(item: &Value) -> MessageBlock {
    let (kind, tool) = (text(item, "/type").unwrap_or_default(), text(item, "/tool"));
    let input: Map<String, Value> = match item.as_object() {
        Some(item) => {
            let input = item.iter().filter(|(key, _)| !OUTCOME.contains(&key.as_str()));
            input.map(|(key, value)| (key.clone(), value.clone())).collect()
        }
        None => Map::new(),
    };
    MessageBlock::ToolUse {
        id: text(item, "/id").unwrap_or_default().into(),
        name: tool.unwrap_or(kind).into(),
        input: Value::Object(input),
    }
}

/// What came of it.
fn given(item: &Value) -> String {
    let error = words(item, "/error/message").or_else(|| words(item, "/error"));
    match (item.get("aggregated_output"), error) {
        (Some(output), _) => flat(output),
        (None, Some(error)) => error.into(),
        (None, None) => flat(item.pointer("/result/content").unwrap_or(&item["result"])),
    }
}

fn has_failed(item: &Value) -> bool {
    let status = text(item, "/status").unwrap_or_default();
    let exit = item["exit_code"].as_f64().is_some_and(|code| code != 0.0);
    exit || matches!(status, "failed" | "declined") || words(item, "/error/message").is_some()
}

/// Of an item that is a call of a tool: what is not part of the question.
const OUTCOME: [&str; 9] =
    ["id", "type", "tool", "status", "aggregated_output", "exit_code", "result", "error", "duration_ms"];

/// Calls that are open at once are few; each ends before many more begin.
const MAX_ITEMS: usize = 4096;
