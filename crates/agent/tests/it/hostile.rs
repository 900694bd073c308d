//! What no honest agent writes. Whatever it is: no parser fails, each line of the log is one, and claims are numbers.

use super::{listen, recordings};
use belljar_agent::entry::Line;
use belljar_agent::parse::{self, Make};
use belljar_agent::transcript::Transcript;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use serde_json::{Value, json};

/// The promise, for some bytes that come in pieces of a length.
fn is_survived(make: Make, bytes: &[u8], by: usize) {
    let (event, claims) = listen(make, bytes, by);
    assert_eq!(
        listen(make, bytes, bytes.len().max(1)),
        (event.clone(), claims.clone()),
        "pieces make a difference"
    );
    let mut transcript = Transcript::new();
    for event in &event {
        let entry = transcript.entry(event);
        let line = Line { entry, timestamp: "now".into(), session_id: "id".into() };
        let text = serde_json::to_string(&line).unwrap();
        assert!(!text.contains('\n'));
        serde_json::from_str::<Line>(&text).unwrap();
    }
    assert!(claims.cost_usd.is_none_or(f64::is_finite));
    assert!(claims.output.as_ref().is_none_or(|output| output.len() <= (1 << 20) + 100));
    serde_json::to_string(&claims).unwrap();
}

fn every_parser_survives(bytes: &[u8], by: usize) {
    parse::ALL.into_iter().for_each(|(_, make)| is_survived(make, bytes, by));
}

/// A recording and its parser.
fn recorded() -> impl Strategy<Value = (Make, Vec<u8>)> {
    let all: Vec<_> = recordings().map(|(_, _, make, bytes)| (make, bytes)).collect();
    select(all)
}

/// What is done to a recording.
#[derive(Debug, Clone)]
enum Change {
    Overwrite(Index, u8),
    Remove(Index, usize),
    Repeat(Index, usize),
    Insert(Index, String),
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        (any::<Index>(), any::<u8>()).prop_map(|(at, byte)| Change::Overwrite(at, byte)),
        (any::<Index>(), 1..200usize).prop_map(|(at, length)| Change::Remove(at, length)),
        (any::<Index>(), 1..200usize).prop_map(|(at, length)| Change::Repeat(at, length)),
        (any::<Index>(), select(&SNIPPETS)).prop_map(|(at, snippet)| Change::Insert(at, snippet.into())),
    ]
}

fn changed(mut bytes: Vec<u8>, changes: &[Change]) -> Vec<u8> {
    for change in changes {
        if bytes.is_empty() {
            break;
        }
        let part = |at: &Index, length: usize| {
            let start = at.index(bytes.len());
            start..(start + length).min(bytes.len())
        };
        match change {
            Change::Overwrite(at, byte) => {
                let at = at.index(bytes.len());
                bytes[at] = *byte;
            }
            Change::Remove(at, length) => drop(bytes.drain(part(at, *length))),
            Change::Repeat(at, length) => bytes.extend_from_within(part(at, *length)),
            Change::Insert(at, snippet) => {
                let at = at.index(bytes.len());
                drop(bytes.splice(at..at, snippet.bytes()));
            }
        }
    }
    bytes
}

const SNIPPETS: [&str; 14] = [
    "\n",
    "\r\n",
    "\0",
    "null",
    "-1",
    "1e308",
    "-1e308",
    "99999999999999999999999",
    "{}",
    "[[[[",
    "\"\\ud800\"",
    "\u{1b}[2J",
    "\"",
    "{\"type\":\"result\"}\n",
];

/// An event out of known words, with anything in it.
fn event() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        select(&VALUES).prop_map(Value::from),
        select(&NUMBERS).prop_map(|number: &str| serde_json::from_str(number).unwrap()),
        any::<bool>().prop_map(Value::from),
        ".{0,8}".prop_map(Value::from),
        Just(Value::Null),
    ];
    let tree = leaf.prop_recursive(4, 24, 6, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(Value::from),
            vec((select(&KEYS), inner), 0..5).prop_map(object),
        ]
    });
    (select(&VALUES), vec((select(&KEYS), tree), 0..6)).prop_map(|(kind, fields)| {
        let mut event = object(fields);
        event["type"] = kind.into();
        event
    })
}

fn object(fields: Vec<(&str, Value)>) -> Value {
    Value::Object(fields.into_iter().map(|(key, value)| (key.to_string(), value)).collect())
}

const NUMBERS: [&str; 8] =
    ["0", "1", "-1", "18446744073709551615", "18446744073709551616", "1e308", "-1e308", "0.5"];

