//! From a request to an answer. Nothing is sent here.

use super::call::{ModelCall, path};
use super::conversation::Situation;
use super::deliver::{Answer, Body};
use super::example::{example, required};
use super::reply::{Reply, ToolCall};
use super::step::{Call, Delivery, Failure, Step, Stop};
use super::tools::Tool;
use super::{Api, Settings, Usage, scenario};
use crate::{Request, Response};
use serde_json::{Value, json};

/// The test answers instead.
pub(super) fn instead(request: &Request, response: Response) -> (ModelCall, Answer) {
    let call = ModelCall { status: response.status, ..ModelCall::new(request, Api::of(request)) };
    (call, Answer::plain(Body::Whole(response)))
}

pub(super) fn decide(request: &Request, settings: &mut Settings) -> (ModelCall, Answer) {
    let api = Api::of(request);
    let mut call = ModelCall::new(request, api);
    let answer = answer(&mut call, settings);
    call.status = answer.status();
    (call, answer)
}

fn answer(call: &mut ModelCall, settings: &mut Settings) -> Answer {
    let (api, path) = (call.api, path(&call.request).to_string());
    let body: Value = match call.request.body.as_slice() {
        [] => json!({}),
        bytes => match serde_json::from_slice(bytes) {
            Ok(body) => body,
            Err(error) => return refuse(api, 400, &format!("mock: unreadable body: {error}")),
        },
    };
    call.model = body["model"].as_str().map(String::from);
    let upgrade = call.request.header("upgrade").unwrap_or_default();
    if api != Api::Other && settings.key.is_some() && call.key != settings.key {
        return refuse(api, 401, "mock: wrong key");
    }
    if upgrade.eq_ignore_ascii_case("websocket") {
        return refuse(api, 426, "mock: no websocket here");
    }
    if path.is_empty() && matches!(call.request.method.as_str(), "GET" | "HEAD") {
        return whole(200, &json!({"mock": "llm"}));
    }
    if path.ends_with("/models") && call.request.method == "GET" {
        return whole(200, &api.models());
    }
    if api == Api::Other || call.request.method != "POST" {
        return refuse(api, 404, &format!("mock: no such path: {path}"));
    }
    if path.ends_with("/count_tokens") || path.ends_with(":countTokens") {
        return whole(200, &json!({"input_tokens": 100, "totalTokens": 100}));
    }
    play(call, &path, &body, settings)
}

