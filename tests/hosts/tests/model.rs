//! The model itself: four ways of asking, one script, and figures that other tests rely on.

use belljar_tests_hosts::{Api, Delivery, Model, SCENARIOS, Step, Usage};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::time::Duration;

fn model() -> Model {
    Model::start(Ipv4Addr::LOCALHOST)
}

/// The head and the body of an answer, as they came.
fn post(model: &Model, path: &str, body: &Value) -> (String, String) {
    let body = body.to_string();
    let mut stream = TcpStream::connect(model.address()).expect("it listens");
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\nx-api-key: k\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(&[head.as_bytes(), body.as_bytes()].concat()).expect("it reads");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("it answers and ends");
    let answer = String::from_utf8_lossy(&answer).into_owned();
    let (head, body) = answer.split_once("\r\n\r\n").expect("an answer has a head");
    (head.into(), body.into())
}

/// The same, whole.
fn ask(model: &Model, path: &str, body: &Value) -> Value {
    let (_, body) = post(model, path, body);
    serde_json::from_str(&body).unwrap_or_else(|error| panic!("{error}: {body}"))
}

/// A question to each API: its path, with a prompt and a shell; and the same with one call behind it.
fn questions(prompt: &str) -> [(Api, &'static str, Value, Value); 4] {
    let schema =
        json!({"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]});
    let user = json!({"role": "user", "content": prompt});
    let call = json!({"type": "tool_use", "id": "1", "name": "bash", "input": {}});
    let chat_call = json!({"id": "1", "type": "function", "function": {"name": "bash", "arguments": "{}"}});
    let with =
        |key: &str, printed: Vec<Value>, tools: Value| json!({key: printed, "model": "m", "tools": tools});
    let anthropic = |printed| with("messages", printed, json!([{"name": "bash", "input_schema": schema}]));
    let chat = |printed| {
        with(
            "messages",
            printed,
            json!([{"type": "function", "function": {"name": "bash", "parameters": schema}}]),
        )
    };
    let responses = |printed| with("input", printed, json!([{"type": "custom", "name": "exec"}]));
    let declared = json!([{"functionDeclarations": [{"name": "bash", "parametersJsonSchema": schema}]}]);
    let gemini = |printed| with("contents", printed, declared.clone());
    let spoken = json!({"role": "user", "parts": [{"text": prompt}]});
    [
        (
            Api::Anthropic,
            "/v1/messages",
            anthropic(vec![user.clone()]),
            anthropic(vec![
                user.clone(),
                json!({"role": "assistant", "content": [call]}),
                json!({"role": "user", "content": [{"type": "tool_result", "tool_use_id": "1", "content": "ran"},
                {"type": "text", "text": "a note of the agent's"}]}),
            ]),
        ),
        (
            Api::Chat,
            "/v1/chat/completions",
            chat(vec![user.clone()]),
            chat(vec![
                user.clone(),
                json!({"role": "assistant", "content": null, "tool_calls": [chat_call]}),
                json!({"role": "tool", "tool_call_id": "1", "content": "ran"}),
            ]),
        ),
        (
            Api::Responses,
            "/v1/responses",
            responses(vec![user.clone()]),
            responses(vec![
                user,
                json!({"type": "custom_tool_call", "call_id": "1", "name": "exec", "input": ""}),
                json!({"type": "custom_tool_call_output", "call_id": "1", "output": "ran"}),
            ]),
        ),
        (
            Api::Gemini,
            "/v1beta/models/m:generateContent",
            gemini(vec![spoken.clone()]),
            gemini(vec![
                spoken,
                json!({"role": "model", "parts": [{"functionCall": {"name": "bash", "args": {}}}]}),
                json!({"role": "user", "parts": [{"functionResponse": {"name": "bash", "response": {"output": "ran"}}}]}),
            ]),
        ),
    ]
}

#[test]
fn the_standard_task_has_two_turns_in_every_api() {
    for (api, path, first, second) in questions("write it [[mock:text]] [[mock:hello]]") {
        let model = model();
        let (called, done) = (ask(&model, path, &first).to_string(), ask(&model, path, &second).to_string());
        assert!(called.contains("hello.txt && cat hello.txt"), "{called}");
        assert!(done.contains("Done. hello.txt says: hello from the mock"), "{done}");
        let [one, two] = model.calls().try_into().expect("two requests");
        assert_eq!((one.api, one.step, one.status, one.key.as_deref()), (api, 0, 200, Some("k")));
        assert_eq!((two.step, two.side, two.tool_results.len()), (1, false, 1));
        assert!(two.tool_results[0].contains("ran"));
        assert_eq!((one.model.as_deref(), one.key_source), (Some("m"), Some("x-api-key")));
        let sum = Usage { input: 201, cache_write: 2050, cache_read: 2000, output: 61, reasoning: 10 };
        assert_eq!(model.used(), sum);
    }
}

#[test]
fn the_same_request_gets_the_same_bytes() {
    for (_, path, first, _) in questions("[[mock:thinking]]") {
        let model = model();
        let mut streamed = first.clone();
        streamed["stream"] = true.into();
        for question in [first, streamed] {
            assert_eq!(post(&model, path, &question), post(&model, path, &question));
        }
    }
}

#[test]
fn a_request_beside_the_task_gets_an_answer_of_its_own() {
    for (_, path, mut question, _) in questions("[[mock:hello]]") {
        let model = model();
        question["tools"] = json!([]);
        assert!(ask(&model, path, &question).to_string().contains("Mock side answer"));
        assert!(model.calls()[0].side);
        assert_eq!((model.used().input, model.used().output), (7, 3));
    }
}

#[test]
fn without_the_key_there_is_nothing() {
    for (_, path, question, _) in questions("[[mock:hello]]") {
        let model = model();
        model.expect_key("another");
        assert!(ask(&model, path, &question)["error"].is_object());
        assert_eq!((model.calls()[0].status, model.calls()[0].usage), (401, None));
        model.expect_key("k");
        assert!(ask(&model, path, &question).get("error").is_none_or(Value::is_null));
    }
}

#[test]
fn what_fails_once_is_counted_by_tag() {
    let model = model();
    for tag in ["#a", "#b", ""] {
        for (_, path, question, _) in questions(&format!("[[mock:retry429{tag}]]")) {
            post(&model, path, &question);
        }
    }
    let statuses: Vec<u16> = model.calls().iter().map(|call| call.status).collect();
    assert_eq!(statuses, [429, 200, 200, 200].repeat(3));
}

#[test]
fn a_script_of_a_tests_own_is_played_to_its_end_and_then_again() {
    let model = model();
    model.script([Step::run("first").saying("now"), Step::say("last")]);
    for (_, path, first, second) in questions("go") {
        assert!(ask(&model, path, &first).to_string().contains("first"));
        assert!(ask(&model, path, &second).to_string().contains("last"));
    }
    assert!(model.calls().iter().all(|call| call.scenario.as_deref() == Some("script")));
}

#[test]
fn answers_arrive_in_bad_ways_too() {
    let [(_, path, mut question, _), ..] = questions("go");
    question["stream"] = true.into();
    let arrived = |delivery| {
        let model = model();
        model.script([Step::say("a few words").delivery(delivery)]);
        post(&model, path, &question)
    };
    let (head, plain) = arrived(Delivery::Plain);
    assert!(plain.contains("event: message_stop") && plain.ends_with("0\r\n\r\n"));
    let (same_head, dripped) = arrived(Delivery::Drip(Duration::from_micros(1)));
    assert_eq!(head, same_head);
    assert!(dripped.ends_with("0\r\n\r\n") && dripped.matches("\r\n1\r\n").count() > 500);
    let (_, cut) = arrived(Delivery::Cut);
    assert!(cut.contains("event: message_start") && !cut.contains("0\r\n\r\n"));
    let (head, garbage) = arrived(Delivery::Garbage);
    assert!(head.starts_with("HTTP/1.1 200") && head.contains("event-stream") && !garbage.contains("data:"));
}

#[test]
fn every_scenario_can_be_played() {
    for name in SCENARIOS {
        let model = model();
        model.scenario(name);
    }
}
