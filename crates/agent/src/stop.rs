//! Why a run is over: a closed list, for programs that decide what to do next.

use belljar_spec::{CommandLine, Hint, Term, hint};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Why a run is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// The agent ended with an answer.
    Success,
    /// It ended without an error and without an answer.
    Unknown,
    /// It says that something went wrong, and nothing below tells what.
    ErrorAgent,
    /// A tool went wrong, and the agent had nothing more to say.
    ErrorTool,
    /// It broke off: its last word was a call of a tool, or half a line.
    ErrorTruncated,
    /// The model was cut off at its longest answer.
    ErrorLength,
    /// The model declined.
    ErrorRefusal,
    /// The model's server does not take the key.
    ErrorAuth,
    /// The model's server has no more for us now: 429, or no credit.
    ErrorQuota,
    /// The model's server failed, broke off, or talked nonsense.
    ErrorModel,
    /// The model's server, or something else that the agent could not do without, was not reached.
    ErrorNetwork,
    /// What the run may use of its model is used up.
    ErrorBudget,
    /// The budget is in dollars, and the price of the model is not known.
    ErrorPrice,
    /// It ran longer than it may.
    ErrorTimeout,
    /// Memory ran out.
    ErrorMemory,
    /// Its private files are full.
    ErrorDisk,
    /// The user on the host stopped it: ctrl-C.
    ErrorCancelled,
    /// A signal ended it that we did not send.
    ErrorKilled,
    /// It ended with an exit code, and nothing else said why.
    ErrorExit,
    /// It could not be started: it is missing, or is no program.
    ErrorStart,
    /// There was no sandbox for it, or the sandbox broke.
    ErrorSandbox,
}

impl StopReason {
    /// Every one.
    pub const ALL: [StopReason; 21] = [
        StopReason::Success,
        StopReason::Unknown,
        StopReason::ErrorAgent,
        StopReason::ErrorTool,
        StopReason::ErrorTruncated,
        StopReason::ErrorLength,
        StopReason::ErrorRefusal,
        StopReason::ErrorAuth,
        StopReason::ErrorQuota,
        StopReason::ErrorModel,
        StopReason::ErrorNetwork,
        StopReason::ErrorBudget,
        StopReason::ErrorPrice,
        StopReason::ErrorTimeout,
        StopReason::ErrorMemory,
        StopReason::ErrorDisk,
        StopReason::ErrorCancelled,
        StopReason::ErrorKilled,
        StopReason::ErrorExit,
        StopReason::ErrorStart,
        StopReason::ErrorSandbox,
    ];

    /// As it stands in results.
    pub fn as_str(self) -> &'static str {
        match self {
            StopReason::Success => "success",
            StopReason::Unknown => "unknown",
            StopReason::ErrorAgent => "error_agent",
            StopReason::ErrorTool => "error_tool",
            StopReason::ErrorTruncated => "error_truncated",
            StopReason::ErrorLength => "error_length",
            StopReason::ErrorRefusal => "error_refusal",
            StopReason::ErrorAuth => "error_auth",
            StopReason::ErrorQuota => "error_quota",
            StopReason::ErrorModel => "error_model",
            StopReason::ErrorNetwork => "error_network",
            StopReason::ErrorBudget => "error_budget",
            StopReason::ErrorPrice => "error_price",
            StopReason::ErrorTimeout => "error_timeout",
            StopReason::ErrorMemory => "error_memory",
            StopReason::ErrorDisk => "error_disk",
            StopReason::ErrorCancelled => "error_cancelled",
            StopReason::ErrorKilled => "error_killed",
            StopReason::ErrorExit => "error_exit",
            StopReason::ErrorStart => "error_start",
            StopReason::ErrorSandbox => "error_sandbox",
        }
    }
}

impl StopReason {
    /// What a person can do about it, where that follows from the reason alone.
    pub fn remedy(self) -> Option<Hint> {
        Some(match self {
            StopReason::ErrorLength => "ask for less at once, or take a model with longer answers".into(),
            StopReason::ErrorAuth => {
                hint!(
                    "check the key: set it with {}, or use another {}",
                    CommandLine::SecretsSet,
                    Term::LlmKey
                )
            }
            StopReason::ErrorQuota => "wait, or take another key or model".into(),
            StopReason::ErrorModel => {
                hint!("try again; {} has what the model's server answered", CommandLine::AuditShow)
            }
            StopReason::ErrorNetwork => "look whether the model's server can be reached from here".into(),
            StopReason::ErrorBudget => hint!("allow more with {}", Term::Budget),
            StopReason::ErrorPrice => {
                hint!("set it in `[llm.price]` of your belljar.toml, or omit `usd` from {}", Term::Budget)
            }
            StopReason::ErrorTimeout => {
                hint!("allow more with {} or {}", Term::Budget.to("time=TIME"), Term::Timeout)
            }
            StopReason::ErrorMemory => hint!("allow more with {}", Term::Memory),
            StopReason::ErrorDisk => hint!("allow more with {}", Term::Disk),
            StopReason::Success
            | StopReason::Unknown
            | StopReason::ErrorAgent
            | StopReason::ErrorTool
            | StopReason::ErrorTruncated
            | StopReason::ErrorRefusal
            | StopReason::ErrorCancelled
            | StopReason::ErrorKilled
            | StopReason::ErrorExit
            | StopReason::ErrorStart
            | StopReason::ErrorSandbox => return None,
        })
    }
}

impl fmt::Display for StopReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}
