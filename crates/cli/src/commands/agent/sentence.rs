//! Lines of a run's log as people read them: a word, a sentence, and lines that belong to it.
//!
//! Almost all of it is what an agent said, or a program that it ran: whatever a terminal would obey is shown instead, and
//! everything has an end.

use super::super::model::{counted, grouped};
use belljar_agent::entry::{
    Assistant, Block, Entry, Line, Step, StepState, Summary, System, ToolResult, UserContent,
};
use belljar_overlay::quote;
use serde_json::Value;

/// How much a person wants to see.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Detail {
    /// What happens, while it happens.
    Live,
    /// All that is worth reading afterwards.
    Log,
}

/// Something that a person is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Sentence {
    pub(super) tone: Tone,
    /// Ours, never the agent's: `step`, `tool`, `says`.
    pub(super) word: &'static str,
    /// In lines, each without anything that a terminal obeys.
    pub(super) lines: Vec<String>,
}

/// How it is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tone {
    Plain,
    /// Of less interest.
    Quiet,
    /// The agent or belljar acts.
    Act,
    /// Something went wrong.
    Trouble,
}

impl Tone {
    /// In its colour, if there are colours.
    pub(super) fn paint(self, text: &str, colours: bool) -> String {
        let colour = match self {
            Tone::Plain => return text.to_string(),
            Tone::Quiet => "\x1b[2m",
            Tone::Act => "\x1b[36m",
            Tone::Trouble => "\x1b[31m",
        };
        if colours { format!("{colour}{text}\x1b[0m") } else { text.to_string() }
    }
}

/// Whether the user at the terminal wants colours: https://no-color.org
pub(super) fn wants_colours() -> bool {
    std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// What there is to tell of a line; often nothing, while it happens.
pub(super) fn of(line: &Line, detail: Detail) -> Vec<Sentence> {
    match &line.entry {
        Entry::User { message } => match &message.content {
            UserContent::Prompt(prompt) if detail == Detail::Log => {
                vec![sentence(Tone::Plain, "prompt", prompt, detail)]
            }
            UserContent::Prompt(_) => Vec::new(),
            UserContent::Results(results) => {
                results.iter().filter_map(|result| given(result, detail)).collect()
            }
        },
        Entry::Assistant(message) => assistant(message, detail),
        Entry::System(system) => noticed(system, detail).into_iter().collect(),
        Entry::Result(summary) if detail == Detail::Log => vec![ended(summary)],
        Entry::Result(_) => Vec::new(),
    }
}

fn assistant(message: &Assistant, detail: Detail) -> Vec<Sentence> {
    let mut all = Vec::new();
    for block in message.message.iter().flat_map(|message| &message.content) {
        match block {
            Block::Text { text } if !text.trim().is_empty() => {
                all.push(sentence(Tone::Plain, "says", text, detail))
            }
            Block::Text { .. } => {}
            Block::Thinking { thinking } if detail == Detail::Log && !thinking.trim().is_empty() => {
                all.push(sentence(Tone::Quiet, "thinks", thinking, detail));
            }
            Block::Thinking { .. } => {}
            Block::ToolUse { name, input, .. } => all.push(tool(name, input, detail)),
        }
    }
    all.extend(message.error.as_ref().map(|error| sentence(Tone::Trouble, "error", error, detail)));
    all
}

/// `Bash: make test`.
fn tool(name: &str, input: &Value, detail: Detail) -> Sentence {
    let named_by =
        FIELDS.iter().find_map(|field| input[field].as_str().filter(|text| !text.trim().is_empty()));
    let argument = match (named_by, input) {
        (Some(text), _) => text.trim().to_string(),
        (None, Value::String(text)) => text.trim().to_string(),
        (None, Value::Null) => String::new(),
        (None, Value::Array(parts)) if parts.iter().all(Value::is_string) => {
            parts.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" ")
        }
        (None, other) => other.to_string(),
    };
    let name = cut(name, MAX_NAME_BYTES);
    sentence(
        Tone::Act,
        "tool",
        &if argument.is_empty() { name } else { format!("{name}: {argument}") },
        detail,
    )
}

/// What a tool gave back: while it happens, only what went wrong.
fn given(result: &ToolResult, detail: Detail) -> Option<Sentence> {
    match (detail, result.is_error) {
        (Detail::Live, false) => None,
        (_, true) => Some(sentence(Tone::Trouble, "failed", &result.content, detail)),
        (Detail::Log, false) => Some(sentence(Tone::Quiet, "gave", &result.content, detail)),
    }
}

