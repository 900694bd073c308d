//! An answer, before it is put in anybody's words.

use super::Usage;
use super::step::Stop;
use super::tools::Shape;
use serde_json::Value;

pub(super) struct Reply {
    /// The same for the same request.
    pub(super) id: String,
    pub(super) model: String,
    pub(super) thinking: Option<String>,
    pub(super) text: String,
    pub(super) call: Option<ToolCall>,
    pub(super) stop: Stop,
    pub(super) usage: Usage,
}

/// A call of a tool that the request offers.
pub(super) struct ToolCall {
    pub(super) id: String,
    pub(super) name: String,
    pub(super) input: Value,
    pub(super) shape: Shape,
    /// Of the tool, if it stands in one.
    pub(super) group: Option<String>,
    /// What the shell is to run; empty for other tools.
    pub(super) command: String,
}

/// An answer in one API's format, both ways.
pub(super) struct EncodedReply {
    pub(super) whole: Value,
    pub(super) events: Vec<Event>,
}

/// One event of a stream.
pub(super) struct Event {
    /// Some APIs name their events.
    pub(super) name: Option<&'static str>,
    pub(super) data: String,
}

impl Event {
    /// Named as its own `type`.
    pub(super) fn named(name: &'static str, data: Value) -> Event {
        Event { name: Some(name), data: data.to_string() }
    }

    pub(super) fn plain(data: impl ToString) -> Event {
        Event { name: None, data: data.to_string() }
    }

    /// As it goes over the line.
    pub(super) fn text(&self) -> String {
        match self.name {
            Some(name) => format!("event: {name}\ndata: {}\n\n", self.data),
            None => format!("data: {}\n\n", self.data),
        }
    }
}

/// A text in three pieces, or fewer where it is short.
pub(super) fn pieces(text: &str) -> Vec<String> {
    let letters: Vec<char> = text.chars().collect();
    let size = letters.len().div_ceil(3).max(1);
    letters.chunks(size).map(|piece| piece.iter().collect()).collect()
}
