//! A run of one command: the sandbox is made for it and gone with it.

use super::process::{engine, runtime, surroundings};
use super::starter::Starter;
use crate::command_request;
use belljar_api::{RunOnce, RunResult};
use belljar_config::resolve;
use belljar_fleet::{SandboxDir, request};
use belljar_spec::{ByteSize, Command, ErrorCode, LimitsRequest, SandboxError, SandboxRequest, Stdin};
use std::time::Duration;

/// That it makes sense, before a process is started for it.
pub(crate) fn check(run: &RunOnce) -> Result<(), SandboxError> {
    command(run)?;
    no_ports(&run.sandbox)?;
    request::check(&run.sandbox)
}

/// Ports lead into a sandbox that lives.
pub(crate) fn no_ports(sandbox: &SandboxRequest) -> Result<(), SandboxError> {
    if sandbox.forward_ports.is_empty() {
        return Ok(());
    }
    let message = "`forward_ports`: ports lead into a sandbox that is kept, and not into one of a single run";
    Err(ErrorCode::RequestConflict.error(message).hint("make a sandbox with them, and run the command there"))
}

/// Makes the sandbox, runs the command and removes the sandbox, also where the daemon hangs up.
pub(super) fn run(
    run: &RunOnce,
    place: &SandboxDir,
    starter: &mut Starter,
) -> Result<RunResult, SandboxError> {
    let mut command = command(run)?;
    let (spec, _) = resolve(run.sandbox.clone(), surroundings(place))?;
    hold_to(&mut command, &spec.limits);
    let runtime = runtime()?;
    let hung_up = starter.hung_up();
    let run = runtime.block_on(engine(place).run_once_until(spec, &command, hung_up.notified()));
    // A sandbox that was being made when the daemon hung up is removed by the task that makes it. If that hangs, it ends with this process.
    runtime.shutdown_timeout(TO_CLEAR_UP);
    Ok(crate::run_result(run?))
}

/// No command has more than its sandbox was made with: what the grant, the profile or the request itself says of that is a ceiling.
fn hold_to(command: &mut Command, limits: &LimitsRequest) {
    command.timeout = command.timeout.into_iter().chain(limits.timeout).min();
    command.max_output = command.max_output.into_iter().chain(limits.output).min();
}

/// The command that a request means.
fn command(run: &RunOnce) -> Result<Command, SandboxError> {
    let (mut command, stdin) = command_request::command(run.command())?;
    command.stdin = stdin.map_or(Stdin::Empty, Stdin::Bytes);
    match run.max_output {
        Some(more) if more > MAX_OUTPUT_BYTES => Err(command_request::invalid(format!(
            "`max_output` is {MAX_OUTPUT_BYTES} at most: an answer is one piece"
        ))),
        requested => {
            command.max_output = Some(ByteSize::bytes(requested.unwrap_or(USUAL_OUTPUT)));
            Ok(command)
        }
    }
}

/// Of each stream, unless the request says otherwise.
const USUAL_OUTPUT: u64 = 2 << 20;
/// A result is one piece, which its process holds as bytes, as text and as base64. A client that wants more follows a command.
const MAX_OUTPUT_BYTES: u64 = 4 << 20;
/// How long an abandoned sandbox may take to be gone, before its process ends all the same.
pub(super) const TO_CLEAR_UP: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;
    use belljar_spec::ByteSize;

    #[test]
    fn no_command_has_more_than_its_sandbox() {
        let seconds = |seconds| Some(Duration::from_secs(seconds));
        let bytes = |bytes| Some(ByteSize::bytes(bytes));
        for (requested, limit, held) in [
            ((Some(60), Some(100)), (None, None), (seconds(60), bytes(100))),
            ((Some(60), Some(100)), (seconds(30), bytes(10)), (seconds(30), bytes(10))),
            ((Some(20), Some(5)), (seconds(30), bytes(10)), (seconds(20), bytes(5))),
            ((None, None), (seconds(30), bytes(10)), (seconds(30), bytes(10))),
            ((None, None), (None, bytes(1 << 30)), (None, bytes(USUAL_OUTPUT))),
        ] {
            let run = RunOnce {
                argv: vec!["true".into()],
                timeout_s: requested.0,
                max_output: requested.1,
                ..RunOnce::default()
            };
            let mut command = command(&run).expect("a command");
            let limits = LimitsRequest { timeout: limit.0, output: limit.1, ..LimitsRequest::default() };
            hold_to(&mut command, &limits);
            assert_eq!((command.timeout, command.max_output), held, "{requested:?} {limit:?}");
        }
    }
}
