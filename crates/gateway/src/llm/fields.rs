//! Which fields of a body are passed on. Of LiteLLM's callers a list of what is known: LiteLLM reads several hundred parameters beside
//! those of the APIs, by which a caller chooses the server, the key, the model, the price or who is told, and each release adds some.
//! What the list does not have is left out, as headers are, so that a new parameter of an agent does no harm and breaks nothing.
//! Providers themselves refuse what they do not know; there only what leads to other models is refused.

use belljar_spec::llm::UpstreamKind;

/// What becomes of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    Passes,
    /// Left out, without a word: clients mean nothing by it that is lost.
    Dropped,
    /// It would lead the call elsewhere, or past the count.
    Refused,
}

pub(super) fn fate(kind: UpstreamKind, name: &str) -> Fate {
    if name == "model" {
        return Fate::Passes;
    }
    // Some upstreams do not care for case.
    let lower = name.to_ascii_lowercase();
    if lower == "model" || OTHER_MODELS.contains(&lower.as_str()) {
        return Fate::Refused;
    }
    if kind != UpstreamKind::LiteLlm {
        return Fate::Passes;
    }
    let steers = STEERING.contains(&lower.as_str())
        || STEERING_PREFIXES.iter().any(|prefix| lower.starts_with(prefix))
        || STEERING_PARTS.iter().any(|part| lower.contains(part));
    match KNOWN.iter().any(|group| group.contains(&name)) {
        true => Fate::Passes,
        false if steers && !BILLING.contains(&lower.as_str()) => Fate::Refused,
        false => Fate::Dropped,
    }
}

/// Lists of models to fall back on, and what stands for models and their price elsewhere: in LiteLLM's words and OpenRouter's.
const OTHER_MODELS: [&str; 5] = ["models", "fallbacks", "route", "preset", "provider"];

/// Top-level names that LiteLLM reads for its books (docs.litellm.ai, "spend tracking" and "request headers"): ours to say.
const BILLING: [&str; 5] = ["user", "metadata", "litellm_metadata", "tags", "safety_identifier"];

/// Told, and not only left out, since a client that says these means to be led elsewhere.
const STEERING: [&str; 12] = [
    "api_base",
    "api_key",
    "api_version",
    "base_url",
    "custom_llm_provider",
    "deployment_id",
    "extra_body",
    "extra_headers",
    "model_info",
    "model_list",
    "prompt_id",
    "user_config",
];
/// Other providers' keys and servers, and services that are told what was said.
const STEERING_PREFIXES: [&str; 8] =
    ["aws_", "azure_", "langfuse_", "langsmith_", "litellm_", "mock_", "router_", "vertex_"];
/// Prices, other models and listeners have many names.
const STEERING_PARTS: [&str; 4] = ["_cost", "cost_per_", "callback", "fallback"];

/// The fields of the APIs, and of the models behind them that agents know.
const KNOWN: [&[&str]; 5] = [&CHAT, &RESPONSES, &ANTHROPIC, &GEMINI, &OPEN_MODELS];

