//! A program that keeps our contract: one JSON object on standard output, over as many lines as it likes,
//! `{"payloads":[{"text":…}],"meta":{"error":null|{"code","message"}}}`. Its exit code says nothing that this does not.

use super::Parser;
use super::pick::{each, text, words};
use super::tally::Tally;
use crate::claims::Claims;
use crate::event::{AgentEvent, MessageBlock};
use crate::lines::Ends;
use serde_json::Value;

pub fn parser() -> Box<dyn Parser> {
    Box::new(Program { tally: Tally::default() })
}

struct Program {
    tally: Tally,
}

impl Parser for Program {
    fn event(&mut self, event: &Value) -> Vec<AgentEvent> {
        if !event["payloads"].is_array() && !event["meta"].is_object() {
            self.unreadable("the object has neither `payloads` nor `meta`");
            return self.tally.take();
        }
        let texts: Vec<&str> =
            each(event, "/payloads").iter().filter_map(|payload| words(payload, "/text")).collect();
        if !texts.is_empty() {
            self.tally.message(None, vec![MessageBlock::Text(texts.join("\n"))], None);
        }
        match event.pointer("/meta/error") {
            None | Some(Value::Null) => self.tally.ended_well(),
            Some(error) => {
                let code = text(error, "/code").unwrap_or("error");
                let message = words(error, "/message").or_else(|| error.as_str());
                self.tally.error(&format!("{code}: {}", message.unwrap_or("it does not say why")));
            }
        }
        self.tally.take()
    }

    fn text(&mut self, line: &str) -> Vec<AgentEvent> {
        self.tally.other(line);
        self.unreadable("what it wrote is not one JSON object");
        self.tally.take()
    }

    fn end(&mut self) -> (Vec<AgentEvent>, Claims) {
        // One that wrote nothing has said nothing: how it ended tells more.
        self.tally.finish()
    }

    fn ends(&self) -> Ends {
        Ends::Never
    }
}

impl Program {
    fn unreadable(&mut self, why: &str) {
        self.tally.error(&format!("parse_error: {why}"));
    }
}
