//! The result of a run, in the API's words. The command line prints the same.

use belljar_api::{ApiError, RunResult};
use belljar_engine::{ExecResult, Run, RunError};
use data_encoding::BASE64;
use serde::Serialize;
use serde_json::Value;

/// A run that is over, as it is told.
pub fn told(run: Run) -> RunResult {
    let (ok, exit_code) = (run.is_ok(), i32::from(run.exit_code()));
    let error_code = run.error().map(|error: RunError| error.as_str().to_string());
    let (ended, error) = match run.result {
        Ok(ended) => (Some(ended), None),
        Err(error) => (None, Some(ApiError::from(&error))),
    };
    let (signal, output_truncated, not_started, stdout, stderr) = match ended {
        Some(ExecResult { signal, output_truncated, not_started, stdout, stderr, .. }) => {
            (signal, output_truncated, not_started, stdout, stderr)
        }
        None => (None, false, None, Vec::new(), Vec::new()),
    };
    let (stdout, stdout_base64) = text(stdout);
    let (stderr, stderr_base64) = text(stderr);
    RunResult {
        run_id: run.id.to_string(),
        ok,
        stdout,
        stderr,
        exit_code,
        error_code,
        signal,
        output_truncated,
        not_started,
        error,
        backend: run.backend.map(|backend| backend.to_string()),
        assurance: run.backend.map(|backend| backend.assurance().to_string()),
        duration_ms: u64::try_from(run.time.as_millis()).unwrap_or(u64::MAX),
        refused: run.refused.iter().map(value).collect(),
        llm: run.llm.as_ref().map(value),
        workspace: run.changes.and_then(|changes| changes.report()),
        stdout_base64,
        stderr_base64,
    }
}

/// Text, and the bytes where the text is not the whole truth.
fn text(bytes: Vec<u8>) -> (String, Option<String>) {
    match String::from_utf8(bytes) {
        Ok(text) => (text, None),
        Err(error) => {
            let bytes = error.as_bytes();
            (String::from_utf8_lossy(bytes).into_owned(), Some(BASE64.encode(bytes)))
        }
    }
}

fn value(data: &impl Serialize) -> Value {
    serde_json::to_value(data).unwrap_or_default()
}