/// The step of the scenario that the conversation has come to.
fn play(call: &mut ModelCall, path: &str, body: &Value, settings: &mut Settings) -> Answer {
    let api = call.api;
    let (model, streams) = match api {
        Api::Gemini => {
            let model = path.rsplit('/').next().and_then(|last| last.split(':').next());
            (model, path.ends_with(":streamGenerateContent"))
        }
        _ => (body["model"].as_str(), body["stream"] == true),
    };
    let model = model.unwrap_or("mock-model").to_string();
    let situation = Situation::of(&api.turns(body));
    let (name, tag, steps) = match &situation.named {
        Some((name, tag)) => (name.clone(), tag.clone(), scenario::steps(name)),
        None => match &settings.default {
            Some((name, steps)) => (name.clone(), String::new(), Some(steps.clone())),
            None => ("hello".to_string(), String::new(), scenario::steps("hello")),
        },
    };
    let tools = api.tools(body);
    call.model = Some(model.clone());
    call.streams = streams;
    call.scenario = Some(name.clone());
    call.step = situation.step;
    call.tool_results = situation.results;
    call.tools = tools.iter().map(|tool| tool.name.clone()).collect();
    let Some(steps) = steps else { return refuse(api, 400, &format!("mock: no scenario {name}")) };
    let step = &steps[situation.step.min(steps.len() - 1)];

    // A request that offers no tool where one is needed, or wants a form filled in, is not about the task.
    let schema = required(api, body);
    call.side = tools.is_empty() && (step.call.is_some() || schema.is_some());
    if call.side {
        let text = schema.map_or("Mock side answer".into(), |schema| example(&schema, "value").to_string());
        let (id, usage) = (format!("mock_side_{}", situation.length), Usage::of_side());
        call.usage = Some(usage);
        let reply = Reply { id, model, thinking: None, text, call: None, stop: Stop::End, usage };
        return encoded(api, &reply, body, streams, &Step::default());
    }
    if let Some(failure) = &step.failure
        && is_due(failure, (name.clone(), tag, situation.step), settings)
    {
        return Answer { delay: step.delay, ..fail(api, failure) };
    }
    let id = format!("mock_{name}_{}_{}", situation.step, situation.length);
    let tool_call = match &step.call {
        Some(scripted) => match find(scripted, &tools, &id) {
            Some(tool_call) => Some(tool_call),
            None => {
                return refuse(api, 400, &format!("mock: no such tool among: {}", call.tools.join(", ")));
            }
        },
        None => None,
    };
    let usage = step.usage.unwrap_or_else(|| Usage::of_step(situation.step));
    // Bytes that mean nothing say nothing of usage either.
    call.usage = (step.delivery != Delivery::Garbage).then_some(usage);
    let (thinking, text) = (step.thinking.clone(), step.text.clone());
    let reply = Reply { id, model, thinking, text, call: tool_call, stop: step.stop, usage };
    encoded(api, &reply, body, streams, step)
}

fn is_due(failure: &Failure, of: (String, String, usize), settings: &mut Settings) -> bool {
    let Some(times) = failure.times else { return true };
    let failed = settings.failed.entry(of).or_default();
    *failed += 1;
    *failed <= times
}

/// A call of one of these tools.
fn find(call: &Call, tools: &[Tool], id: &str) -> Option<ToolCall> {
    let made = |tool: &Tool, input: Value, command: &str| ToolCall {
        id: id.into(),
        name: tool.name.clone(),
        input,
        shape: tool.shape,
        group: tool.group.clone(),
        command: command.into(),
    };
    match call {
        Call::Shell(command) => Tool::shell(tools).map(|tool| made(tool, tool.arguments(command), command)),
        // It may be one that no client offers: models do that too.
        Call::Named { name, input } => {
            let unknown = Tool::function(&json!(name), &json!({}));
            Some(made(Tool::named(tools, name).unwrap_or(&unknown), input.clone(), ""))
        }
    }
}

fn encoded(api: Api, reply: &Reply, body: &Value, streams: bool, step: &Step) -> Answer {
    let encoded = api.encode(reply, body);
    let id = api.id_header().map(|name| (name.to_string(), format!("req_{}", reply.id)));
    let body = match (streams, step.delivery) {
        (_, Delivery::Garbage) => Body::Garbage { streams },
        (true, _) => Body::Stream { headers: id.into_iter().collect(), events: encoded.events },
        (false, _) => {
            let mut response = json_response(200, &encoded.whole);
            response.headers.extend(id);
            Body::Whole(response)
        }
    };
    Answer { body, delivery: step.delivery, delay: step.delay }
}

fn fail(api: Api, failure: &Failure) -> Answer {
    let mut response = json_response(failure.status, &api.error(failure.status, &failure.message));
    if failure.status == 429 {
        response.headers.push(("retry-after".into(), "0".into()));
    }
    Answer::plain(Body::Whole(response))
}

fn refuse(api: Api, status: u16, message: &str) -> Answer {
    whole(status, &api.error(status, message))
}

fn whole(status: u16, body: &Value) -> Answer {
    Answer::plain(Body::Whole(json_response(status, body)))
}

fn json_response(status: u16, body: &Value) -> Response {
    let headers = vec![("content-type".to_string(), "application/json".to_string())];
    Response { status, headers, ..Response::ok(body.to_string()) }
}
