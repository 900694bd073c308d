//! The end of a run, for people: the answer to standard output, and the account to standard error. And the exit code.

use super::super::{changes, model, print, refused};
use super::attend::CANCELLED;
use super::sentence::{seconds, step_name, visible, whole};
use crate::failure::{self, FAILED, REFUSED, TIMED_OUT};
use crate::terms::for_command_line;
use belljar_agent::entry::Step;
use belljar_agent::run::RunResult;
use belljar_agent::stop::StopReason;
use belljar_overlay::quote;
use belljar_spec::{ErrorKind, SandboxError};
use belljar_sys::rustix::stdio::stdout;
use belljar_sys::rustix::termios::isatty;
use belljar_workspace::touched::{Compared, How, Touched};

/// The agent's words: at a terminal, what can be seen of them; to anything else, as they are.
pub(super) fn answer(result: &RunResult) -> Result<(), SandboxError> {
    if result.output.is_empty() {
        return Ok(());
    }
    let mut text = match isatty(stdout()) {
        true => whole(&result.output),
        false => result.output.clone(),
    };
    if !text.ends_with('\n') {
        text.push('\n');
    }
    print(text.as_bytes()).map(|_| ())
}

/// Why it is over, what it used, what it was refused, what it changed, and where to read on.
pub(super) fn say(result: &RunResult) {
    say_reason(result);
    if let Some(line) = result.llm.as_ref().and_then(model::line) {
        eprintln!("{line}");
    }
    if let Some(line) = refused::line(&result.run_id, &result.refused) {
        eprintln!("{line}");
    }
    if let Some(compared) = &result.touched {
        eprintln!("belljar: {}", touched(compared));
    }
    if let Some(changes) = &result.changes {
        changes::say_of(changes);
    }
    if result.kept_home.is_some() {
        eprintln!(
            "belljar: `belljar agent run {} --continue` goes on with this conversation",
            shown(&result.agent)
        );
    }
    match &result.not_kept {
        Some(why) => eprintln!("belljar: this account is not kept: {}", shown(why)),
        None => eprintln!("belljar: `belljar agent logs {}` shows all of it", result.run_id),
    }
}

fn say_reason(result: &RunResult) {
    let turns = model::counted(result.turns, "turn");
    let long = seconds(result.duration_ms);
    if result.success {
        eprintln!("belljar: {} is done: {turns}, {long}", shown(&result.agent));
        return;
    }
    let step = match result.step {
        None | Some(Step::Agent) => String::new(),
        Some(step) => format!("{}: ", step_name(step)),
    };
    let error = shown(result.error.as_deref().unwrap_or("it ended for an unknown reason"));
    eprintln!("belljar: {step}{error} ({})", result.stop_reason);
    if let Some(hint) = result.hint.clone().or_else(|| result.stop_reason.remedy()) {
        eprintln!("  hint: {}", shown(&for_command_line(&hint)));
    }
    let lines = visible(&result.stderr, usize::MAX);
    for line in lines.iter().skip(lines.len().saturating_sub(SHOWN)).filter(|line| !line.is_empty()) {
        eprintln!("  stderr: {line}");
    }
    if result.agent_duration_ms > 0 {
        eprintln!("belljar: {} ran for {long}: {turns}", shown(&result.agent));
    }
}

/// What was changed in the folder itself.
fn touched(compared: &Compared) -> String {
    let Compared::Touched(Touched { added, modified, deleted, paths, more }) = compared else {
        return "the folder has too many files to say what changed in it".into();
    };
    let all = added + modified + deleted;
    if all == 0 && !more {
        return "nothing changed in the folder".into();
    }
    let one = |how: How| match how {
        How::Added => "added",
        How::Modified => "modified",
        How::Deleted => "deleted",
    };
    let mut named: Vec<String> = paths
        .iter()
        .take(SHOWN)
        .map(|path| format!("{} ({})", quote::name(path.path.as_bytes()), one(path.how)))
        .collect();
    if all > named.len() as u64 {
        named.push(format!("and {} more", all - named.len() as u64));
    }
    if *more {
        named.push("more new files than are looked at".into());
    }
    format!("changed in the folder: {}", named.join(", "))
}

fn shown(text: &str) -> String {
    visible(text, 1).concat()
}

/// For scripts. What the agent itself exited with says nothing: it is in the result.
pub(super) fn exit_code(result: &RunResult) -> u8 {
    match result.stop_reason {
        StopReason::Success => 0,
        StopReason::ErrorTimeout => TIMED_OUT,
        StopReason::ErrorCancelled => CANCELLED,
        StopReason::ErrorStart | StopReason::ErrorPrice => REFUSED,
        StopReason::ErrorSandbox => result.kind.map_or(FAILED, ErrorKind::exit_code),
        StopReason::Unknown
        | StopReason::ErrorAgent
        | StopReason::ErrorTool
        | StopReason::ErrorTruncated
        | StopReason::ErrorLength
        | StopReason::ErrorRefusal
        | StopReason::ErrorAuth
        | StopReason::ErrorQuota
        | StopReason::ErrorModel
        | StopReason::ErrorNetwork
        | StopReason::ErrorBudget
        | StopReason::ErrorMemory
        | StopReason::ErrorDisk
        | StopReason::ErrorKilled
        | StopReason::ErrorExit => failure::UNSUCCESSFUL,
    }
}

/// More is in the log.
const SHOWN: usize = 5;
