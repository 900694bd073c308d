//! The four ways of speaking to a model. Each has a file with the same functions: what was said before (`turns`), which
//! tools there are (`tools`), what the answer looks like (`encode`), what an error looks like (`error`).

use super::call::path;
use super::conversation::Turn;
use super::reply::{EncodedReply, Reply};
use super::tools::Tool;
use super::{anthropic, chat, gemini, openai, responses};
use crate::Request;
use serde_json::{Value, json};

/// In whose words a request is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Api {
    /// Anthropic's Messages.
    Anthropic,
    /// OpenAI's Chat Completions.
    Chat,
    /// OpenAI's Responses.
    Responses,
    /// Google's generateContent.
    Gemini,
    /// In no known API.
    Other,
}

impl Api {
    /// By the end of the path, so that any prefix can be a base URL.
    pub(super) fn of(request: &Request) -> Api {
        let path = path(request);
        let ends = |end: &str| path.ends_with(end);
        match path.rsplit_once(':') {
            Some((_, "generateContent" | "streamGenerateContent" | "countTokens")) => Api::Gemini,
            _ if ends("/messages") || ends("/messages/count_tokens") => Api::Anthropic,
            _ if ends("/chat/completions") => Api::Chat,
            _ if ends("/responses") => Api::Responses,
            _ if ends("/models") && request.header("anthropic-version").is_some() => Api::Anthropic,
            _ if ends("/models") && request.header("x-goog-api-key").is_some() => Api::Gemini,
            _ if ends("/models") => Api::Chat,
            _ => Api::Other,
        }
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Api::Anthropic => "anthropic",
            Api::Chat => "chat",
            Api::Responses => "responses",
            Api::Gemini => "gemini",
            Api::Other => "other",
        }
    }

    pub(super) fn turns(self, body: &Value) -> Vec<Turn> {
        match self {
            Api::Anthropic => anthropic::turns(body),
            Api::Chat => chat::turns(body),
            Api::Responses => responses::turns(body),
            Api::Gemini => gemini::turns(body),
            Api::Other => Vec::new(),
        }
    }

    pub(super) fn tools(self, body: &Value) -> Vec<Tool> {
        match self {
            Api::Anthropic => anthropic::tools(body),
            Api::Chat => chat::tools(body),
            Api::Responses => responses::tools(body),
            Api::Gemini => gemini::tools(body),
            Api::Other => Vec::new(),
        }
    }

    pub(super) fn encode(self, reply: &Reply, body: &Value) -> EncodedReply {
        match self {
            Api::Anthropic => anthropic::encode(reply),
            Api::Chat => chat::encode(reply, body),
            Api::Responses => responses::encode(reply),
            Api::Gemini | Api::Other => gemini::encode(reply),
        }
    }

    pub(super) fn error(self, status: u16, message: &str) -> Value {
        match self {
            Api::Anthropic => anthropic::error(status, message),
            Api::Gemini => gemini::error(status, message),
            Api::Chat | Api::Responses | Api::Other => openai::error(status, message),
        }
    }

    /// What an answer is known by, beside what is in it.
    pub(super) fn id_header(self) -> Option<&'static str> {
        match self {
            Api::Anthropic => Some("request-id"),
            Api::Chat | Api::Responses => Some("x-request-id"),
            Api::Gemini | Api::Other => None,
        }
    }

    /// The one model that there is, as a list.
    pub(super) fn models(self) -> Value {
        match self {
            Api::Gemini => json!({"models": [{"name": "models/mock-model", "displayName": "mock-model"}]}),
            _ => {
                json!({"object": "list", "has_more": false, "first_id": "mock-model", "last_id": "mock-model",
                "data": [{"id": "mock-model", "object": "model", "type": "model", "display_name": "mock-model",
                    "created": CREATED, "created_at": "2023-11-14T22:13:20Z", "owned_by": "mock"}]})
            }
        }
    }
}

/// When everything is said to have happened.
pub(super) const CREATED: u64 = 1_700_000_000;
