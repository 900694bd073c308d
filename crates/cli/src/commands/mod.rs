//! One file a command.

pub(crate) mod agent;
pub(crate) mod audit;
pub(crate) mod build;
mod changes;
pub(crate) mod config;
pub(crate) mod daemon;
pub(crate) mod doctor;
pub(crate) mod golden;
pub(crate) mod images;
pub(crate) mod kept;
pub(crate) mod layers;
pub(crate) mod llm;
mod model;
pub(crate) mod paper;
pub(crate) mod policy;
pub(crate) mod publish;
mod refused;
mod roots;
pub(crate) mod run;
pub(crate) mod secrets;
pub(crate) mod shell;
pub(crate) mod show_run;
mod table;
mod terminal_variables;
pub(crate) mod trust;

use belljar_spec::SandboxError;
use std::future::Future;
use std::io::{ErrorKind, Write, stdout};

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
            let number = belljar_engine::signal_number(name).unwrap_or(0);
            128u8.saturating_add(u8::try_from(number).unwrap_or(0))
        }
        (None, None) => crate::failure::FAILED,
    }
}

/// Prints what a person or a program asked for. A reader that went away, as `head` does, has what it wanted.
fn print(bytes: &[u8]) -> Result<u8, SandboxError> {
    match stdout().write_all(bytes) {
        Ok(()) => Ok(0),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(0),
        Err(error) => Err(SandboxError::runtime("output_closed", format!("cannot write: {error}"))),
    }
}
