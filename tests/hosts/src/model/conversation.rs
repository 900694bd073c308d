//! What was said before a request, whatever the API, and where in a scenario that is.

use serde_json::Value;

/// A part of a conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Turn {
    /// A person's word, or what an agent puts beside it.
    User(String),
    /// The model's, or the system's.
    Other,
    /// A tool was called.
    Call,
    /// A tool came back.
    Result(String),
}

/// Where the conversation stands.
pub(super) struct Situation {
    /// What the prompt names, with its tag.
    pub(super) named: Option<(String, String)>,
    /// How many tools were called since the last prompt.
    pub(super) step: usize,
    /// What they gave.
    pub(super) results: Vec<String>,
    /// How much was said, all in all.
    pub(super) length: usize,
}

impl Situation {
    pub(super) fn of(turns: &[Turn]) -> Situation {
        let since = &turns[last_prompt(turns)..];
        let results = since.iter().filter_map(|turn| match turn {
            Turn::Result(text) => Some(text.clone()),
            Turn::User(_) | Turn::Other | Turn::Call => None,
        });
        Situation {
            named: turns.iter().rev().find_map(|turn| match turn {
                Turn::User(text) => marker(text),
                Turn::Other | Turn::Call | Turn::Result(_) => None,
            }),
            step: since.iter().filter(|turn| **turn == Turn::Call).count(),
            results: results.collect(),
            length: turns.len(),
        }
    }
}

/// Where the last word of a person stands. Agents put notes of their own into a person's turn: marked ones, and whatever
/// comes right behind the result of a tool.
fn last_prompt(turns: &[Turn]) -> usize {
    let is_prompt = |at: &usize| match &turns[*at] {
        Turn::User(text) => {
            let is_note = NOTES.iter().any(|note| text.trim_start().starts_with(note));
            let follows_a_tool = *at > 0 && matches!(turns[*at - 1], Turn::Result(_));
            !is_note && !follows_a_tool
        }
        Turn::Other | Turn::Call | Turn::Result(_) => false,
    };
    (0..turns.len()).rev().find(is_prompt).unwrap_or(0)
}

/// The last `[[mock:NAME#TAG]]` of a text.
fn marker(text: &str) -> Option<(String, String)> {
    let is_word =
        |word: &str| !word.is_empty() && word.chars().all(|c| c.is_ascii_alphanumeric() || "_.-".contains(c));
    text.rmatch_indices("[[mock:").find_map(|(at, start)| {
        let (inner, _) = text[at + start.len()..].split_once("]]")?;
        match inner.split_once('#') {
            Some((name, tag)) if is_word(name) && is_word(tag) => Some((name.into(), tag.into())),
            None if is_word(inner) => Some((inner.into(), String::new())),
            _ => None,
        }
    })
}

/// The text of a message, which is a string or a list of parts in every API.
pub(super) fn text_of(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(parts) => {
            let texts = parts.iter().filter_map(|part| part.as_str().or(part["text"].as_str()));
            texts.collect::<Vec<_>>().join("\n")
        }
        _ => String::new(),
    }
}

/// The elements of a list; of anything else, none.
pub(super) fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

const NOTES: [&str; 2] = ["<system-reminder>", "<environment_context>"];
