//! One file a command.

pub(crate) mod agent;
pub(crate) mod audit;
pub(crate) mod build;
mod changes;
pub(crate) mod completions;
pub(crate) mod config;
pub(crate) mod daemon;
pub(crate) mod doctor;
mod ending;
pub(crate) mod golden;
pub(crate) mod help;
pub(crate) mod images;
pub(crate) mod layers;
mod learn;
pub(crate) mod llm;
pub(crate) mod man;
mod model;
pub(crate) mod persistent;
pub(crate) mod policy;
mod ports;
pub(crate) mod prices;
pub(crate) mod publish;
mod questions;
mod refused;
mod roots;
pub(crate) mod run;
pub(crate) mod secrets;
pub(crate) mod shell;
pub(crate) mod show_run;
mod standing;
pub(crate) mod steer;
mod table;
mod terminal_variables;
pub(crate) mod trust;
pub(crate) mod upkeep;
pub(crate) mod verify;

use belljar_spec::{ErrorCode, SandboxError};
use std::future::Future;
use std::io::{ErrorKind, Write, stdout};

/// Runs a command's work.
fn block_on<T>(work: impl Future<Output = Result<T, SandboxError>>) -> Result<T, SandboxError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build();
    let runtime = runtime.map_err(|error| {
        ErrorCode::Internal
            .error(format!("cannot make an event loop: {error}"))
            .hint("too many files may be open; `ulimit -n` says how many there can be")
            .caused_by(error)
    })?;
    let outcome = runtime.block_on(work);
    // Nothing of it is worth waiting for.
    runtime.shutdown_background();
    outcome
}

/// Prints what a person or a program asked for. A reader that went away, as `head` does, has what it wanted.
fn print(bytes: &[u8]) -> Result<u8, SandboxError> {
    match stdout().write_all(bytes) {
        Ok(()) => Ok(0),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(0),
        Err(error) => Err(ErrorCode::StreamFailed.error(format!("cannot write: {error}")).caused_by(error)),
    }
}
