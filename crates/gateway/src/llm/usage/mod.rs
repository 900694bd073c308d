//! What an answer says of itself: how many tokens, what it cost, what it is called. Read from the upstream's bytes as
//! they pass, whatever they are cut into; bytes that make no sense say nothing, and memory has a limit.

mod counts;
mod endings;
mod events;

use super::paths::Api;
use belljar_spec::llm::{AnswerEnd, Usd};
use counts::UsageMessage;
use events::Events;

/// What was said so far.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Usage {
    /// What was neither read from a cache nor written to one.
    pub input: u64,
    pub output: u64,
    pub cache_read: u64,
    pub cache_write: u64,
    /// What of `cache_write` was written for an hour.
    pub cache_write_1h: u64,
    /// Whether there was a count at all.
    pub counted: bool,
    /// Whether it is the last one.
    pub complete: bool,
    /// Whether the answer came to its end, in its provider's words; some servers do not count.
    pub ended: bool,
    pub cost: Option<Usd>,
    /// The answer's own name.
    pub id: Option<String>,
    /// Which model it came from, as the upstream says.
    pub model: Option<String>,
    /// How the model ended it.
    pub end: Option<AnswerEnd>,
}

/// Which shape a body has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// One JSON value.
    Json,
    /// Server-sent events, each with JSON in it.
    Events,
}

/// Reads an answer.
pub struct Reader {
    api: Dialect,
    body: Body,
    usage: Usage,
}

/// Whose counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    Anthropic,
    OpenAi,
    Gemini,
}

impl From<Api> for Dialect {
    fn from(api: Api) -> Dialect {
        match api {
            Api::Anthropic => Dialect::Anthropic,
            Api::Chat | Api::Responses | Api::Embeddings => Dialect::OpenAi,
            Api::Gemini => Dialect::Gemini,
        }
    }
}

enum Body {
    Json(Vec<u8>),
    Events(Events),
    /// More than is kept.
    TooMuch,
}

impl Reader {
    /// Of an answer in this dialect.
    pub fn new(api: Dialect, shape: Shape) -> Reader {
        let body = match shape {
            Shape::Json => Body::Json(Vec::new()),
            Shape::Events => Body::Events(Events::default()),
        };
        Reader { api, body, usage: Usage::default() }
    }

    /// The next bytes.
    pub fn feed(&mut self, bytes: &[u8]) {
        match &mut self.body {
            Body::Json(all) if all.len() + bytes.len() <= MAX_ANSWER_BYTES => all.extend_from_slice(bytes),
            Body::Json(_) => self.body = Body::TooMuch,
            Body::Events(events) => {
                let (api, usage) = (self.api, &mut self.usage);
                events.feed(bytes, |data| note(api, usage, data));
            }
            Body::TooMuch => {}
        }
    }

    /// What the answer said, when there is no more of it.
    pub fn finish(&mut self) -> Usage {
        match &self.body {
            Body::Json(all) => note_json(self.api, &mut self.usage, all),
            Body::Events(_) => {}
            // As far as the gateway can tell.
            Body::TooMuch => self.usage.ended = true,
        }
        self.usage.clone()
    }
}

/// One event. Most have nothing to say of what is counted, and are not read.
fn note(api: Dialect, usage: &mut Usage, data: &[u8]) {
    usage.ended |= is_last(api, data);
    let counts = find(data, b"\"usage");
    let is_needed = counts || usage.id.is_none() || find(data, b"message_stop") || ends(data);
    if is_needed && let Ok(message) = serde_json::from_slice::<UsageMessage>(data) {
        message.note(api, usage);
    }
}

/// Whether an event may say how the answer ended. Most events of a chat say that it has not.
fn ends(data: &[u8]) -> bool {
    let says = |name: &[u8], nothing: &[u8]| find(data, name) && !find(data, nothing);
    says(b"\"finish_reason\"", b"\"finish_reason\":null")
        || says(b"\"stop_reason\"", b"\"stop_reason\":null")
        || find(data, b"\"finishReason\"")
        || find(data, b"\"blockReason\"")
}

/// Whether an event says that there is no more of the answer. Quotes within a text would have a backslash before them.
fn is_last(api: Dialect, data: &[u8]) -> bool {
    match api {
        Dialect::Anthropic => find(data, b"\"message_stop\""),
        Dialect::OpenAi => {
            data == b"[DONE]"
                || find(data, b"\"response.completed\"")
                || find(data, b"\"response.incomplete\"")
        }
        Dialect::Gemini => find(data, b"\"finishReason\""),
    }
}

/// A whole answer. Google streams a list of them when it is not asked for events.
fn note_json(api: Dialect, usage: &mut Usage, all: &[u8]) {
    let is_list = all.trim_ascii_start().starts_with(b"[");
    if is_list && let Ok(list) = serde_json::from_slice::<Vec<UsageMessage>>(all) {
        list.iter().for_each(|message| message.note(api, usage));
        usage.ended = list.iter().any(|message| message.is_answer(api));
    } else if !is_list && let Ok(message) = serde_json::from_slice::<UsageMessage>(all) {
        message.note(api, usage);
        usage.ended = message.is_answer(api);
    }
    // There is no more to come.
    usage.complete = usage.counted;
}

fn find(bytes: &[u8], needle: &[u8]) -> bool {
    bytes.windows(needle.len()).any(|window| window == needle)
}

/// As much of an answer as is kept to be read at its end; a list of embeddings may be larger, and is estimated then.
const MAX_ANSWER_BYTES: usize = 16 << 20;

#[cfg(test)]
mod tests;
