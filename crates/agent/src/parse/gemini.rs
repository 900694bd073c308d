//! Gemini CLI, `--output-format stream-json`.
//!
//! What the model says comes in parts, which are put together here: a message is done when something else comes. The counts
//! of the result have all input in one number, the cached part in it; turns and cost are not told. An answer that was cut off
//! and one that was declined both end with `success`, and a tool that exits with 3 does too.

use super::Parser;
use super::pick::{count, flat, plain, text, words};
use super::tally::{MAX_ANSWER, Tally};
use crate::claims::{Claims, Ending};
use crate::clip::missing;
use crate::entry::Tokens;
use crate::event::{AgentEvent, MessageBlock};
use serde_json::Value;

pub fn parser() -> Box<dyn Parser> {
    Box::new(Gemini::default())
}

#[derive(Default)]
struct Gemini {
    tally: Tally,
    /// What has come of a message.
    open: String,
    /// How many characters of it are not kept.
    missing: u64,
}

impl Parser for Gemini {
    fn event(&mut self, event: &Value) -> Vec<AgentEvent> {
        let kind = text(event, "/type");
        if kind == Some("message") {
            self.message(event);
            return self.tally.take();
        }
        self.close();
        match kind {
            Some("init") => self.tally.session(text(event, "/session_id"), text(event, "/model")),
            Some("tool_use") => self.tool_use(event),
            Some("tool_result") => self.tool_result(event),
            Some("error") => {
                let what = plain(text(event, "/message").unwrap_or("error"));
                match text(event, "/severity") {
                    Some("warning") => self.tally.other(what),
                    _ => self.tally.error(&what),
                }
            }
            Some("result") => self.result(event),
            _ => self.tally.other(event.to_string()),
        }
        self.tally.take()
    }

    fn end(&mut self) -> (Vec<AgentEvent>, Claims) {
        self.close();
        self.tally.finish()
    }
}

impl Gemini {
    fn message(&mut self, event: &Value) {
        // The other role is the user's: the prompt, as it was given.
        if text(event, "/role") != Some("assistant") {
            self.close();
            return;
        }
        let is_part = event["delta"] == true;
        if !is_part {
            self.close();
        }
        for character in text(event, "/content").unwrap_or_default().chars() {
            if self.missing == 0 && self.open.len() + character.len_utf8() <= MAX_ANSWER {
                self.open.push(character);
            } else {
                self.missing += 1;
            }
        }
        if !is_part {
            self.close();
        }
    }

    /// The message is done.
    fn close(&mut self) {
        let mut message = std::mem::take(&mut self.open);
        let left_out = std::mem::take(&mut self.missing);
        if left_out > 0 {
            message.push_str(&missing(left_out));
        }
        if !message.is_empty() {
            self.tally.message(None, vec![MessageBlock::Text(message)], None);
        }
    }

    fn tool_use(&mut self, event: &Value) {
        let string = |path| text(event, path).unwrap_or_default().to_string();
        let input = event["parameters"].clone();
        let call = MessageBlock::ToolUse { id: string("/tool_id"), name: string("/tool_name"), input };
        self.tally.message(None, vec![call], None);
    }

    fn tool_result(&mut self, event: &Value) {
        let id = text(event, "/tool_id").unwrap_or_default();
        let given = match (event.get("output"), words(event, "/error/message")) {
            (Some(output), _) => flat(output),
            (None, Some(error)) => error.into(),
            (None, None) => String::new(),
        };
        self.tally.tool_result(id, given, text(event, "/status") != Some("success"));
    }

    fn result(&mut self, event: &Value) {
        if event["stats"].is_object() {
            let number = |path| count(event, path).unwrap_or(0);
            let cache_read = number("/stats/cached");
            let input = number("/stats/input_tokens").saturating_sub(cache_read);
            let output = number("/stats/output_tokens");
            self.tally.spent_in_all(Tokens { input, output, cache_read, cache_write: 0 }, None);
        }
        if text(event, "/status") == Some("success") {
            self.tally.ended_well();
            return;
        }
        self.tally.error(&plain(words(event, "/error/message").unwrap_or("it does not say why")));
        match text(event, "/error/type") {
            Some("FatalTurnLimitedError") => self.tally.ended(Ending::OwnLimit),
            Some("FatalCancellationError") => self.tally.ended(Ending::Aborted),
            _ => self.tally.ended(Ending::Error),
        }
    }
}