const KEYS: [&str; 40] = [
    "aggregated_output",
    "arguments",
    "attempt",
    "cache",
    "callID",
    "content",
    "cost",
    "delta",
    "error",
    "exit_code",
    "id",
    "input",
    "is_api_error_message",
    "is_error",
    "item",
    "message",
    "meta",
    "metadata",
    "model",
    "num_turns",
    "output",
    "part",
    "payloads",
    "reason",
    "result",
    "role",
    "session_id",
    "state",
    "stats",
    "status",
    "stopReason",
    "subtype",
    "text",
    "tokens",
    "tool_use_id",
    "total",
    "total_cost_usd",
    "type",
    "usage",
    "input_tokens",
];

const VALUES: [&str; 32] = [
    "agent_message",
    "agent_settled",
    "aborted",
    "assistant",
    "auto_retry_start",
    "command_execution",
    "error",
    "init",
    "item.completed",
    "item.started",
    "length",
    "message",
    "message_end",
    "reasoning",
    "result",
    "session",
    "step_finish",
    "stop",
    "success",
    "system",
    "text",
    "thinking",
    "thread.started",
    "toolCall",
    "tool_execution_end",
    "tool_result",
    "tool_use",
    "toolUse",
    "turn.completed",
    "turn.failed",
    "user",
    "api_retry",
];

proptest! {
    #[test]
    fn any_bytes(bytes in vec(any::<u8>(), 0..2000), by in 1..50usize) {
        every_parser_survives(&bytes, by);
    }

    #[test]
    fn a_recording_that_was_changed((make, bytes) in recorded(), changes in vec(change(), 1..12), by in 1..5000usize) {
        is_survived(make, &changed(bytes, &changes), by);
    }

    #[test]
    fn a_recording_that_breaks_off((make, bytes) in recorded(), at in any::<Index>()) {
        is_survived(make, &bytes[..at.index(bytes.len())], 1000);
    }

    #[test]
    fn two_recordings_in_one((make, one) in recorded(), (other, two) in recorded(), picks in vec(any::<bool>(), 60)) {
        let (mut one, mut two) = (one.split_inclusive(|byte| *byte == b'\n'), two.split_inclusive(|byte| *byte == b'\n'));
        let lines = picks.into_iter().filter_map(|first| if first { one.next() } else { two.next() });
        let bytes: Vec<u8> = lines.flatten().copied().collect();
        is_survived(make, &bytes, 1000);
        is_survived(other, &bytes, 1000);
    }

    #[test]
    fn events_of_known_words_that_make_no_sense(events in vec(event(), 1..10)) {
        let lines: Vec<String> = events.iter().map(Value::to_string).collect();
        every_parser_survives(lines.join("\n").as_bytes(), 1000);
    }
}

#[test]
fn events_that_are_as_deep_as_they_may_be() {
    for depth in [60, 64, 65, 110, 120, 124, 125, 126, 127, 128, 10_000] {
        let deep = format!("{}1{}", "[".repeat(depth), "]".repeat(depth));
        let lines = [
            format!(r#"{{"type":"tool_use","tool_id":"a","tool_name":"n","parameters":{deep}}}"#),
            format!(
                r#"{{"type":"item.started","item":{{"id":"a","type":"mcp_tool_call","arguments":{deep}}}}}"#
            ),
            format!(
                r#"{{"type":"assistant","message":{{"content":[{{"type":"tool_use","id":"a","input":{deep}}}]}}}}"#
            ),
            format!(r#"{{"payloads":[{deep}],"meta":{{"error":{deep}}}}}"#),
        ];
        every_parser_survives(lines.join("\n").as_bytes(), 1000);
    }
}

#[test]
fn sums_of_numbers_that_are_too_large() {
    let usage = json!({"input": u64::MAX, "output": 1e300, "cacheRead": -5, "cacheWrite": "x", "cost": {"total": 1e9}});
    let message = json!({"role": "assistant", "stopReason": "stop", "usage": usage});
    let tokens = json!({"input": u64::MAX, "output": u64::MAX, "total": u64::MAX, "reasoning": u64::MAX});
    let result =
        json!({"input_tokens": 1, "cached_input_tokens": u64::MAX, "cache_write_input_tokens": u64::MAX});
    let events = [
        json!({"type": "message_end", "message": message}),
        json!({"type": "step_finish", "part": {"tokens": tokens, "cost": 1e308}}),
        json!({"type": "turn.completed", "usage": result}),
        json!({"type": "result", "stats": {"input_tokens": 1, "cached": 5}, "usage": result, "total_cost_usd": -1.0}),
    ];
    let lines: Vec<String> = events.iter().map(Value::to_string).collect();
    every_parser_survives(lines.join("\n").repeat(3).as_bytes(), 1000);
}
