//! Commands in a sandbox.

use belljar_spec::{Ended, LimitHit, OsText};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// A command to run: `argv`, or `shell` for a line that a shell reads.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct StartCommand {
    /// Program and arguments.
    pub argv: Vec<OsText>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shell: Option<String>,
    /// Where it starts; relative to the workspace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    pub env: BTreeMap<String, OsText>,
    /// Its standard input, as text. Left out, it is empty unless `stdin_open`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stdin: Option<String>,
    /// The same in base64, for bytes that are not valid UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stdin_base64: Option<String>,
    /// More standard input comes later.
    pub stdin_open: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub terminal: Option<Terminal>,
    /// How long it may run. Left out: the sandbox's limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 31536000)]
    pub timeout_s: Option<u64>,
    /// How much of each output stream is kept, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_output: Option<u64>,
    /// Answer at once; the command runs in the background.
    pub background: bool,
    /// How long it runs while no client is attached; then it is ended. Omitted: to its own end.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 31536000)]
    pub alone_s: Option<u64>,
}

/// A terminal's size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Terminal {
    #[schema(minimum = 1)]
    pub rows: u16,
    #[schema(minimum = 1)]
    pub cols: u16,
}

/// A command that runs or ran.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CommandInfo {
    /// `cmd_1`, `cmd_2`: counted for each life of a sandbox.
    pub id: String,
    pub argv: Vec<String>,
    /// Its process id as the sandbox knows it, once it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    pub state: CommandState,
    pub terminal: bool,
    pub started_ms: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended_ms: Option<i64>,
    /// How it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result: Option<CommandResult>,
    /// How much output there is: the cursor behind the last event.
    pub cursor: u64,
}

/// Where a command is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum CommandState {
    Running,
    Ended,
}

/// How a command ended. Output is in it only where the request waited for the end.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct CommandResult {
    pub exit_code: Option<i32>,
    /// The signal that ended it: `SIGKILL`.
    pub signal: Option<String>,
    pub timed_out: bool,
    /// A client asked for its end.
    pub aborted: bool,
    pub output_truncated: bool,
    /// The limit that it ran into.
    pub limit: Option<String>,
    /// Why it never ran.
    pub not_started: Option<String>,
    /// What went wrong with it, where that was not the command itself: its folder is not there, its sandbox has gone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<crate::ApiError>,
    /// Text with what is no UTF-8 replaced.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stdout: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stderr: Option<String>,
    /// The bytes, where the text is not the whole truth.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stdout_base64: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stderr_base64: Option<String>,
}

impl From<Ended> for CommandResult {
    fn from(ended: Ended) -> CommandResult {
        let Ended { exit_code, signal, timed_out, aborted, output_truncated, limit, not_started } = ended;
        CommandResult {
            exit_code,
            signal,
            timed_out,
            aborted,
            output_truncated,
            limit: limit.map(|limit| limit.to_string()),
            not_started,
            ..CommandResult::default()
        }
    }
}

impl From<&CommandResult> for Ended {
    fn from(result: &CommandResult) -> Ended {
        Ended {
            exit_code: result.exit_code,
            signal: result.signal.clone(),
            timed_out: result.timed_out,
            aborted: result.aborted,
            output_truncated: result.output_truncated,
            limit: result.limit.as_deref().and_then(LimitHit::named),
            not_started: result.not_started.clone(),
        }
    }
}

/// One event of a command over SSE. The event's id is the cursor behind it: `Last-Event-ID` continues from there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum CommandEvent {
    /// It runs, or could not be started. The first event of a stream that began with its start.
    Started { command: CommandInfo },
    /// It wrote something.
    Output {
        stream: StreamName,
        /// Text, where all of it is UTF-8; a character is never cut.
        #[serde(skip_serializing_if = "Option::is_none")]
        text: Option<String>,
        #[serde(skip_serializing_if = "Option::is_none")]
        base64: Option<String>,
    },
    /// It ended. The last event.
    Ended { result: CommandResult },
}

/// Which of a command's streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum StreamName {
    Stdout,
    Stderr,
}

/// A signal for a command's process group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SendSignal {
    /// `SIGINT`, or a number.
    pub signal: String,
}

/// A terminal's new size.
pub type Resize = Terminal;

/// What a client says over the WebSocket of a command, as text. Binary messages are standard input.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Control {
    StdinEnd,
    Resize { rows: u16, cols: u16 },
    Signal { signal: String },
}

/// What a server says over the WebSocket of a command, as text. Binary messages are output: one byte for the stream (1 or 2), then
/// what was written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Attached {
    Started {
        command: CommandInfo,
    },
    /// Output before this cursor is no longer kept.
    Skipped {
        cursor: u64,
    },
    Ended {
        result: CommandResult,
    },
    /// A word that was not understood.
    Error {
        error: crate::ApiError,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_says_the_same_as_the_end_it_was_made_from() {
        let ended = Ended {
            exit_code: Some(3),
            signal: Some("SIGTERM".into()),
            timed_out: true,
            aborted: true,
            output_truncated: true,
            limit: None,
            not_started: Some("no such program".into()),
        };
        for limit in LimitHit::ALL.map(Some).into_iter().chain([None]) {
            let ended = Ended { limit, ..ended.clone() };
            assert_eq!(Ended::from(&CommandResult::from(ended.clone())), ended);
        }
    }
}
