//! One call, one run.

use crate::{ApiError, StartCommand, text_and_base64};
use belljar_spec::{BackendName, Ended, OsText, SandboxError, SandboxId, SandboxRequest};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::Duration;
use utoipa::ToSchema;

/// A command for a sandbox of its own, which is gone with it. It has no id: the run's is made here.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RunOnce {
    /// Program and arguments, as they are: no shell reads them.
    pub argv: Vec<OsText>,
    /// Where it starts; relative to the workspace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    pub env: BTreeMap<String, OsText>,
    /// Its standard input, as text. Left out, it is empty.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stdin: Option<String>,
    /// The same in base64, for bytes that are not valid UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stdin_base64: Option<String>,
    /// How long it may run, within the sandbox's limit. Left out: that limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 31536000)]
    pub timeout_s: Option<u64>,
    /// How much of each output stream is kept, in bytes, within the sandbox's limit. Left out: 2 MiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(maximum = 4194304)]
    pub max_output: Option<u64>,
    /// A profile of `GET /v1/profiles`. Left out: the default one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
    /// The sandbox itself, where the profile leaves it open. Where neither says what may be reached, nothing is.
    pub sandbox: SandboxRequest,
}

impl RunOnce {
    /// Its command, as one of a sandbox that stays.
    pub fn command(&self) -> StartCommand {
        StartCommand {
            argv: self.argv.clone(),
            cwd: self.cwd.clone(),
            env: self.env.clone(),
            stdin: self.stdin.clone(),
            stdin_base64: self.stdin_base64.clone(),
            timeout_s: self.timeout_s,
            max_output: self.max_output,
            ..StartCommand::default()
        }
    }
}

/// How a run ended. The first six are the contract; the rest says more of the same.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RunResult {
    /// Made by the host. The audit log and the bill have the same.
    #[serde(rename = "runId")]
    pub run_id: String,
    /// It ended by itself with 0, ran into nothing, and all it wrote is here.
    pub ok: bool,
    /// Text with what is no UTF-8 replaced.
    pub stdout: String,
    pub stderr: String,
    /// The command's own; 128 and the signal; 124, 125, 126 and 127 as `belljar run` has them.
    #[serde(rename = "exitCode")]
    pub exit_code: i32,
    /// timeout, oom_killed, pids_exhausted, disk_full, output_truncated, not_started, aborted, refused, sandbox_failed or
    /// internal; null where the command ended by itself.
    #[serde(rename = "errorCode")]
    pub error_code: Option<String>,
    /// The signal that ended it: `SIGKILL`.
    pub signal: Option<String>,
    /// It wrote more than is kept, whatever else it ran into.
    pub output_truncated: bool,
    /// Why it never ran.
    pub not_started: Option<String>,
    /// What was refused, or went wrong with the sandbox.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<ApiError>,
    /// The backend that it had; null without a sandbox.
    pub backend: Option<String>,
    pub assurance: Option<String>,
    /// Of the command, without the start of its sandbox.
    pub duration_ms: u64,
    /// The digest of the policy that was in force at its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<String>,
    /// What it could not reach.
    #[schema(value_type = Vec<Object>)]
    pub refused: Vec<Value>,
    /// What it used of a model; money in millionths of a dollar.
    #[schema(value_type = Option<Object>)]
    pub llm: Option<Value>,
    /// The state of the workspace after the run, where it needs attention.
    #[schema(value_type = Option<Object>)]
    pub workspace: Option<Value>,
    /// The bytes, where the text is not the whole truth.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stdout_base64: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stderr_base64: Option<String>,
}

impl RunResult {
    /// The result of a run, without the account of what its sandbox was refused, used and changed. `error_code` as in the
    /// field of that name.
    pub fn new(
        run_id: SandboxId,
        backend: Option<BackendName>,
        time: Duration,
        outcome: Result<(Ended, [Vec<u8>; 2]), SandboxError>,
        error_code: Option<&str>,
    ) -> RunResult {
        let exit_code = match &outcome {
            Ok((ended, _)) => ended.exit_code(),
            Err(error) => error.code.exit_code(),
        };
        let (ended, output, error) = match outcome {
            Ok((ended, output)) => (ended, output, None),
            Err(error) => (Ended::default(), Default::default(), Some(ApiError::from(&error))),
        };
        let [(stdout, stdout_base64), (stderr, stderr_base64)] = output.map(text_and_base64);
        RunResult {
            run_id: run_id.to_string(),
            ok: exit_code == 0 && error_code.is_none(),
            stdout,
            stderr,
            exit_code: i32::from(exit_code),
            error_code: error_code.map(String::from),
            signal: ended.signal,
            output_truncated: ended.output_truncated,
            not_started: ended.not_started,
            error,
            backend: backend.map(|backend| backend.to_string()),
            assurance: backend.map(|backend| backend.assurance().to_string()),
            duration_ms: u64::try_from(time.as_millis()).unwrap_or(u64::MAX),
            policy: None,
            refused: Vec::new(),
            llm: None,
            workspace: None,
            stdout_base64,
            stderr_base64,
        }
    }
}
