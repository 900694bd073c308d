//! Runs a command from its start to its end, whether a client is attached or not. Its output goes to its log.

use super::command::{Command, CommandInput};
use super::registry::Registry;
use crate::shim::LiveSandbox;
use belljar_api::{ApiError, CommandResult, StreamName};
use belljar_engine::{Drive, OutputStream, Sandbox, Sink};
use belljar_spec::{Ended, ErrorCode, SandboxError, Term, hint};
use std::future::pending;
use std::sync::Arc;
use tokio::time::timeout;

/// Runs a command to its end, and notes its result.
pub(super) async fn run(
    command: Arc<Command>,
    live: Arc<LiveSandbox>,
    start: belljar_spec::Command,
    input: CommandInput,
) {
    let registry = &live.commands;
    let outcome = drive(&command, registry, &live.sandbox(), start, input).await;
    // The guest reported a command that ended by itself; after any other end it may be gone.
    if !matches!(&outcome, Ok(ended) if !ended.timed_out && !ended.aborted) {
        live.doubt();
    }
    command.finish(match outcome {
        Ok(ended) => ended.into(),
        Err(error) => failed(&command, &error, registry.is_closing()),
    });
    registry.ended(command.number);
}

async fn drive(
    command: &Command,
    registry: &Registry,
    sandbox: &Sandbox,
    start: belljar_spec::Command,
    mut input: CommandInput,
) -> Result<Ended, SandboxError> {
    let drive = Drive { timeout: Some(sandbox.limits().time_within(start.timeout)), grace: None };
    let running = sandbox.spawn(&start).await?.named(command.id());
    let abort = async {
        tokio::select! {
            () = command.abort.notified() => {}
            () = left_alone(command) => {}
        }
    };
    running.drive(drive, abort, &mut input, &mut LogSink { command, registry }).await
}

/// Ready when no client was attached for as long as the command may run without one.
async fn left_alone(command: &Command) {
    let Some(limit) = command.alone else { return pending().await };
    let mut attached = command.attached.subscribe();
    loop {
        if *attached.borrow_and_update() > 0 {
            let _ = attached.changed().await;
        } else if timeout(limit, attached.changed()).await.is_err() {
            return;
        }
    }
}

/// The log of a command. Where there is no room, the oldest output of ended commands makes room for the newest of this one.
struct LogSink<'c> {
    command: &'c Command,
    registry: &'c Registry,
}

impl Sink for LogSink<'_> {
    async fn write(&mut self, stream: OutputStream, bytes: &[u8]) -> Result<(), SandboxError> {
        let stream = match stream {
            OutputStream::Stdout => StreamName::Stdout,
            OutputStream::Stderr => StreamName::Stderr,
        };
        while self.command.wrote(stream, bytes).is_err() {
            if !self.registry.make_room() {
                self.command.log().truncate();
                break;
            }
        }
        Ok(())
    }

    fn started(&mut self, pid: u32) {
        self.command.started(pid);
    }

    fn is_truncated(&self) -> bool {
        self.command.log().is_truncated()
    }
}

/// The result of a command that could not be started, or whose sandbox or supervisor was lost while it ran.
fn failed(command: &Command, error: &SandboxError, closing: bool) -> CommandResult {
    let sandbox_gone = matches!(
        error.code,
        ErrorCode::GuestGone | ErrorCode::SandboxNotAlive | ErrorCode::GuestUnresponsive
    );
    let aborted = closing && sandbox_gone;
    let stopped = stopped();
    let error = if aborted { &stopped } else { error };
    let ran = sandbox_gone || error.code == ErrorCode::SupervisorKilled;
    CommandResult {
        aborted,
        output_truncated: command.log().is_truncated(),
        not_started: (!ran).then(|| error.message.clone()),
        error: Some(ApiError::from(error)),
        ..CommandResult::default()
    }
}

/// The sandbox was stopped on request.
fn stopped() -> SandboxError {
    ErrorCode::SandboxNotAlive
        .error("the sandbox was stopped, and all its commands with it")
        .hint(hint!("{} starts it again", Term::CreateSandbox))
}
