//! OpenAI's Responses.

use super::api::CREATED;
use super::conversation::{Turn, list, text_of};
use super::openai;
use super::reply::{EncodedReply, Event, Reply, ToolCall, pieces};
use super::step::Stop;
use super::tools::{Shape, Tool, javascript};
use serde_json::{Value, json};

pub(super) fn turns(body: &Value) -> Vec<Turn> {
    if let Some(text) = body["input"].as_str() {
        return vec![Turn::User(text.into())];
    }
    let turn = |item: &Value| {
        let kind = item["type"].as_str().unwrap_or("message");
        match item["role"].as_str() {
            _ if kind.ends_with("_call_output") => Some(Turn::Result(text_of(&item["output"]))),
            _ if kind.ends_with("_call") => Some(Turn::Call),
            _ if kind != "message" => None,
            Some("user") | None => Some(Turn::User(text_of(&item["content"]))),
            Some(_) => Some(Turn::Other),
        }
    };
    list(&body["input"]).iter().filter_map(turn).collect()
}

/// Some stand in groups; and Codex puts its own among what was said.
pub(super) fn tools(body: &Value) -> Vec<Tool> {
    let items = list(&body["input"]).iter().filter(|item| item["type"] == "additional_tools");
    let tools = list(&body["tools"]).iter().chain(items.flat_map(|item| list(&item["tools"])));
    let mut offered = Vec::new();
    for tool in tools {
        match tool["type"] == "namespace" {
            true => {
                let group = tool["name"].as_str().map(String::from);
                let of_group = |tool: &Value| Tool { group: group.clone(), ..openai::tool(tool) };
                offered.extend(list(&tool["tools"]).iter().map(of_group));
            }
            false => offered.push(openai::tool(tool)),
        }
    }
    offered
}

pub(super) fn encode(reply: &Reply) -> EncodedReply {
    let is_cut = reply.stop == Stop::Length;
    let whole = json!({
        "id": format!("resp_{}", reply.id), "object": "response", "created_at": CREATED,
        "status": if is_cut { "incomplete" } else { "completed" }, "model": reply.model, "output": items(reply),
        "error": null, "incomplete_details": is_cut.then(|| json!({"reason": "max_output_tokens"})),
        "instructions": null, "parallel_tool_calls": false, "tool_choice": "auto", "tools": [], "metadata": {},
        "previous_response_id": null, "store": false, "usage": openai::usage(&reply.usage, "input", "output"),
    });
    EncodedReply { events: events(&whole), whole }
}

/// What the answer is made of.
fn items(reply: &Reply) -> Vec<Value> {
    let mut items = Vec::new();
    if let Some(thinking) = &reply.thinking {
        items.push(json!({"type": "reasoning", "id": format!("rs_{}", reply.id),
            "summary": [{"type": "summary_text", "text": thinking}], "encrypted_content": "bW9jaw=="}));
    }
    if !reply.text.is_empty() {
        let part = match reply.stop {
            Stop::Refusal => json!({"type": "refusal", "refusal": reply.text}),
            Stop::End | Stop::Length => {
                json!({"type": "output_text", "text": reply.text, "annotations": []})
            }
        };
        items.push(json!({"type": "message", "id": format!("msg_{}", reply.id), "role": "assistant",
            "status": "completed", "content": [part]}));
    }
    items.extend(reply.call.as_ref().map(|call| call_item(&reply.id, call)));
    items
}

fn call_item(id: &str, call: &ToolCall) -> Value {
    let mut item = match call.shape {
        Shape::Function => {
            let mut item =
                json!({"type": "function_call", "name": call.name, "arguments": call.input.to_string()});
            if let Some(group) = &call.group {
                item["namespace"] = group.as_str().into();
            }
            item
        }
        Shape::Custom => {
            json!({"type": "custom_tool_call", "name": call.name, "input": javascript(&call.command)})
        }
        Shape::LocalShell => json!({"type": "local_shell_call",
            "action": {"type": "exec", "command": ["bash", "-lc", call.command], "env": {}}}),
    };
    item["id"] = format!("fc_{id}").into();
    item["call_id"] = format!("call_{}", call.id).into();
    item["status"] = "completed".into();
    item
}