/// OpenAI: chat completions and embeddings.
const CHAT: [&str; 38] = [
    "audio",
    "dimensions",
    "encoding_format",
    "frequency_penalty",
    "function_call",
    "functions",
    "input",
    "logit_bias",
    "logprobs",
    "max_completion_tokens",
    "max_tokens",
    "messages",
    "modalities",
    "n",
    "parallel_tool_calls",
    "prediction",
    "presence_penalty",
    "prompt_cache_key",
    "prompt_cache_retention",
    "reasoning_effort",
    "response_format",
    "seed",
    "service_tier",
    "stop",
    "store",
    "stream",
    "stream_options",
    "temperature",
    "tool_choice",
    "tools",
    "top_logprobs",
    "top_p",
    "verbosity",
    "web_search_options",
    "best_of",
    "echo",
    "suffix",
    "usage",
];
/// OpenAI: Responses.
const RESPONSES: [&str; 14] = [
    "background",
    "client_metadata",
    "context_management",
    "conversation",
    "include",
    "instructions",
    "max_output_tokens",
    "max_tool_calls",
    "previous_response_id",
    "prompt",
    "reasoning",
    "text",
    "truncation",
    "prompt_cache_options",
];
/// Anthropic: messages.
const ANTHROPIC: [&str; 14] = [
    "betas",
    "cache_control",
    "container",
    "diagnostics",
    "effort",
    "inference_geo",
    "mcp_servers",
    "output_config",
    "output_format",
    "speed",
    "stop_sequences",
    "system",
    "thinking",
    "top_k",
];
/// Google: generateContent and countTokens.
const GEMINI: [&str; 16] = [
    "cachedContent",
    "cached_content",
    "contents",
    "generateContentRequest",
    "generate_content_request",
    "generationConfig",
    "generation_config",
    "labels",
    "safetySettings",
    "safety_settings",
    "serviceTier",
    "store",
    "systemInstruction",
    "system_instruction",
    "toolConfig",
    "tool_config",
];
/// Ways of sampling and of thinking that servers of open models have.
const OPEN_MODELS: [&str; 22] = [
    "chat_template_args",
    "chat_template_kwargs",
    "enable_thinking",
    "frequency_penalty",
    "guided_json",
    "guided_regex",
    "ignore_eos",
    "include_reasoning",
    "length_penalty",
    "max_thinking_tokens",
    "min_p",
    "min_tokens",
    "mirostat",
    "reasoning_format",
    "reasoning_split",
    "repetition_penalty",
    "repeat_penalty",
    "thinking_budget",
    "tool_stream",
    "top_a",
    "typical_p",
    "use_beam_search",
];

#[cfg(test)]
mod tests {
    use super::*;
    use UpstreamKind::{Anthropic, LiteLlm, OpenAi};

    #[test]
    fn what_leads_to_other_models_is_refused_in_any_case() {
        for name in
            ["models", "Models", "FALLBACKS", "fallbacks", "route", "preset", "Provider", "MODEL", "Model"]
        {
            for kind in [LiteLlm, OpenAi, Anthropic] {
                assert_eq!(fate(kind, name), Fate::Refused, "{name}");
            }
        }
    }

    #[test]
    fn to_litellm_only_what_is_known_is_passed_on() {
        for name in [
            "api_base",
            "API_BASE",
            "litellm_params",
            "mock_response",
            "input_cost_per_token",
            "langfuse_host",
            "content_policy_fallbacks",
            "context_window_fallback_dict",
            "success_callback",
            "prompt_id",
            "cache_read_input_token_cost",
            "search_context_cost_per_query",
            "router_settings_override",
            "model_info",
        ] {
            assert_eq!(fate(LiteLlm, name), Fate::Refused, "{name}");
        }
        // What a release of next year may add, and what has another meaning than its letters.
        for name in [
            "user",
            "metadata",
            "tags",
            "litellm_metadata",
            "next_years_parameter",
            "organization",
            "cache",
            "num_retries",
            "guardrails",
            "Temperature",
            "no-log",
            "timeout",
            "headers",
            "s3_bucket",
        ] {
            assert_eq!(fate(LiteLlm, name), Fate::Dropped, "{name}");
            assert_eq!(fate(Anthropic, name), Fate::Passes, "{name}");
        }
    }

    /// What Claude Code, Codex, Gemini, opencode and pi send.
    #[test]
    fn what_agents_send_is_passed_on() {
        for name in [
            "model",
            "messages",
            "system",
            "tools",
            "tool_choice",
            "max_tokens",
            "thinking",
            "temperature",
            "stream",
            "context_management",
            "output_config",
            "instructions",
            "input",
            "parallel_tool_calls",
            "reasoning",
            "store",
            "include",
            "prompt_cache_key",
            "text",
            "service_tier",
            "client_metadata",
            "contents",
            "systemInstruction",
            "toolConfig",
            "generationConfig",
            "safetySettings",
            "stream_options",
            "max_completion_tokens",
            "reasoning_effort",
            "verbosity",
            "prompt_cache_retention",
            "previous_response_id",
            "top_p",
            "top_k",
            "usage",
            "cache_control",
            "speed",
        ] {
            assert_eq!(fate(LiteLlm, name), Fate::Passes, "{name}");
        }
    }
}