fn noticed(system: &System, detail: Detail) -> Option<Sentence> {
    let is_log = detail == Detail::Log;
    match system {
        System::Init { agent, model, backend, cwd } => {
            let parts = [Some(agent), model.as_ref(), backend.as_ref()];
            let parts: Vec<&str> = parts.into_iter().flatten().map(String::as_str).collect();
            let text = format!("{}, in {cwd}", parts.join(", "));
            is_log.then(|| sentence(Tone::Quiet, "runs", &text, detail))
        }
        System::Step { step, state, duration_ms, error } => {
            let name = step_name(*step);
            match (state, error) {
                // Why is said at the end, with what to do.
                (StepState::Failed, _) if !is_log => {
                    Some(sentence(Tone::Trouble, "step", &format!("{name} failed"), detail))
                }
                (StepState::Failed, error) => {
                    let why = error.as_deref().unwrap_or("no reason is known");
                    Some(sentence(Tone::Trouble, "step", &format!("{name} failed: {why}"), detail))
                }
                // The agent's own takes long, and all that it does is told below it.
                (StepState::Started, _) if *step == Step::Agent => {
                    Some(sentence(Tone::Quiet, "step", name, detail))
                }
                (StepState::Done, _) if *step == Step::Agent && !is_log => None,
                (StepState::Started, _) => None,
                (StepState::Done, _) => {
                    let long = duration_ms.map(|ms| format!(", {}", seconds(ms))).unwrap_or_default();
                    Some(sentence(Tone::Quiet, "step", &format!("{name}{long}"), detail))
                }
            }
        }
        System::AgentSession { id, model } => {
            let parts: Vec<&str> = [id, model].into_iter().flatten().map(String::as_str).collect();
            (is_log && !parts.is_empty()).then(|| sentence(Tone::Quiet, "session", &parts.join(", "), detail))
        }
        System::Retry { attempt, error } => {
            let number = attempt.map(|attempt| format!("{attempt}: ")).unwrap_or_default();
            Some(sentence(Tone::Trouble, "again", &format!("{number}{error}"), detail))
        }
        // Events of an unknown kind are for those who look closely.
        System::Output { text } if text.starts_with('{') && !is_log => None,
        System::Output { text } => Some(sentence(Tone::Quiet, "prints", text, detail)),
        System::OrphanResult { content, .. } => {
            is_log.then(|| sentence(Tone::Quiet, "gave", &format!("(unprompted) {content}"), detail))
        }
        System::Dropped { bytes } => {
            let text = format!("{} bytes of a line that is too long", grouped(*bytes));
            Some(sentence(Tone::Trouble, "dropped", &text, detail))
        }
        System::Stderr { text } => is_log.then(|| sentence(Tone::Quiet, "stderr", text, detail)),
        System::Warning { text } => Some(sentence(Tone::Trouble, "warning", text, detail)),
    }
}

fn ended(summary: &Summary) -> Sentence {
    let tokens = summary.total_input_tokens
        + summary.total_output_tokens
        + summary.total_cache_read_input_tokens
        + summary.total_cache_creation_input_tokens;
    let mut parts = [
        summary.subtype.to_string(),
        counted(summary.num_turns, "turn"),
        counted(tokens, "token"),
        summary.total_cost_usd.map_or("cost not known".into(), |cost| format!("{cost} USD")),
        seconds(summary.duration_ms),
    ];
    if let Some(error) = &summary.error {
        parts[0] = format!("{}: {error}", parts[0]);
    }
    let tone = if summary.is_error { Tone::Trouble } else { Tone::Plain };
    sentence(tone, "ended", &parts.join(", "), Detail::Log)
}

/// `0.012 s`, `3.4 s`, `12 min 3 s`.
pub(super) fn seconds(ms: u64) -> String {
    match ms {
        0..1_000 => format!("{ms} ms"),
        1_000..60_000 => format!("{}.{} s", ms / 1000, ms % 1000 / 100),
        _ => format!("{} min {} s", ms / 60_000, ms % 60_000 / 1000),
    }
}

pub(super) fn step_name(step: Step) -> &'static str {
    match step {
        Step::Policy => "policy",
        Step::Workspace => "workspace",
        Step::Credentials => "credentials",
        Step::Sandbox => "sandbox",
        Step::Context => "context",
        Step::Agent => "agent",
        Step::Collect => "collect",
        Step::Teardown => "teardown",
    }
}

fn sentence(tone: Tone, word: &'static str, text: &str, detail: Detail) -> Sentence {
    let most = match (detail, word) {
        (Detail::Live, "tool" | "failed" | "prints" | "again") => 1,
        (Detail::Live, _) => 6,
        (Detail::Log, "says" | "prompt" | "ended") => usize::MAX,
        (Detail::Log, _) => 20,
    };
    Sentence { tone, word, lines: visible(text, most) }
}

/// Text in lines, and of each what can be seen of it. What is left out is said.
pub(super) fn visible(text: &str, most: usize) -> Vec<String> {
    let text = text.trim_end();
    let mut all = text.lines();
    let mut lines: Vec<String> =
        all.by_ref().take(most).map(|line| cut(&quote::visible(line.as_bytes()), MAX_LINE_BYTES)).collect();
    let rest = all.count();
    match lines.last_mut() {
        Some(only) if rest > 0 && most == 1 => only.push_str(" …"),
        Some(_) if rest > 0 => lines.push(format!("… {} more lines", grouped(rest as u64))),
        Some(_) => {}
        None => lines.push(String::new()),
    }
    lines
}

