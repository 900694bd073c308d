//! What each recording claims, against what the model behind it really gave: its numbers differ in every place, so a count
//! that was taken from the wrong one shows. Codex and Gemini do not tell everything.

use super::{listen, parser, recording, recordings};
use belljar_agent::claims::{Claims, Ending};
use belljar_agent::entry::Tokens;
use belljar_agent::parse::Make;

/// Input without cache, output, read from the cache, written to it.
type Counts = [u64; 4];

const ONE: Counts = [100, 30, 0, 2000];
const TWO: Counts = [201, 61, 2000, 2050];
const THREE: Counts = [303, 93, 4050, 2100];
const NONE: Counts = [0; 4];

struct Case {
    folder: &'static str,
    scenario: &'static str,
    turns: Option<u64>,
    tokens: Option<Counts>,
    /// In millionths of a dollar.
    cost: Option<u64>,
    ending: Option<Ending>,
    error: Option<&'static str>,
}

#[rustfmt::skip]
const CASES: [Case; 48] = {
    use Ending::{Answered, Error, Length, Refusal};
    const fn case(
        folder: &'static str, scenario: &'static str, turns: Option<u64>, tokens: Option<Counts>, cost: Option<u64>,
        ending: Option<Ending>, error: Option<&'static str>,
    ) -> Case {
        Case { folder, scenario, turns, tokens, cost, ending, error }
    }
    // Claude continues by itself: three times after an answer that was cut off, once after a refusal.
    let (four, refused) = ([400, 120, 0, 8000], [200, 60, 0, 4000]);
    // Gemini knows of no writing to the cache.
    let (g1, g2, g3) = ([2100, 30, 0, 0], [2251, 61, 2000, 0], [2403, 93, 4050, 0]);
    [
        case("claude", "hello",    Some(2), Some(TWO),   Some(12_674), Some(Answered), None),
        case("claude", "three",    Some(3), Some(THREE), Some(14_382), Some(Answered), None),
        case("claude", "thinking", Some(2), Some(TWO),   Some(12_674), Some(Answered), None),
        case("claude", "toolfail", Some(2), Some(TWO),   Some(12_674), Some(Answered), None),
        case("claude", "length",   Some(4), Some(four),  Some(44_000), Some(Length), Some("API Error: Claude's response exceeded")),
        case("claude", "refusal",  Some(2), Some(refused), Some(22_000), Some(Refusal), Some("API Error: Opus 5.5's safeguards flagged")),
        case("claude", "retry429", Some(2), Some(TWO),   Some(12_674), Some(Answered), None),
        case("claude", "error400", Some(1), Some(NONE),  Some(0),      Some(Error), Some("API Error: 400 mock bad request")),

        case("codex", "hello",    None, Some(TWO),   None, Some(Answered), None),
        case("codex", "three",    None, Some(THREE), None, Some(Answered), None),
        case("codex", "thinking", None, Some(TWO),   None, Some(Answered), None),
        case("codex", "toolfail", None, Some(TWO),   None, Some(Answered), None),
        case("codex", "length",   None, None,        None, Some(Length), Some("Incomplete response returned, reason: max_output_tokens")),
        case("codex", "refusal",  None, Some(ONE),   None, None, None),
        case("codex", "retry429", None, Some(TWO),   None, Some(Answered), None),
        case("codex", "error400", None, None,        None, Some(Error), Some("mock bad request (invalid_request_error)")),

        case("opencode", "hello",    Some(2), Some(TWO),   Some(9_805),  Some(Answered), None),
        case("opencode", "three",    Some(3), Some(THREE), Some(11_394), Some(Answered), None),
        case("opencode", "thinking", Some(2), Some(TWO),   Some(9_805),  Some(Answered), None),
        case("opencode", "toolfail", Some(2), Some(TWO),   Some(9_805),  Some(Answered), None),
        case("opencode", "length",   Some(1), Some(ONE),   Some(8_250),  Some(Length), None),
        case("opencode", "refusal",  Some(1), Some(ONE),   Some(8_250),  Some(Refusal), Some("ContentFilterError: The response was blocked")),
        case("opencode", "retry429", Some(2), Some(TWO),   Some(9_805),  Some(Answered), None),
        case("opencode", "error400", None,    None,        None,         Some(Error), Some("APIError 400: mock bad request")),

        case("pi", "hello",    Some(2), Some(TWO),   Some(9_805),  Some(Answered), None),
        case("pi", "three",    Some(3), Some(THREE), Some(11_394), Some(Answered), None),
        case("pi", "thinking", Some(2), Some(TWO),   Some(9_805),  Some(Answered), None),
        case("pi", "toolfail", Some(2), Some(TWO),   Some(9_805),  Some(Answered), None),
        case("pi", "length",   Some(1), Some(ONE),   Some(8_250),  Some(Length), None),
        case("pi", "refusal",  Some(1), Some(ONE),   Some(8_250),  Some(Refusal), Some("The model refused to complete the request")),
        case("pi", "retry429", Some(2), Some(TWO),   Some(9_805),  Some(Answered), None),
        case("pi", "error400", None,    None,        None,         Some(Error), Some("400 mock bad request (invalid_request_error)")),

        case("pi.old", "hello",    Some(2), Some(TWO),   Some(9_805),  Some(Answered), None),
        case("pi.old", "three",    Some(3), Some(THREE), Some(11_394), Some(Answered), None),
        case("pi.old", "thinking", Some(2), Some(TWO),   Some(9_805),  Some(Answered), None),
        case("pi.old", "toolfail", Some(2), Some(TWO),   Some(9_805),  Some(Answered), None),
        case("pi.old", "length",   Some(1), Some(ONE),   Some(8_250),  Some(Length), None),
        // It does not know a refusal when it sees one.
        case("pi.old", "refusal",  Some(1), Some(ONE),   Some(8_250),  Some(Error), Some("An unknown error occurred")),
        case("pi.old", "retry429", Some(2), Some(TWO),   Some(9_805),  Some(Answered), None),
        case("pi.old", "error400", None,    None,        None,         Some(Error), Some("400 mock bad request (invalid_request_error)")),

        case("gemini", "hello",    None, Some(g2),   None, Some(Answered), None),
        case("gemini", "three",    None, Some(g3),   None, Some(Answered), None),
        case("gemini", "thinking", None, Some(g2),   None, Some(Answered), None),
        case("gemini", "toolfail", None, Some(g2),   None, Some(Answered), None),
        // Both look like an answer.
        case("gemini", "length",   None, Some(g1),   None, Some(Answered), None),
        case("gemini", "refusal",  None, Some(g1),   None, Some(Answered), None),
        case("gemini", "retry429", None, Some(g2),   None, Some(Answered), None),
        case("gemini", "error400", None, Some(NONE), None, Some(Error), Some("[API Error: mock bad request (INVALID_ARGUMENT)]")),
    ]
};

