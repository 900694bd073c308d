//! LiteLLM's books, compared with our record. LiteLLM is the truth of what was billed; the record is the truth of what a
//! sandbox called. A call that only one of them knows is one for the operator to look at.

use crate::outbound::Outbound;
use belljar_spec::SandboxId;
use belljar_spec::llm::{Upstream, Usd};
use belljar_spec::secret::SecretRef;
use belljar_vault::SecretStore;
use http_body_util::{BodyExt, Empty, Limited};
use hyper::Request;
use hyper::header::{AUTHORIZATION, HeaderValue};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::time::Duration;
use tokio::time::timeout;
use url::Url;

/// Whose books, and which part of them.
pub struct Books<'a> {
    pub upstream: &'a Upstream,
    /// Certificates in PEM, beside the system's.
    pub trust: &'a [u8],
    pub admin_key: &'a SecretRef,
    /// The account.
    pub end_user: &'a str,
    /// Days, as in `2026-11-15`; both are within.
    pub from: String,
    pub until: String,
}

/// A call as LiteLLM knows it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Entry {
    /// Its names: LiteLLM goes by the answer's own, or by its number of the call.
    pub ids: Vec<String>,
    pub model: Option<String>,
    pub tokens: u64,
    pub cost_usd: Usd,
}

/// Why the books could not be read.
#[derive(Debug, thiserror::Error)]
pub enum SpendError {
    #[error("the key for LiteLLM's books cannot be read: {0}")]
    Key(String),
    #[error("LiteLLM cannot be queried: {0}")]
    Call(String),
    #[error("LiteLLM does not show its books: it answers {0}")]
    Status(u16),
    #[error("LiteLLM's answer is not a list of calls: {0}")]
    Answer(String),
}

impl Books<'_> {
    /// The calls of one run.
    pub async fn read(&self, run: SandboxId, secrets: &dyn SecretStore) -> Result<Vec<Entry>, SpendError> {
        let body = timeout(BOOKS_TIMEOUT, self.ask(secrets)).await;
        let body = body.map_err(|_| SpendError::Call("it took too long".into()))??;
        entries(&body, self.end_user, &run.to_string())
    }

    async fn ask(&self, secrets: &dyn SecretStore) -> Result<Vec<u8>, SpendError> {
        let key = secrets.read(self.admin_key).map_err(|error| SpendError::Key(error.to_string()))?;
        let failed = |error: &dyn std::fmt::Display| SpendError::Call(error.to_string());
        let mut url = Url::parse(self.upstream.as_str()).map_err(|error| failed(&error))?;
        url.set_path(&format!("{}/spend/logs", self.upstream.path().trim_end_matches("/v1")));
        url.query_pairs_mut()
            .append_pair("end_user", self.end_user)
            .append_pair("start_date", &self.from)
            .append_pair("end_date", &self.until)
            .append_pair("summarize", "false");
        let mut value = HeaderValue::from_bytes(&[b"Bearer ", key.reveal()].concat())
            .map_err(|_| SpendError::Key("it cannot be in a header".into()))?;
        value.set_sensitive(true);
        let target = format!("{}?{}", url.path(), url.query().unwrap_or_default());
        let body = Empty::new().map_err(|never| match never {}).boxed();
        let request = Request::get(target).header(AUTHORIZATION, value).body(body);
        let outbound = Outbound::new(&url, self.trust).map_err(|error| failed(&error))?;
        let answer = outbound.send(request.map_err(|error| failed(&error))?).await;
        let response = answer.map_err(|error| failed(&error))?.response;
        if !response.status().is_success() {
            return Err(SpendError::Status(response.status().as_u16()));
        }
        let all = Limited::new(response.into_body(), MAX_BOOKS_BYTES).collect().await;
        Ok(all.map_err(|error| failed(&error))?.to_bytes().to_vec())
    }
}

/// A row of LiteLLM's table, as much as is needed.
#[derive(Deserialize, Default)]
#[serde(default)]
struct Row {
    request_id: Option<String>,
    litellm_call_id: Option<String>,
    end_user: Option<String>,
    model: Option<String>,
    spend: Option<f64>,
    total_tokens: Option<u64>,
    metadata: Value,
}

/// The rows of this run. What cost nothing and said nothing is a failure that was not billed.
fn entries(body: &[u8], end_user: &str, run: &str) -> Result<Vec<Entry>, SpendError> {
    #[derive(Deserialize)]
    struct Paged {
        data: Vec<Row>,
    }
    let rows = serde_json::from_slice::<Vec<Row>>(body)
        .or_else(|error| serde_json::from_slice::<Paged>(body).map(|paged| paged.data).map_err(|_| error))
        .map_err(|error| SpendError::Answer(error.to_string()))?;
    let of_run = |row: &Row| {
        let metadata = match &row.metadata {
            // Some versions keep it as text.
            Value::String(text) => serde_json::from_str(text).unwrap_or_default(),
            other => other.clone(),
        };
        let nested = metadata["spend_logs_metadata"]["run_id"].as_str().or(metadata["run_id"].as_str());
        nested == Some(run) && row.end_user.as_deref().is_none_or(|account| account == end_user)
    };
    let billed = |row: &Row| row.spend.unwrap_or(0.0) > 0.0 || row.total_tokens.unwrap_or(0) > 0;
    let entry = |row: Row| Entry {
        ids: row.request_id.into_iter().chain(row.litellm_call_id).collect(),
        model: row.model,
        tokens: row.total_tokens.unwrap_or(0),
        cost_usd: row.spend.and_then(Usd::from_dollars).unwrap_or_default(),
    };
    Ok(rows.into_iter().filter(|row| of_run(row) && billed(row)).map(entry).collect())
}

const BOOKS_TIMEOUT: Duration = Duration::from_secs(60);
const MAX_BOOKS_BYTES: usize = 256 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_rows_of_the_run_count() {
        let row = |id: &str, user: &str, metadata: &str, spend: &str| {
            format!(
                r#"{{"request_id":"{id}","end_user":"{user}","metadata":{metadata},"spend":{spend},"total_tokens":3}}"#
            )
        };
        let body = format!(
            "[{},{},{},{},{}]",
            row("a", "acc", r#"{"spend_logs_metadata":{"run_id":"r1"}}"#, "0.001"),
            row("b", "acc", r#""{\"run_id\":\"r1\"}""#, "0.002"),
            row("c", "acc", r#"{"run_id":"r2"}"#, "0.1"),
            row("d", "other", r#"{"run_id":"r1"}"#, "0.1"),
            r#"{"request_id":"e","metadata":{"run_id":"r1"},"spend":0.0}"#,
        );
        for body in [body.clone(), format!(r#"{{"data":{body}}}"#)] {
            let found = entries(body.as_bytes(), "acc", "r1").unwrap();
            let ids: Vec<&str> = found.iter().map(|entry| entry.ids[0].as_str()).collect();
            assert_eq!(ids, ["a", "b"]);
            assert_eq!(found[1].cost_usd, Usd::micros(2000));
        }
        assert!(entries(b"{\"error\":1}", "acc", "r1").is_err());
    }
}
