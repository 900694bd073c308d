//! Claude Code, `--output-format stream-json --verbose`.
//!
//! Each block of a message is an event of its own, with the message's id and with the token count of its first moment, which
//! is no use: so blocks are passed on as they come, without a count, and turns are counted by id until the `result` says.
//! The `result` says `"subtype":"success"` of failures too; `is_error` is what counts. Its cost is that of the session, so it
//! has more in it than this run when the session was resumed.

use super::Parser;
use super::pick::{count, dollars, each, flat, text, tokens, words};
use super::tally::Tally;
use crate::claims::{Claims, Ending};
use crate::event::{AgentEvent, MessageBlock};
use crate::recent::Recent;
use serde_json::Value;

pub fn parser() -> Box<dyn Parser> {
    Box::new(Claude { tally: Tally::default(), messages: Recent::new(MAX_MESSAGES) })
}

struct Claude {
    tally: Tally,
    /// Messages of which a block has come.
    messages: Recent,
}

impl Parser for Claude {
    fn event(&mut self, event: &Value) -> Vec<AgentEvent> {
        let model = if is_init(event) { text(event, "/model") } else { None };
        self.tally.session(text(event, "/session_id"), model);
        match text(event, "/type") {
            Some("system") => self.system(event),
            Some("assistant") => self.assistant(event),
            Some("user") => self.user(event),
            Some("result") => self.result(event),
            // Parts of messages that come whole later.
            Some("stream_event") => {}
            _ => self.tally.other(event.to_string()),
        }
        self.tally.take()
    }

    fn end(&mut self) -> (Vec<AgentEvent>, Claims) {
        self.tally.finish()
    }
}

impl Claude {
    fn system(&mut self, event: &Value) {
        match text(event, "/subtype") {
            Some("api_retry") => {
                let why = text(event, "/error").unwrap_or("error");
                let why = match count(event, "/error_status") {
                    Some(status) => format!("{status} {why}"),
                    None => why.to_string(),
                };
                self.tally.retry(count(event, "/attempt"), &why);
            }
            Some("informational") => self.tally.other(text(event, "/content").unwrap_or_default()),
            Some("init" | "status" | "thinking_tokens" | "model_refusal_no_fallback") => {}
            _ => self.tally.other(event.to_string()),
        }
    }

    fn assistant(&mut self, event: &Value) {
        if event["is_api_error_message"] == true || event["isApiErrorMessage"] == true {
            self.tally.error(&flat(&event["message"]["content"]));
            return;
        }
        let model = text(event, "/message/model");
        // What another agent said, that a tool of this one started.
        if event["parent_tool_use_id"].is_string() {
            let blocks = self.blocks(event);
            self.tally.aside(model, blocks, None);
            return;
        }
        if text(event, "/message/id").is_none_or(|id| self.messages.insert(id)) {
            self.tally.turn();
        }
        let blocks = self.blocks(event);
        self.tally.message(model, blocks, None);
    }

    /// What a message says. What a tool of the provider's gave back stands among it.
    fn blocks(&mut self, event: &Value) -> Vec<MessageBlock> {
        let mut blocks = Vec::new();
        if let Some(message) = words(event, "/message/content") {
            blocks.push(MessageBlock::Text(message.into()));
        }
        for block in each(event, "/message/content") {
            let string = |path| text(block, path).unwrap_or_default().to_string();
            match text(block, "/type") {
                Some("text") => blocks.push(MessageBlock::Text(string("/text"))),
                // Empty where the provider keeps it to itself.
                Some("thinking") if words(block, "/thinking").is_none() => {}
                Some("thinking") => blocks.push(MessageBlock::Thinking(string("/thinking"))),
                Some("redacted_thinking") => {}
                Some("tool_use" | "server_tool_use" | "mcp_tool_use") => blocks.push(MessageBlock::ToolUse {
                    id: string("/id"),
                    name: string("/name"),
                    input: block["input"].clone(),
                }),
                _ if block["tool_use_id"].is_string() => self.tool_result(block),
                _ => self.tally.other(block.to_string()),
            }
        }
        blocks
    }

    /// What goes to the model: what tools gave, and what the program tells it of its own accord.
    fn user(&mut self, event: &Value) {
        if let Some(reminder) = words(event, "/message/content") {
            self.tally.other(reminder);
        }
        for block in each(event, "/message/content") {
            if block["tool_use_id"].is_string() {
                self.tool_result(block);
            } else {
                self.tally.other(flat(block));
            }
        }
    }

    fn tool_result(&mut self, block: &Value) {
        let id = text(block, "/tool_use_id").unwrap_or_default();
        self.tally.tool_result(id, flat(&block["content"]), block["is_error"] == true);
    }

    fn result(&mut self, event: &Value) {
        self.tally.turns(count(event, "/num_turns"));
        if event["usage"].is_object() {
            let paths = [
                "/usage/input_tokens",
                "/usage/output_tokens",
                "/usage/cache_read_input_tokens",
                "/usage/cache_creation_input_tokens",
            ];
            self.tally.spent_in_all(tokens(event, paths), dollars(event, "/total_cost_usd"));
        }
        let Some(how) = failure(event) else {
            if let Some(answer) = words(event, "/result") {
                self.tally.answer(answer);
            }
            self.tally.ended_well();
            return;
        };
        let errors = each(event, "/errors").iter().map(flat).collect::<Vec<_>>().join("\n");
        let message =
            words(event, "/result").or_else(|| Some(errors.as_str()).filter(|message| !message.is_empty()));
        self.tally.error(message.or(text(event, "/subtype")).unwrap_or("error"));
        self.tally.ended(how);
    }
}

/// How it went wrong; nothing if it went well.
fn failure(result: &Value) -> Option<Ending> {
    let subtype = text(result, "/subtype").unwrap_or_default();
    let stop = text(result, "/stop_reason").unwrap_or_default();
    if matches!(subtype, "error_max_turns" | "error_max_budget_usd") {
        Some(Ending::OwnLimit)
    } else if text(result, "/terminal_reason").is_some_and(|reason| reason.starts_with("aborted")) {
        Some(Ending::Aborted)
    } else if stop == "refusal" {
        Some(Ending::Refusal)
    } else if stop == "max_tokens" || text(result, "/api_error") == Some("max_output_tokens") {
        Some(Ending::Length)
    } else if result["is_error"] != false || subtype.starts_with("error") {
        Some(Ending::Error)
    } else {
        None
    }
}

fn is_init(event: &Value) -> bool {
    text(event, "/type") == Some("system") && text(event, "/subtype") == Some("init")
}

/// Blocks of a message come one after the other, with those of a few others in between.
const MAX_MESSAGES: usize = 256;