fn events(whole: &Value) -> Vec<Event> {
    let mut open = whole.clone();
    open["status"] = "in_progress".into();
    open["output"] = json!([]);
    open["usage"] = Value::Null;
    open["incomplete_details"] = Value::Null;
    let mut list_of = vec![
        ("response.created", json!({"response": open})),
        ("response.in_progress", json!({"response": open})),
    ];
    for (index, item) in list(&whole["output"]).iter().enumerate() {
        let (head, parts) = in_pieces(item);
        list_of.push(("response.output_item.added", json!({"item": head, "output_index": index})));
        for (name, mut data) in parts {
            data["item_id"] = item["id"].clone();
            data["output_index"] = index.into();
            list_of.push((name, data));
        }
        list_of.push(("response.output_item.done", json!({"item": item, "output_index": index})));
    }
    let last = if whole["status"] == "incomplete" { "response.incomplete" } else { "response.completed" };
    list_of.push((last, json!({"response": whole})));
    let numbered = list_of.into_iter().enumerate().map(|(number, (name, mut data))| {
        data["type"] = name.into();
        data["sequence_number"] = number.into();
        Event::named(name, data)
    });
    numbered.collect()
}

type Part = (&'static str, Value);

/// How an item begins, and what comes between its beginning and its end.
fn in_pieces(item: &Value) -> (Value, Vec<Part>) {
    let mut head = item.clone();
    let parts = match item["type"].as_str() {
        Some("message") => {
            head["content"] = json!([]);
            head["status"] = "in_progress".into();
            message_parts(&item["content"][0])
        }
        Some("reasoning") => {
            head["summary"] = json!([]);
            reasoning_parts(&item["summary"][0])
        }
        Some("function_call") => {
            head["arguments"] = "".into();
            head["status"] = "in_progress".into();
            let arguments = item["arguments"].as_str().unwrap_or_default();
            let mut parts = deltas("response.function_call_arguments.delta", arguments, &json!({}));
            parts.push(("response.function_call_arguments.done", json!({"arguments": arguments})));
            parts
        }
        _ => {
            head["status"] = "in_progress".into();
            Vec::new()
        }
    };
    (head, parts)
}

fn message_parts(part: &Value) -> Vec<Part> {
    let (key, delta, done) = match part["type"] == "refusal" {
        true => ("refusal", "response.refusal.delta", "response.refusal.done"),
        false => ("text", "response.output_text.delta", "response.output_text.done"),
    };
    let text = part[key].as_str().unwrap_or_default();
    let mut empty = part.clone();
    empty[key] = "".into();
    let mut parts = vec![("response.content_part.added", json!({"content_index": 0, "part": empty}))];
    parts.extend(deltas(delta, text, &json!({"content_index": 0})));
    parts.push((done, json!({"content_index": 0, key: text})));
    parts.push(("response.content_part.done", json!({"content_index": 0, "part": part})));
    parts
}

fn reasoning_parts(part: &Value) -> Vec<Part> {
    let text = part["text"].as_str().unwrap_or_default();
    let empty = json!({"type": "summary_text", "text": ""});
    let mut parts =
        vec![("response.reasoning_summary_part.added", json!({"summary_index": 0, "part": empty}))];
    parts.extend(deltas("response.reasoning_summary_text.delta", text, &json!({"summary_index": 0})));
    parts.push(("response.reasoning_summary_text.done", json!({"summary_index": 0, "text": text})));
    parts.push(("response.reasoning_summary_part.done", json!({"summary_index": 0, "part": part})));
    parts
}

fn deltas(name: &'static str, text: &str, base: &Value) -> Vec<Part> {
    let delta = |piece: String| {
        let mut data = base.clone();
        data["delta"] = piece.into();
        (name, data)
    };
    pieces(text).into_iter().map(delta).collect()
}
