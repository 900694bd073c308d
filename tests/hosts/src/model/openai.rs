//! What OpenAI's two APIs have in common.

use super::Usage;
use super::tools::{Shape, Tool};
use serde_json::{Value, json};

/// A tool, which may be a `function` within one.
pub(super) fn tool(tool: &Value) -> Tool {
    let inner = if tool["function"].is_object() { &tool["function"] } else { tool };
    let name = if inner["name"].is_string() { &inner["name"] } else { &tool["type"] };
    let shape = match tool["type"].as_str() {
        Some("custom") => Shape::Custom,
        Some("local_shell") => Shape::LocalShell,
        _ => Shape::Function,
    };
    Tool { shape, ..Tool::function(name, &inner["parameters"]) }
}

/// Cached tokens are a part of those that went in, and thoughts a part of those that came out. The APIs differ in names.
pub(super) fn usage(usage: &Usage, input: &str, output: &str) -> Value {
    json!({
        format!("{input}_tokens"): usage.whole_input(),
        format!("{input}_tokens_details"):
            {"cached_tokens": usage.cache_read, "cache_write_tokens": usage.cache_write},
        format!("{output}_tokens"): usage.output,
        format!("{output}_tokens_details"): {"reasoning_tokens": usage.reasoning},
        "total_tokens": usage.whole_input() + usage.output,
    })
}

pub(super) fn error(status: u16, message: &str) -> Value {
    let (kind, code) = match status {
        401 => ("invalid_request_error", Some("invalid_api_key")),
        429 => ("rate_limit_exceeded", Some("rate_limit_exceeded")),
        500 => ("server_error", None),
        _ => ("invalid_request_error", None),
    };
    json!({"error": {"message": message, "type": kind, "param": null, "code": code}})
}
