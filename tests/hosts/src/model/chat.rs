//! OpenAI's Chat Completions.

use super::api::CREATED;
use super::conversation::{Turn, list, text_of};
use super::openai;
use super::reply::{EncodedReply, Event, Reply, pieces};
use super::step::Stop;
use super::tools::Tool;
use serde_json::{Value, json};

pub(super) fn turns(body: &Value) -> Vec<Turn> {
    let mut turns = Vec::new();
    for message in list(&body["messages"]) {
        let text = text_of(&message["content"]);
        match message["role"].as_str() {
            Some("tool") => turns.push(Turn::Result(text)),
            _ if text.is_empty() => {}
            Some("user") => turns.push(Turn::User(text)),
            _ => turns.push(Turn::Other),
        }
        turns.extend(list(&message["tool_calls"]).iter().map(|_| Turn::Call));
    }
    turns
}

pub(super) fn tools(body: &Value) -> Vec<Tool> {
    list(&body["tools"]).iter().map(openai::tool).collect()
}

pub(super) fn encode(reply: &Reply, body: &Value) -> EncodedReply {
    let finish = match (&reply.call, reply.stop) {
        (Some(_), _) => "tool_calls",
        (None, Stop::End) => "stop",
        (None, Stop::Length) => "length",
        (None, Stop::Refusal) => "content_filter",
    };
    let mut message = json!({"role": "assistant", "content": null});
    if !reply.text.is_empty() {
        message["content"] = reply.text.as_str().into();
    }
    if let Some(thinking) = &reply.thinking {
        message["reasoning_content"] = thinking.as_str().into();
    }
    if reply.stop == Stop::Refusal {
        message["refusal"] = reply.text.as_str().into();
    }
    if let Some(call) = &reply.call {
        let function = json!({"name": call.name, "arguments": call.input.to_string()});
        message["tool_calls"] =
            json!([{"id": format!("call_{}", call.id), "type": "function", "function": function}]);
    }
    let base = json!({"id": format!("chatcmpl-{}", reply.id), "created": CREATED, "model": reply.model,
        "system_fingerprint": "fp_mock"});
    let usage = openai::usage(&reply.usage, "prompt", "completion");
    let with_usage = body["stream_options"]["include_usage"] == true;
    let events = events(&base, &message, finish, with_usage.then_some(&usage));
    let mut whole = base;
    whole["object"] = "chat.completion".into();
    whole["choices"] = json!([{"index": 0, "message": message, "logprobs": null, "finish_reason": finish}]);
    whole["usage"] = usage;
    EncodedReply { whole, events }
}

fn events(base: &Value, message: &Value, finish: &str, usage: Option<&Value>) -> Vec<Event> {
    let chunk = |choices: Value| {
        let mut chunk = base.clone();
        chunk["object"] = "chat.completion.chunk".into();
        chunk["choices"] = choices;
        chunk
    };
    let delta =
        |delta: Value| Event::plain(chunk(json!([{"index": 0, "delta": delta, "finish_reason": null}])));
    let in_pieces = |key: &str| -> Vec<Event> {
        let text = message[key].as_str().unwrap_or_default();
        pieces(text).into_iter().map(|piece| delta(json!({key: piece}))).collect()
    };
    let mut events = vec![delta(json!({"role": "assistant", "content": ""}))];
    events.extend(in_pieces("reasoning_content"));
    events.extend(in_pieces("content"));
    for call in list(&message["tool_calls"]) {
        let arguments = call["function"]["arguments"].as_str().unwrap_or_default();
        let mut head = call.clone();
        head["index"] = 0.into();
        head["function"]["arguments"] = "".into();
        events.push(delta(json!({"tool_calls": [head]})));
        events.extend(
            pieces(arguments)
                .into_iter()
                .map(|piece| delta(json!({"tool_calls": [{"index": 0, "function": {"arguments": piece}}]}))),
        );
    }
    events.push(Event::plain(chunk(json!([{"index": 0, "delta": {}, "finish_reason": finish}]))));
    if let Some(usage) = usage {
        let mut last = chunk(json!([]));
        last["usage"] = usage.clone();
        events.push(Event::plain(last));
    }
    events.push(Event::plain("[DONE]"));
    events
}