fn answer(folder: &str, scenario: &str) -> Option<&'static str> {
    match (folder, scenario) {
        (_, "hello") => Some("Done. hello.txt says: hello from the mock"),
        (_, "three") => Some("Both files are written."),
        (_, "thinking") => Some("Thought and done."),
        (_, "toolfail") => Some("The command failed with status 3."),
        (_, "length") => Some("This answer is cut off by the token limi"),
        ("codex", "refusal") => None,
        (_, "refusal") => Some("I can't help with that."),
        (_, "retry429") => Some("Done after a retry."),
        _ => None,
    }
}

fn model(folder: &str) -> Option<&'static str> {
    match folder {
        "claude" => Some("claude-opus-5-5"),
        "pi" | "pi.old" => Some("claude-sonnet-4-5"),
        "gemini" => Some("gemini-2.5-flash"),
        _ => None,
    }
}

#[test]
fn claims_are_what_the_agent_said() {
    for (folder, scenario, make, bytes) in recordings() {
        let case = CASES.iter().find(|case| (case.folder, case.scenario) == (folder, scenario)).unwrap();
        let claims = listen(make, &bytes, 1000).1;
        let at = format!("{folder}/{scenario}: {claims:?}");
        let tokens = |[input, output, cache_read, cache_write]: Counts| Tokens {
            input,
            output,
            cache_read,
            cache_write,
        };
        assert_eq!(claims.tokens, case.tokens.map(tokens), "{at}");
        assert_eq!(claims.turns, case.turns, "{at}");
        match (claims.cost_usd, case.cost) {
            (Some(cost), Some(expected)) => assert!((cost * 1e6 - expected as f64).abs() < 1.0, "{at}"),
            (cost, expected) => assert!(cost.is_none() && expected.is_none(), "{at}"),
        }
        assert_eq!(claims.ending, case.ending, "{at}");
        assert_eq!(claims.output.as_deref(), answer(folder, scenario), "{at}");
        let starts = |start: &str| claims.error.as_deref().is_some_and(|error| error.starts_with(start));
        assert!(case.error.map_or(claims.error.is_none(), starts), "{at}");
        assert_eq!(claims.model.as_deref(), model(folder), "{at}");
        assert!(claims.session_id.is_some() && !claims.tool_failed, "{at}");
    }
}

/// How it ended, after each line, where that changed.
fn endings(make: Make, bytes: &[u8]) -> Vec<Option<Ending>> {
    let ends = bytes.iter().enumerate().filter(|(_, byte)| **byte == b'\n').map(|(at, _)| at + 1);
    let mut endings: Vec<_> = ends.map(|end| listen(make, &bytes[..end], end).1.ending).collect();
    endings.dedup();
    endings
}

#[test]
fn a_stream_that_is_cut_claims_no_end_that_was_not_said() {
    use Ending::{Answered, Error, OnTool};
    for (folder, scenario, make, bytes) in recordings() {
        let expected = match (folder, scenario) {
            // It answers in one event.
            ("pi" | "pi.old", "hello" | "thinking" | "toolfail" | "three") => {
                vec![None, Some(OnTool), Some(Answered)]
            }
            (_, "hello" | "thinking" | "toolfail" | "three") => {
                vec![None, Some(OnTool), None, Some(Answered)]
            }
            ("pi", "retry429") => vec![None, Some(Error), Some(OnTool), Some(Answered)],
            _ => continue,
        };
        assert_eq!(endings(make, &bytes), expected, "{folder}/{scenario}");
    }
    // Within a line, what came before it counts.
    let bytes = recording("claude", "hello");
    for cut in (0..bytes.len()).step_by(131) {
        let ending = listen(parser("claude"), &bytes[..cut], 64).1.ending;
        assert!(matches!(ending, None | Some(OnTool)), "{cut}: {ending:?}");
    }
}

