//! opencode, `run --format json`.
//!
//! A step is one turn of the model, and says at its end what it used and why it stopped. A call of a tool is told of once,
//! when it is done. Nothing says that the run is over: the last step does, or an error. Which model it is, is not told.

use super::Parser;
use super::pick::{count, dollars, flat, text, tokens, words};
use super::tally::Tally;
use crate::claims::{Claims, Ending};
use crate::event::{AgentEvent, MessageBlock};
use serde_json::Value;

pub fn parser() -> Box<dyn Parser> {
    Box::new(OpenCode { tally: Tally::default() })
}

struct OpenCode {
    tally: Tally,
}

impl Parser for OpenCode {
    fn event(&mut self, event: &Value) -> Vec<AgentEvent> {
        self.tally.session(text(event, "/sessionID"), None);
        let part = &event["part"];
        let body = || text(part, "/text").unwrap_or_default().to_string();
        match text(event, "/type") {
            Some("step_start") => {}
            Some("text") => self.tally.message(None, vec![MessageBlock::Text(body())], None),
            Some("reasoning") => self.tally.message(None, vec![MessageBlock::Thinking(body())], None),
            Some("tool_use") => self.tool(part),
            Some("step_finish") => self.step_finish(part),
            Some("error") => self.error(&event["error"]),
            _ => self.tally.other(event.to_string()),
        }
        self.tally.take()
    }

    fn end(&mut self) -> (Vec<AgentEvent>, Claims) {
        self.tally.finish()
    }
}

impl OpenCode {
    fn tool(&mut self, part: &Value) {
        let string = |path| text(part, path).unwrap_or_default().to_string();
        let (id, state) = (string("/callID"), &part["state"]);
        let call =
            MessageBlock::ToolUse { id: id.clone(), name: string("/tool"), input: state["input"].clone() };
        self.tally.message(None, vec![call], None);
        let exit = state.pointer("/metadata/exit").and_then(Value::as_i64).unwrap_or(0);
        let is_error = text(state, "/status") == Some("error") || exit != 0;
        let given = state.get("output").or_else(|| state.get("error")).unwrap_or(&Value::Null);
        self.tally.tool_result(&id, flat(given), is_error);
    }

    fn step_finish(&mut self, part: &Value) {
        self.tally.turn();
        let paths = ["/tokens/input", "/tokens/output", "/tokens/cache/read", "/tokens/cache/write"];
        let mut step = tokens(part, paths);
        // Thought is output. Whether it stands beside it or in it differs by version; the sum tells.
        let thought = count(part, "/tokens/reasoning").unwrap_or(0);
        let parts = [step.input, step.output, step.cache_read, step.cache_write, thought];
        let sum = parts.into_iter().fold(0, u64::saturating_add);
        if count(part, "/tokens/total") == Some(sum) {
            step.output = step.output.saturating_add(thought);
        }
        self.tally.spent(step, dollars(part, "/cost"));
        match text(part, "/reason") {
            Some("stop") => self.tally.ended_well(),
            Some("length") => self.tally.ended(Ending::Length),
            Some("content-filter") => self.tally.ended(Ending::Refusal),
            Some("error") => self.tally.ended(Ending::Error),
            // `tool-calls`: it continues.
            _ => {}
        }
    }

    fn error(&mut self, error: &Value) {
        let name = words(error, "/name").unwrap_or("error");
        let status = count(error, "/data/statusCode").map(|status| format!(" {status}")).unwrap_or_default();
        let what = words(error, "/data/message").or_else(|| words(error, "/message"));
        self.tally.error(&format!("{name}{status}: {}", what.unwrap_or("it does not say why")));
        match name {
            "MessageAbortedError" => self.tally.ended(Ending::Aborted),
            "MessageOutputLengthError" => self.tally.ended(Ending::Length),
            "ContentFilterError" => self.tally.ended(Ending::Refusal),
            _ => {}
        }
    }
}
