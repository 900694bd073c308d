//! Google's generateContent.

use super::conversation::{Turn, list};
use super::reply::{EncodedReply, Event, Reply, pieces};
use super::step::Stop;
use super::tools::Tool;
use serde_json::{Value, json};

pub(super) fn turns(body: &Value) -> Vec<Turn> {
    let mut turns = Vec::new();
    for content in list(&body["contents"]) {
        for part in list(&content["parts"]) {
            if part.get("functionCall").is_some() {
                turns.push(Turn::Call);
            } else if let Some(result) = part.get("functionResponse") {
                turns.push(Turn::Result(result["response"].to_string()));
            } else if let Some(text) = part["text"].as_str() {
                let from_model = content["role"] == "model";
                turns.push(if from_model { Turn::Other } else { Turn::User(text.into()) });
            }
        }
    }
    turns
}

pub(super) fn tools(body: &Value) -> Vec<Tool> {
    let declared = list(&body["tools"]).iter().flat_map(|tool| list(&tool["functionDeclarations"]));
    let tool = |tool: &Value| {
        Tool::function(&tool["name"], tool.get("parametersJsonSchema").unwrap_or(&tool["parameters"]))
    };
    declared.map(tool).collect()
}

pub(super) fn encode(reply: &Reply) -> EncodedReply {
    let finish = match (&reply.call, reply.stop) {
        (Some(_), _) | (None, Stop::End) => "STOP",
        (None, Stop::Length) => "MAX_TOKENS",
        (None, Stop::Refusal) => "SAFETY",
    };
    // Thoughts are counted beside the answer, and nothing is said of what was written to a cache.
    let usage = json!({
        "promptTokenCount": reply.usage.whole_input(), "cachedContentTokenCount": reply.usage.cache_read,
        "candidatesTokenCount": reply.usage.output, "thoughtsTokenCount": reply.usage.reasoning,
        "totalTokenCount": reply.usage.whole_input() + reply.usage.output + reply.usage.reasoning,
    });
    let answer = |parts: Vec<Value>| {
        let content = json!({"role": "model", "parts": parts});
        json!({"candidates": [{"index": 0, "content": content}], "modelVersion": reply.model,
            "responseId": format!("g_{}", reply.id)})
    };
    let ended = |mut answer: Value| {
        answer["candidates"][0]["finishReason"] = finish.into();
        answer["usageMetadata"] = usage.clone();
        answer
    };
    let thought = |text: String| json!({"text": text, "thought": true});
    let text = |text: String| json!({"text": text});
    let call = reply.call.as_ref().map(|call| {
        json!({"functionCall": {"id": format!("fn_{}", call.id), "name": call.name, "args": call.input}})
    });

    let mut parts: Vec<Value> = reply.thinking.iter().cloned().map(thought).collect();
    parts.extend((!reply.text.is_empty()).then(|| text(reply.text.clone())));
    parts.extend(call.clone());

    let thoughts = reply.thinking.iter().flat_map(|thinking| pieces(thinking)).map(thought);
    let streamed = thoughts.chain(pieces(&reply.text).into_iter().map(text)).chain(call);
    let mut events: Vec<Event> = streamed.map(|part| Event::plain(answer(vec![part]))).collect();
    events.push(Event::plain(ended(answer(vec![text(String::new())]))));
    EncodedReply { whole: ended(answer(parts)), events }
}

pub(super) fn error(status: u16, message: &str) -> Value {
    let kind = match status {
        400 => "INVALID_ARGUMENT",
        401 => "UNAUTHENTICATED",
        403 => "PERMISSION_DENIED",
        404 => "NOT_FOUND",
        429 => "RESOURCE_EXHAUSTED",
        _ => "INTERNAL",
    };
    json!({"error": {"code": status, "message": message, "status": kind}})
}
