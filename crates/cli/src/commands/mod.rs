//! One file a command.

pub(crate) mod doctor;
pub(crate) mod paper;
pub(crate) mod run;
pub(crate) mod shell;

use belljar_spec::SandboxError;
use std::future::Future;

/// Runs a command's work.
fn block_on<T>(work: impl Future<Output = Result<T, SandboxError>>) -> Result<T, SandboxError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build();
    let runtime = runtime.map_err(|error| {
        SandboxError::runtime("no_event_loop", format!("cannot make an event loop: {error}"))
            .hint("too many files may be open; `ulimit -n` says how many there can be")
    })?;
    let outcome = runtime.block_on(work);
    // Nothing of it is worth waiting for.
    runtime.shutdown_background();
    outcome
}

/// How the end of a command becomes an exit code: its own, or 128 and the signal.
fn exit_code(exit_code: Option<i32>, signal: Option<&str>) -> u8 {
    match (exit_code, signal) {
        (Some(code), _) => code as u8,
        (None, Some(name)) => {
            128u8.saturating_add(SIGNALS.iter().find(|(known, _)| *known == name).map_or(0, |s| s.1))
        }
        (None, None) => crate::failure::FAILED,
    }
}

const SIGNALS: [(&str, u8); 15] = [
    ("SIGHUP", 1),
    ("SIGINT", 2),
    ("SIGQUIT", 3),
    ("SIGILL", 4),
    ("SIGTRAP", 5),
    ("SIGABRT", 6),
    ("SIGBUS", 7),
    ("SIGFPE", 8),
    ("SIGKILL", 9),
    ("SIGUSR1", 10),
    ("SIGSEGV", 11),
    ("SIGUSR2", 12),
    ("SIGPIPE", 13),
    ("SIGALRM", 14),
    ("SIGTERM", 15),
];
