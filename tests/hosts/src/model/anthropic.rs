//! Anthropic's Messages.

use super::conversation::{Turn, list, text_of};
use super::reply::{EncodedReply, Event, Reply, pieces};
use super::step::Stop;
use super::tools::Tool;
use serde_json::{Value, json};

pub(super) fn turns(body: &Value) -> Vec<Turn> {
    let mut turns = Vec::new();
    for message in list(&body["messages"]) {
        let text = |text: &Value| match message["role"] == "assistant" {
            true => Turn::Other,
            false => Turn::User(text.as_str().unwrap_or_default().into()),
        };
        if !message["content"].is_array() {
            turns.push(text(&message["content"]));
        }
        for block in list(&message["content"]) {
            match block["type"].as_str() {
                Some("tool_use") => turns.push(Turn::Call),
                Some("tool_result") => turns.push(Turn::Result(text_of(&block["content"]))),
                Some("text") => turns.push(text(&block["text"])),
                _ => {}
            }
        }
    }
    turns
}

pub(super) fn tools(body: &Value) -> Vec<Tool> {
    let tools = list(&body["tools"]).iter();
    tools.map(|tool| Tool::function(&tool["name"], &tool["input_schema"])).collect()
}

pub(super) fn encode(reply: &Reply) -> EncodedReply {
    let mut blocks = Vec::new();
    if let Some(thinking) = &reply.thinking {
        blocks.push(json!({"type": "thinking", "thinking": thinking, "signature": "bW9jaw=="}));
    }
    if !reply.text.is_empty() {
        blocks.push(json!({"type": "text", "text": reply.text}));
    }
    if let Some(call) = &reply.call {
        blocks.push(
            json!({"type": "tool_use", "id": format!("toolu_{}", call.id), "name": call.name, "input": call.input}),
        );
    }
    let stop = match (&reply.call, reply.stop) {
        (Some(_), _) => "tool_use",
        (None, Stop::End) => "end_turn",
        (None, Stop::Length) => "max_tokens",
        (None, Stop::Refusal) => "refusal",
    };
    let usage = json!({
        "input_tokens": reply.usage.input, "cache_creation_input_tokens": reply.usage.cache_write,
        "cache_read_input_tokens": reply.usage.cache_read, "output_tokens": reply.usage.output,
        "service_tier": "standard",
    });
    let whole = json!({
        "id": format!("msg_{}", reply.id), "type": "message", "role": "assistant", "model": reply.model,
        "content": blocks, "stop_reason": stop, "stop_sequence": null, "usage": usage,
    });
    EncodedReply { events: events(&whole), whole }
}

fn events(whole: &Value) -> Vec<Event> {
    let mut events = Vec::new();
    let mut put = |name: &'static str, mut data: Value| {
        data["type"] = name.into();
        events.push(Event::named(name, data));
    };
    // At the start the answer is empty, and one token long.
    let mut start = whole.clone();
    start["content"] = json!([]);
    start["stop_reason"] = Value::Null;
    start["usage"]["output_tokens"] = 1.into();
    put("message_start", json!({"message": start}));
    for (index, block) in list(&whole["content"]).iter().enumerate() {
        let (head, deltas) = in_pieces(block);
        put("content_block_start", json!({"index": index, "content_block": head}));
        for delta in deltas {
            put("content_block_delta", json!({"index": index, "delta": delta}));
        }
        put("content_block_stop", json!({"index": index}));
    }
    let usage = json!({"output_tokens": whole["usage"]["output_tokens"]});
    let delta = json!({"stop_reason": whole["stop_reason"], "stop_sequence": null});
    put("message_delta", json!({"delta": delta, "usage": usage}));
    put("message_stop", json!({}));
    events
}

/// How a block begins, and what is added to it.
fn in_pieces(block: &Value) -> (Value, Vec<Value>) {
    let of = |text: &str, kind: &str, key: &str| -> Vec<Value> {
        pieces(text).into_iter().map(|piece| json!({"type": kind, key: piece})).collect()
    };
    if let Some(thinking) = block["thinking"].as_str() {
        let mut deltas = of(thinking, "thinking_delta", "thinking");
        deltas.push(json!({"type": "signature_delta", "signature": block["signature"]}));
        (json!({"type": "thinking", "thinking": "", "signature": ""}), deltas)
    } else if let Some(text) = block["text"].as_str() {
        (json!({"type": "text", "text": ""}), of(text, "text_delta", "text"))
    } else {
        let mut head = block.clone();
        head["input"] = json!({});
        (head, of(&block["input"].to_string(), "input_json_delta", "partial_json"))
    }
}

pub(super) fn error(status: u16, message: &str) -> Value {
    let kind = match status {
        400 => "invalid_request_error",
        401 => "authentication_error",
        403 => "permission_error",
        404 => "not_found_error",
        413 => "request_too_large",
        429 => "rate_limit_error",
        529 => "overloaded_error",
        _ => "api_error",
    };
    json!({"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_mock"})
}
