//! What a sandbox called, held against what LiteLLM billed.

use crate::config::{LlmFlags, Loaded};
use belljar_audit::{Reader, Stamp, find, verify};
use belljar_gateway::SecretStore;
use belljar_gateway::llm::spend::{Books, Comparison, Recorded, SpendError};
use belljar_spec::llm::Usd;
use belljar_spec::{SandboxError, SandboxId};
use serde_json::Value;
use std::path::Path;
use std::time::UNIX_EPOCH;

/// Compares the record of a sandbox in this directory with the books of the LiteLLM that the configuration names.
pub async fn spend(
    records: &Path,
    sandbox: Option<&str>,
    config: &Loaded,
    secrets: &dyn SecretStore,
) -> Result<(SandboxId, Comparison), SandboxError> {
    let Some(llm) = config.llm.route(&LlmFlags::default())? else {
        return Err(not_set("the configuration names no LiteLLM", "url"));
    };
    let Some(admin_key) = &llm.admin_key else {
        return Err(not_set("nothing opens LiteLLM's books", "admin_key"));
    };
    let log = find(records, sandbox)?;
    let report = verify(records, Some(log.sandbox), None, |_| {})?;
    if !report.is_fine() {
        let message = format!("the record of {} is not as it was written", log.sandbox);
        return Err(SandboxError::runtime("audit_changed", message)
            .hint(format!("`belljar audit verify {}` says more", log.sandbox)));
    }
    let mut events = Vec::new();
    let mut reader = Reader::open(&log.path)?;
    while let Some(record) = reader.next_record()? {
        events.push(record.event);
    }
    let Some(opened) = events.iter().find(|event| event["kind"] == "route_opened") else {
        let message = format!("the sandbox {} had no route to a model", log.sandbox);
        return Err(SandboxError::policy("no_route", message)
            .hint("name another sandbox; `belljar audit` lists them"));
    };
    let begun = log.created.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let day = |second: u64| Stamp::at(second).to_string().chars().take(10).collect::<String>();
    let books = Books {
        upstream: &llm.route.upstream,
        trust: &llm.route.trust,
        admin_key,
        end_user: opened["account"].as_str().unwrap_or_default(),
        // A day more at both ends: clocks differ, and so do ideas of when a day ends.
        from: day(begun.saturating_sub(DAY)),
        until: day(Stamp::now().second() + DAY),
    };
    let entries = books.read(log.sandbox, secrets).await.map_err(unread)?;
    Ok((log.sandbox, Comparison::of(events.iter().filter_map(recorded).collect(), entries)))
}

/// A call that was billed, if it was.
fn recorded(event: &Value) -> Option<Recorded> {
    if event["kind"] != "model_called" || event["cost_source"] == "free" {
        return None;
    }
    let number = |name: &str| event[name].as_u64().unwrap_or(0);
    let text = |name: &str| event[name].as_str().map(str::to_string);
    Some(Recorded {
        call: number("call"),
        ids: text("upstream_id").into_iter().chain(text("message_id")).collect(),
        model: text("model"),
        tokens: ["input_tokens", "output_tokens", "cache_read", "cache_write"].map(number).into_iter().sum(),
        estimated: event["estimated"] == true,
        cost_usd: event["cost_usd"].as_u64().map(Usd::micros),
    })
}

fn not_set(what: &str, key: &str) -> SandboxError {
    SandboxError::policy("llm_not_set", what).hint(format!("set `{key}` in `[llm]` of your belljar.toml"))
}

fn unread(error: SpendError) -> SandboxError {
    let hint = match error {
        SpendError::Key(_) => "see `admin_key` in `[llm]` of your belljar.toml",
        SpendError::Asked(_) => "see `url` in `[llm]` of your belljar.toml",
        SpendError::Status(_) => "LiteLLM needs a database for its books, and `admin_key` has to open them",
        SpendError::Answer(_) => "is it a LiteLLM?",
    };
    SandboxError::runtime("spend_unread", error.to_string()).hint(hint)
}

const DAY: u64 = 86_400;