fn claims(agent: &str, lines: &[&str]) -> Claims {
    listen(parser(agent), lines.join("\n").as_bytes(), 100).1
}

#[test]
fn ends_that_were_not_recorded() {
    use Ending::{Aborted, Answered, Error, Length, OwnLimit, Refusal};
    let cases = [
        (
            "claude",
            r#"{"type":"result","subtype":"error_max_turns","is_error":true,"num_turns":4}"#,
            Some(OwnLimit),
        ),
        ("claude", r#"{"type":"result","subtype":"error_max_budget_usd","is_error":false}"#, Some(OwnLimit)),
        (
            "claude",
            r#"{"type":"result","subtype":"error_during_execution","terminal_reason":"aborted_tools","is_error":true}"#,
            Some(Aborted),
        ),
        ("claude", r#"{"type":"result","subtype":"success","is_error":true,"result":"no"}"#, Some(Error)),
        (
            "claude",
            r#"{"type":"result","subtype":"success","is_error":false,"result":"yes"}"#,
            Some(Answered),
        ),
        ("claude", r#"{"type":"result","subtype":"success","is_error":false,"result":""}"#, None),
        ("claude", r#"{"type":"result"}"#, Some(Error)),
        (
            "codex",
            r#"{"type":"turn.failed","error":{"message":"Incomplete response returned, reason: content_filter"}}"#,
            Some(Refusal),
        ),
        ("codex", r#"{"type":"turn.failed"}"#, Some(Error)),
        ("opencode", r#"{"type":"error","error":{"name":"MessageAbortedError","data":{}}}"#, Some(Aborted)),
        (
            "opencode",
            r#"{"type":"error","error":{"name":"MessageOutputLengthError","data":{}}}"#,
            Some(Length),
        ),
        ("opencode", r#"{"type":"step_finish","part":{"reason":"other"}}"#, None),
        (
            "pi",
            r#"{"type":"message_end","message":{"role":"assistant","stopReason":"aborted"}}"#,
            Some(Aborted),
        ),
        ("pi", r#"{"type":"agent_settled","aborted":true}"#, Some(Aborted)),
        (
            "gemini",
            r#"{"type":"result","status":"error","error":{"type":"FatalTurnLimitedError","message":"m"}}"#,
            Some(OwnLimit),
        ),
        ("gemini", r#"{"type":"error","severity":"error","message":"m"}"#, Some(Error)),
        ("gemini", r#"{"type":"error","severity":"warning","message":"m"}"#, None),
    ];
    for (agent, line, expected) in cases {
        assert_eq!(claims(agent, &[line]).ending, expected, "{agent}: {line}");
    }
}

#[test]
fn a_refusal_after_a_tool_is_no_answer() {
    let lines = [
        r#"{"type":"item.completed","item":{"id":"0","type":"agent_message","text":"I will look."}}"#,
        r#"{"type":"item.completed","item":{"id":"1","type":"command_execution","command":"ls","aggregated_output":"","exit_code":2}}"#,
        r#"{"type":"turn.completed","usage":{}}"#,
    ];
    let claims = claims("codex", &lines);
    assert_eq!((claims.ending, claims.output, claims.tool_failed), (None, None, true));
}

#[test]
fn a_program_gives_one_object() {
    let cases = [
        (
            r#"{"payloads":[{"text":"a"},{"text":"b"}],"meta":{"durationMs":5,"error":null}}"#,
            Some(Ending::Answered),
            Some("a\nb"),
            None,
        ),
        (
            "{\n \"payloads\": [\n  {\n   \"text\": \"a\"\n  },\n  {}\n ]\n}\n",
            Some(Ending::Answered),
            Some("a"),
            None,
        ),
        (r#"{"payloads":[],"meta":{}}"#, None, None, None),
        (
            r#"{"payloads":[{"text":"half"}],"meta":{"error":{"code":"llm_error","message":"no"}}}"#,
            Some(Ending::Error),
            Some("half"),
            Some("llm_error: no"),
        ),
        ("hello\n", Some(Ending::Error), None, Some("parse_error: what it wrote is not one JSON object")),
        ("{}\n{}\n", Some(Ending::Error), None, Some("parse_error: what it wrote is not one JSON object")),
        ("{}", Some(Ending::Error), None, Some("parse_error: the object has neither `payloads` nor `meta`")),
        ("", None, None, None),
    ];
    for (output, ending, answer, error) in cases {
        let claims = claims("program", &[output]);
        let claimed = (claims.ending, claims.output.as_deref(), claims.error.as_deref());
        assert_eq!(claimed, (ending, answer, error), "{output}");
    }
}
