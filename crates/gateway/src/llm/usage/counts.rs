//! Counts, in each provider's words. One shape holds all of them: what is missing is not there, and what has another
//! type than it should is passed over.

use super::endings::Ending;
use super::{Dialect, Usage};
use belljar_spec::llm::{AnswerEnd, Usd};
use serde_json::Value;

/// An answer, or an event of one.
#[derive(serde::Deserialize, Default)]
#[serde(default)]
pub(super) struct UsageMessage {
    #[serde(rename = "type")]
    kind: Value,
    id: Value,
    usage: Value,
    /// Of Anthropic's first event.
    message: Within,
    /// Of the events of OpenAI's Responses.
    response: Within,
    #[serde(rename = "usageMetadata")]
    usage_metadata: Value,
    #[serde(rename = "responseId")]
    response_id: Value,
    /// What an answer has in Anthropic's words, in those of OpenAI's chat, Responses and embeddings, and in Google's.
    content: Ending,
    choices: Ending,
    output: Ending,
    data: Ending,
    candidates: Ending,
    model: Value,
    #[serde(rename = "modelVersion")]
    model_version: Value,
    /// Of a whole answer of Anthropic's, and of the event that ends one.
    stop_reason: Value,
    delta: Ending,
    /// Of a question that Google does not answer at all.
    #[serde(rename = "promptFeedback")]
    prompt_feedback: Ending,
}

/// An answer within an event.
#[derive(serde::Deserialize, Default)]
#[serde(default)]
struct Within {
    id: Value,
    usage: Value,
    model: Value,
    output: Ending,
    /// Of OpenAI's Responses, where the answer was cut off.
    incomplete_details: Value,
}

impl UsageMessage {
    pub(super) fn note(&self, api: Dialect, usage: &mut Usage) {
        for model in [&self.message.model, &self.response.model, &self.model, &self.model_version] {
            if let (None, Some(model)) = (&usage.model, model.as_str().filter(|model| !model.is_empty())) {
                usage.model = Some(model.chars().take(MAX_ID_BYTES).collect());
            }
        }
        usage.end = self.end().or(usage.end);
        match api {
            Dialect::Anthropic => self.anthropic(usage),
            Dialect::OpenAi => self.openai(usage),
            Dialect::Gemini => self.gemini(usage),
        }
    }

    /// Whether it is an answer, as a whole.
    pub(super) fn is_answer(&self, api: Dialect) -> bool {
        match api {
            Dialect::Anthropic => self.content.is_there,
            Dialect::OpenAi => self.choices.is_there || self.output.is_there || self.data.is_there,
            Dialect::Gemini => self.candidates.is_there,
        }
    }

    /// How the model ended it, in the words of any of them. What is strictest counts, where there are several answers.
    fn end(&self) -> Option<AnswerEnd> {
        let cut = self.response.incomplete_details["reason"].as_str();
        let whole = [self.stop_reason.as_str(), cut].into_iter().flatten().map(Ending::of);
        let parts = [
            self.choices.end,
            self.output.end,
            self.candidates.end,
            self.delta.end,
            self.prompt_feedback.end,
            self.response.output.end,
        ];
        whole.chain(parts.into_iter().flatten()).max_by_key(|end| *end as u8)
    }

    /// `message_start` has what goes in, `message_delta` what comes out; a later count replaces an earlier one.
    fn anthropic(&self, usage: &mut Usage) {
        let kind = self.kind.as_str().unwrap_or_default();
        for (id, counts) in [(&self.message.id, &self.message.usage), (&self.id, &self.usage)] {
            name(usage, id);
            if counts.is_object() {
                replace(&mut usage.input, &counts["input_tokens"]);
                replace(&mut usage.output, &counts["output_tokens"]);
                replace(&mut usage.cache_read, &counts["cache_read_input_tokens"]);
                replace(&mut usage.cache_write, &counts["cache_creation_input_tokens"]);
                replace(&mut usage.cache_write_1h, &counts["cache_creation"]["ephemeral_1h_input_tokens"]);
                cost(usage, counts);
                usage.counted = true;
                usage.complete |= kind == "message_delta";
            }
        }
    }

    /// Everything that goes in is one number, with the cached part of it beside.
    fn openai(&self, usage: &mut Usage) {
        for (id, counts) in [(&self.response.id, &self.response.usage), (&self.id, &self.usage)] {
            name(usage, id);
            if !counts.is_object() {
                continue;
            }
            let either = |first: &str, second: &str| {
                number(&counts[first]).or_else(|| number(&counts[second])).unwrap_or(0)
            };
            let details = match &counts["prompt_tokens_details"] {
                Value::Null => &counts["input_tokens_details"],
                details => details,
            };
            let all = either("prompt_tokens", "input_tokens");
            usage.output = either("completion_tokens", "output_tokens");
            usage.cache_read = number(&details["cached_tokens"]).unwrap_or(0).min(all);
            usage.cache_write = number(&details["cache_write_tokens"])
                .or_else(|| number(&details["cache_creation_tokens"]))
                .unwrap_or(0)
                .min(all - usage.cache_read);
            usage.input = all - usage.cache_read - usage.cache_write;
            cost(usage, counts);
            (usage.counted, usage.complete) = (true, true);
        }
    }

    /// Each event repeats the count so far; thinking is counted apart from the answer.
    fn gemini(&self, usage: &mut Usage) {
        name(usage, &self.response_id);
        let counts = &self.usage_metadata;
        if counts.is_object() {
            let read = |key: &str| number(&counts[key]).unwrap_or(0);
            let all = read("promptTokenCount").saturating_add(read("toolUsePromptTokenCount"));
            usage.cache_read = read("cachedContentTokenCount").min(all);
            usage.input = all - usage.cache_read;
            usage.output = read("candidatesTokenCount").saturating_add(read("thoughtsTokenCount"));
            (usage.counted, usage.complete) = (true, true);
        }
    }
}

fn name(usage: &mut Usage, id: &Value) {
    if let (None, Some(id)) = (&usage.id, id.as_str()) {
        usage.id = Some(id.chars().take(MAX_ID_BYTES).collect());
    }
}

fn replace(count: &mut u64, value: &Value) {
    if let Some(value) = number(value) {
        *count = value;
    }
}

/// Whole and not absurd: a count near the end of the range would make every sum one.
fn number(value: &Value) -> Option<u64> {
    value.as_u64().filter(|number| *number <= MAX_TOKENS)
}

/// OpenRouter, and LiteLLM where it is set up to, say beside the counts what they cost.
fn cost(usage: &mut Usage, counts: &Value) {
    if let Some(cost) = counts["cost"].as_f64().and_then(Usd::from_dollars) {
        usage.cost = Some(cost);
    }
}

const MAX_ID_BYTES: usize = 200;
const MAX_TOKENS: u64 = 1 << 40;
