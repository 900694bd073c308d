//! The result of a run, as the API and `belljar run --json` have it.

use belljar_api::RunResult;
use belljar_engine::Run;
use serde::Serialize;
use serde_json::Value;

/// The result of a run that is over.
pub fn run_result(run: Run) -> RunResult {
    let error_code = run.error().map(|error| error.as_str());
    let outcome = run.result.map(|result| (result.ended, [result.stdout, result.stderr]));
    RunResult {
        policy: run.policy,
        refused: run.refused.iter().map(value).collect(),
        llm: run.llm.as_ref().map(value),
        workspace: run.changes.and_then(|changes| changes.report()),
        ..RunResult::new(run.id, run.backend, run.time, outcome, error_code)
    }
}

fn value(data: &impl Serialize) -> Value {
    serde_json::to_value(data).unwrap_or_default()
}
