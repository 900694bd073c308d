//! From the lines of a run's log to events.

use belljar_agent::entry::{Block, Entry, Line, Summary};
use belljar_api::{RunEvent, RunUsage};
use serde_json::Value;

/// What a line tells: itself, and what follows from it.
pub(super) fn events_of(line: &Line, text: &str) -> Vec<RunEvent> {
    let whole: Value = serde_json::from_str(text).unwrap_or(Value::Null);
    let mut events = vec![RunEvent::Line { line: whole }];
    match &line.entry {
        Entry::Assistant(message) => {
            for block in message.message.iter().flat_map(|message| &message.content) {
                match block {
                    Block::Text { text } => events.push(RunEvent::TextDelta { text: text.clone() }),
                    Block::Thinking { .. } | Block::ToolUse { .. } => {}
                }
            }
        }
        Entry::Result(summary) => {
            let usage = used(summary);
            events.push(RunEvent::Usage { usage });
            events.push(RunEvent::Final {
                ok: !summary.is_error,
                content: summary.result.clone(),
                stop_reason: summary.subtype.to_string(),
                error: summary.error.clone(),
                usage,
            });
        }
        Entry::User { .. } | Entry::System(_) => {}
    }
    events
}

/// The end of a run that has no result: its process was killed.
pub(super) fn broken_off() -> RunEvent {
    RunEvent::Final {
        ok: false,
        content: String::new(),
        stop_reason: "error_sandbox".into(),
        error: Some("there is no result: the run's process was killed".into()),
        usage: RunUsage::default(),
    }
}

/// What an event is called on the wire.
pub(crate) fn name(event: &RunEvent) -> &'static str {
    match event {
        RunEvent::Started { .. } => "started",
        RunEvent::Line { .. } => "line",
        RunEvent::TextDelta { .. } => "text_delta",
        RunEvent::Usage { .. } => "usage",
        RunEvent::Final { .. } => "final",
    }
}

fn used(summary: &Summary) -> RunUsage {
    RunUsage {
        turns: summary.num_turns,
        input_tokens: summary.total_input_tokens,
        output_tokens: summary.total_output_tokens,
        cache_read_input_tokens: summary.total_cache_read_input_tokens,
        cache_creation_input_tokens: summary.total_cache_creation_input_tokens,
        cost_usd: summary.total_cost_usd,
        duration_ms: summary.duration_ms,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn events(mut value: Value) -> Vec<Value> {
        value["timestamp"] = "2026-11-15T06:00:00.000000Z".into();
        value["sessionId"] = "0101010101010101".into();
        let text = value.to_string();
        let line: Line = serde_json::from_str(&text).expect("a line");
        let all: Vec<Value> = events_of(&line, &text)
            .iter()
            .map(|event| serde_json::to_value(event).expect("an event"))
            .collect();
        assert_eq!(all[0], json!({ "type": "line", "line": value }));
        all[1..].to_vec()
    }

    #[test]
    fn what_the_model_says_is_told_as_text() {
        let content = json!([
            { "type": "text", "text": "one" },
            { "type": "tool_use", "id": "1", "name": "Bash", "input": {} },
            { "type": "text", "text": "two" },
        ]);
        let message = json!({ "type": "assistant", "message": { "role": "assistant", "content": content } });
        assert_eq!(
            events(message),
            [json!({ "type": "text_delta", "text": "one" }), json!({ "type": "text_delta", "text": "two" })]
        );
        assert!(events(json!({ "type": "system", "subtype": "warning", "text": "x" })).is_empty());
    }

    #[test]
    fn the_end_is_told_with_what_was_used() {
        let result = json!({
            "type": "result", "subtype": "success", "is_error": false, "result": "done", "num_turns": 2,
            "total_cost_usd": 0.5, "total_input_tokens": 10, "total_output_tokens": 20, "total_cache_read_input_tokens": 1,
            "total_cache_creation_input_tokens": 2, "duration_ms": 30, "claims": {},
        });
        let usage = json!({
            "turns": 2, "input_tokens": 10, "output_tokens": 20, "cache_read_input_tokens": 1,
            "cache_creation_input_tokens": 2, "cost_usd": 0.5, "duration_ms": 30,
        });
        assert_eq!(
            events(result),
            [
                json!({ "type": "usage", "usage": usage }),
                json!({ "type": "final", "ok": true, "content": "done", "stop_reason": "success", "usage": usage }),
            ]
        );
    }
}
