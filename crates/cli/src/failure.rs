//! What a person sees when something is wrong: what happened, and what to do next.

use crate::terms::for_command_line;
use belljar_api::ApiError;
use belljar_api::client::ClientError;
use belljar_config::{Note, SECRET_VISIBLE};
use belljar_overlay::quote::visible;
pub(crate) use belljar_spec::exit_code::{FAILED, REFUSED, TIMED_OUT};
use belljar_spec::{ErrorCode, Hint, SandboxError};
use belljar_sys::rustix::stdio::stderr;
use belljar_sys::rustix::termios::isatty;
use std::fmt::Arguments;
use std::io::{ErrorKind, Write, stdout};
use std::process::ExitCode;

/// Says it, and gives the exit code.
pub(crate) fn say(error: &SandboxError) -> ExitCode {
    if is_reader_gone(error) {
        return ExitCode::from(READER_GONE);
    }
    eprintln!("belljar: {}", shown(&error.to_string()));
    if let Some(hint) = hint_of(error) {
        eprintln!("  hint: {}", shown(&hint));
    }
    ExitCode::from(exit_code(error))
}

/// The same, for a program.
pub(crate) fn say_json(error: &SandboxError) -> ExitCode {
    let report = serde_json::json!({ "error": as_json(error) });
    // A reader that went away is told nothing.
    let _ = writeln!(stdout(), "{report:#}");
    ExitCode::from(exit_code(error))
}

/// Writes to standard error, where that is possible.
pub(crate) fn to_stderr(text: Arguments<'_>, end: &str) {
    let _ = std::io::stderr().write_all(format!("{text}{end}").as_bytes());
}

/// What to do next, in words of the command line.
pub(crate) fn hint_of(error: &SandboxError) -> Option<String> {
    error.hint.as_ref().map(for_command_line)
}

/// An error as an object.
pub(crate) fn as_json(error: &SandboxError) -> serde_json::Value {
    let ApiError { kind, code, message, .. } = ApiError::from(error);
    let hint = hint_of(error);
    serde_json::json!({ "kind": kind, "code": code, "message": message, "hint": hint })
}

/// What is no error, and has to be known.
pub(crate) fn say_notes(notes: &[Note]) {
    // A suggestion is for a person, and a program that reads standard error takes it for a problem.
    let is_for_us = |note: &&Note| note.code != SECRET_VISIBLE || isatty(stderr());
    for note in notes.iter().filter(is_for_us) {
        eprintln!("belljar: {}", shown(&note.message));
        if let Some(hint) = &note.hint {
            eprintln!("  hint: {}", shown(&for_command_line(hint)));
        }
    }
}

/// A text without what a terminal would obey: names of files and words of programs may come from any source.
fn shown(text: &str) -> String {
    text.split('\n').map(|line| visible(line.as_bytes())).collect::<Vec<_>>().join("\n")
}

/// Arguments that belljar does not understand; also where help and version come from.
pub(crate) fn say_usage(error: &clap::Error) -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    let first = arguments.next();
    if error.use_stderr() && arguments.take_while(|word| word != "--").any(|word| word == "--json") {
        let error = usage(error);
        return match first.is_some_and(|word| word == "run") {
            true => {
                crate::commands::run::not_understood(error).map_or_else(|error| say(&error), ExitCode::from)
            }
            false => say_json(&error),
        };
    }
    // Nothing better can be done about a terminal that went away.
    let _ = error.print();
    ExitCode::from(if error.use_stderr() { FAILED } else { 0 })
}

/// The first paragraph says what is wrong; the others what to do, and how the command is written.
fn usage(error: &clap::Error) -> SandboxError {
    let text = error.render().to_string();
    let mut paragraphs = text.split("\n\n").map(|one| one.split_whitespace().collect::<Vec<_>>().join(" "));
    let message = paragraphs.next().unwrap_or_default();
    let tips: Vec<String> = paragraphs
        .filter(|one| !one.is_empty())
        .map(|one| one.strip_prefix("tip: ").map(String::from).unwrap_or(one))
        .collect();
    let message = message.strip_prefix("error: ").unwrap_or(&message).to_string();
    ErrorCode::RequestInvalid.error(message).hint(tips.join("; "))
}

/// As docker and timeout do it, so that scripts need not learn anything.
pub(crate) fn exit_code(error: &SandboxError) -> u8 {
    if is_reader_gone(error) { READER_GONE } else { error.code.exit_code() }
}

/// Whether only the reader of our output went away, as `head` does: it has what it wanted, and nothing is to be said.
fn is_reader_gone(error: &SandboxError) -> bool {
    let cause = std::error::Error::source(error).and_then(|cause| cause.downcast_ref::<std::io::Error>());
    error.code == ErrorCode::StreamFailed && cause.is_some_and(|cause| cause.kind() == ErrorKind::BrokenPipe)
}

/// As for a program that SIGPIPE ended.
const READER_GONE: u8 = 128 + 13;

/// What the daemon said, or that it said nothing.
pub(crate) fn of_client(error: ClientError) -> SandboxError {
    let daemon_hint = match error {
        ClientError::Api(error, _) => return (*error).into(),
        ClientError::NoDaemon { .. } => last_words(),
        ClientError::Gone(_) | ClientError::Protocol(_) | ClientError::Source(_) => None,
    };
    let made = error.code().error(error.to_string());
    let made = match daemon_hint.map(Hint::from).or_else(|| error.hint()) {
        Some(hint) => made.hint(hint),
        None => made,
    };
    made.caused_by(error)
}

/// Why a daemon that was started just now ended, if it said so.
fn last_words() -> Option<String> {
    let log = belljar_state::state_directory().ok()?.join("fleet/daemon.log");
    let is_new = log.metadata().ok()?.modified().ok()?.elapsed().is_ok_and(|age| age < JUST_NOW);
    let text = String::from_utf8_lossy(&std::fs::read(&log).ok().filter(|_| is_new)?).into_owned();
    let last = text.lines().rev().find(|line| line.starts_with("belljar: "))?;
    Some(format!("the daemon said: {}", last.trim_start_matches("belljar: ")))
}

/// A daemon that does not come up is given up after less.
const JUST_NOW: std::time::Duration = std::time::Duration::from_secs(30);

/// What was asked for was tried, and did not come out.
pub(crate) const UNSUCCESSFUL: u8 = 1;
