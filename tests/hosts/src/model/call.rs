//! A request, and what the model made of it.

use super::{Api, Usage};
use crate::Request;
use serde_json::{Map, Value, json};

/// What was asked, and what came of it.
#[derive(Debug, Clone)]
pub struct ModelCall {
    pub request: Request,
    pub api: Api,
    /// The first credential that was found, without `Bearer`.
    pub key: Option<String>,
    /// Where it was: the name of a header, or `query`.
    pub key_source: Option<&'static str>,
    pub model: Option<String>,
    pub streams: bool,
    /// Nothing where no model was asked: a list of models, say.
    pub scenario: Option<String>,
    pub step: usize,
    /// It offers no tool, and the step needs one: the agent asks for a title, a summary or the like.
    pub side: bool,
    /// The names of the tools on offer.
    pub tools: Vec<String>,
    /// What tools gave since the last prompt.
    pub tool_results: Vec<String>,
    pub status: u16,
    /// Nothing where the answer says nothing of it.
    pub usage: Option<Usage>,
}

impl ModelCall {
    /// Before anything was made of it.
    pub(super) fn new(request: &Request, api: Api) -> ModelCall {
        let (key, key_source) = key(request);
        ModelCall {
            request: request.clone(),
            api,
            key,
            key_source,
            model: None,
            streams: false,
            scenario: None,
            step: 0,
            side: false,
            tools: Vec::new(),
            tool_results: Vec::new(),
            status: 0,
            usage: None,
        }
    }

    /// The path alone, without what stands behind it.
    pub fn path(&self) -> &str {
        path(&self.request)
    }

    /// For people and programs that look at the model from outside; the body is left out.
    pub fn to_json(&self) -> Value {
        let headers: Map<String, Value> =
            self.request.headers.iter().map(|(name, value)| (name.clone(), value.as_str().into())).collect();
        let usage = self.usage.map(|usage| {
            json!({"input": usage.input, "cache_write": usage.cache_write, "cache_read": usage.cache_read,
                "output": usage.output, "reasoning": usage.reasoning})
        });
        json!({
            "method": self.request.method, "path": self.path(), "api": self.api.as_str(), "headers": headers,
            "key": self.key, "key_source": self.key_source, "model": self.model, "stream": self.streams,
            "scenario": self.scenario, "step": self.step, "side": self.side, "tools": self.tools,
            "tool_results": self.tool_results, "status": self.status, "usage": usage,
        })
    }
}

pub(super) fn path(request: &Request) -> &str {
    let path = request.target.split('?').next().unwrap_or_default();
    path.strip_suffix('/').unwrap_or(path)
}

fn key(request: &Request) -> (Option<String>, Option<&'static str>) {
    for name in ["x-api-key", "x-goog-api-key", "api-key"] {
        if let Some(key) = request.header(name) {
            return (Some(key.into()), Some(name));
        }
    }
    if let Some(value) = request.header("authorization") {
        let key = value.split_once(' ').map_or(value, |(_, key)| key.trim());
        return (Some(key.into()), Some("authorization"));
    }
    let query = request.target.split_once('?').map_or("", |(_, query)| query);
    match query.split('&').find_map(|pair| pair.strip_prefix("key=")) {
        Some(key) => (Some(key.into()), Some("query")),
        None => (None, None),
    }
}