/// All of a text, and of each line what can be seen of it: an answer that the user waited for is not shortened.
pub(super) fn whole(text: &str) -> String {
    text.trim_end().lines().map(|line| quote::visible(line.as_bytes())).collect::<Vec<_>>().join("\n")
}

/// At most so many letters, the last one a sign that there were more.
pub(super) fn cut(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some(_) => text.chars().take(most.saturating_sub(1)).chain(['…']).collect(),
        None => text.to_string(),
    }
}

/// What tells most of what a tool was asked, in the words of the usual agents.
const FIELDS: [&str; 14] = [
    "command",
    "cmd",
    "file_path",
    "filePath",
    "path",
    "absolute_path",
    "dir_path",
    "pattern",
    "query",
    "url",
    "prompt",
    "script",
    "input",
    "description",
];
const MAX_NAME_BYTES: usize = 60;
/// A line of a file that was made to be read; behind that come pictures and minified code.
const MAX_LINE_BYTES: usize = 1000;

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn line(value: Value) -> Line {
        let mut value = value;
        value["timestamp"] = "2026-11-15T06:00:00.000000Z".into();
        value["sessionId"] = "0101010101010101".into();
        serde_json::from_value(value).expect("a line")
    }

    fn live(value: Value) -> Vec<String> {
        let all = of(&line(value), Detail::Live);
        all.into_iter().map(|entry| format!("{}|{}", entry.word, entry.lines.join("|"))).collect()
    }

    fn says(content: Value) -> Value {
        json!({"type": "assistant", "message": {"role": "assistant", "content": content}})
    }

    #[test]
    fn a_tool_is_told_by_what_it_was_asked() {
        for (input, expected) in [
            (json!({"command": "make test"}), "tool|Bash: make test"),
            (json!({"file_path": "a.rs", "content": "x"}), "tool|Bash: a.rs"),
            (json!({"command": "cat <<E\none\nE"}), "tool|Bash: cat <<E …"),
            (json!("plain"), "tool|Bash: plain"),
            (json!({"cmd": ["a"], "n": 3}), "tool|Bash: {\"cmd\":[\"a\"],\"n\":3}"),
            (json!(null), "tool|Bash"),
            (json!({"command": "\u{1b}]0;x\u{7}\u{202e}"}), "tool|Bash: ^[]0;x^G<U+202E>"),
        ] {
            let shown = live(says(json!([{"type": "tool_use", "id": "1", "name": "Bash", "input": input}])));
            assert_eq!(shown, [expected]);
        }
    }

    #[test]
    fn nothing_that_an_agent_says_moves_a_cursor() {
        let evil = "one\r\x1b[2Jtwo\n\u{9b}31mthree\u{feff}";
        for value in [
            says(json!([{"type": "text", "text": evil}])),
            says(json!([{"type": "tool_use", "id": evil, "name": evil, "input": {evil: evil}}])),
            json!({"type": "assistant", "isApiErrorMessage": true, "error": evil}),
            json!({"type": "user", "message": {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "1", "content": evil, "is_error": true}]}}),
            json!({"type": "user", "message": {"role": "user", "content": evil}}),
            json!({"type": "system", "subtype": "output", "text": evil}),
            json!({"type": "system", "subtype": "stderr", "text": evil}),
            json!({"type": "system", "subtype": "retry", "attempt": 1, "error": evil}),
            json!({"type": "system", "subtype": "orphan_result", "tool_use_id": evil, "content": evil}),
            json!({"type": "system", "subtype": "agent_session", "id": evil, "model": evil}),
            json!({"type": "system", "subtype": "init", "agent": evil, "model": evil, "cwd": evil}),
            json!({"type": "system", "subtype": "step", "step": "agent", "state": "failed", "error": evil}),
        ] {
            for detail in [Detail::Live, Detail::Log] {
                for entry in of(&line(value.clone()), detail) {
                    for line in entry.lines {
                        assert!(
                            !line.chars().any(|letter| letter != '\t' && quote::is_control(letter)),
                            "{line:?}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn what_is_long_has_an_end_and_says_so() {
        let long = (0..100).map(|number| format!("{number}\n")).collect::<String>();
        let shown = live(says(json!([{"type": "text", "text": long}])));
        assert_eq!(shown, ["says|0|1|2|3|4|5|… 94 more lines"]);
        let wide = live(json!({"type": "system", "subtype": "output", "text": "x".repeat(1 << 20)}));
        assert_eq!(wide[0].chars().count(), "prints|".len() + MAX_LINE_BYTES);
        assert!(live(says(json!([{"type": "text", "text": " \n"}]))).is_empty());
    }

    #[test]
    fn an_answer_is_whole() {
        let long = "x".repeat(MAX_LINE_BYTES * 3);
        assert_eq!(whole(&format!("{long}\x1b\n\n{long}\n")), format!("{long}^[\n\n{long}"));
    }

    #[test]
    fn times_are_as_people_say_them() {
        let all = [7, 999, 1_000, 3_456, 59_999, 60_000, 723_000].map(seconds);
        assert_eq!(all, ["7 ms", "999 ms", "1.0 s", "3.4 s", "59.9 s", "1 min 0 s", "12 min 3 s"]);
    }
}
