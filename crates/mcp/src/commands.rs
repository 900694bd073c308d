//! Commands: run, looked at, stopped.

use crate::conversation::{Conversation, Held, failed};
use crate::hosts;
use crate::output::Output;
use crate::running::Cancelled;
use crate::tools::{CommandOutput, MAX_WAIT_S, OneCommand, RunCommand, WAIT_S};
use belljar_api::client::{CommandEvents, output_bytes};
use belljar_api::{CommandEvent, CommandInfo, CommandResult, CommandState, RefusedInfo, StartCommand};
use belljar_spec::SandboxError;
use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

impl Conversation {
    pub(crate) async fn run_command(
        &self,
        arguments: RunCommand,
        cancelled: &mut Cancelled,
    ) -> Result<String, SandboxError> {
        let (started, before) = self.with(|held| start(held, &arguments)).await?;
        let held = self.held().await?;
        let wait = Duration::from_secs(arguments.wait_s.unwrap_or(WAIT_S).min(MAX_WAIT_S));
        let mut events = held.sandbox.follow(&started.id, 0).await.map_err(failed)?;
        let seen = tokio::select! {
            seen = watch(&mut events, Instant::now() + wait) => seen?,
            () = cancelled.wait() => {
                held.sandbox.kill(&started.id).await.map_err(failed)?;
                return Ok(format!("[{} was cancelled and ended]", started.id));
            }
        };
        self.shown().insert(started.id.clone(), events.cursor());
        Ok(seen.report(&started.id, &hosts::since(&held, &before).await))
    }

    pub(crate) async fn command_output(
        &self,
        arguments: CommandOutput,
        cancelled: &mut Cancelled,
    ) -> Result<String, SandboxError> {
        let held = self.held().await?;
        let before = hosts::refusals(&held).await;
        let id = arguments.command_id;
        let from = if arguments.from_start { 0 } else { self.shown().get(&id).copied().unwrap_or(0) };
        let wait = Duration::from_secs(arguments.wait_s.unwrap_or(0).min(MAX_WAIT_S));
        let events = match wait.is_zero() {
            true => held.sandbox.output(&id, from).await,
            false => held.sandbox.follow(&id, from).await,
        };
        let mut events = events.map_err(failed)?;
        // What is there already comes without a wait.
        let until = Instant::now() + wait.max(AT_ONCE);
        let mut seen = tokio::select! {
            seen = watch(&mut events, until) => seen?,
            () = cancelled.wait() => return Ok(format!("[{id} continues]")),
        };
        self.shown().insert(id.clone(), events.cursor());
        if seen.result.is_none() {
            // The end is behind the last output, and may have been shown before.
            let info = held.sandbox.command(&id).await.map_err(failed)?;
            seen.result = info.result;
        }
        Ok(seen.report(&id, &hosts::since(&held, &before).await))
    }

    pub(crate) async fn stop_command(&self, arguments: &OneCommand) -> Result<String, SandboxError> {
        let held = self.held().await?;
        held.sandbox.kill(&arguments.command_id).await.map_err(failed)?;
        Ok(format!("[{} was ended]", arguments.command_id))
    }

    pub(crate) async fn list_commands(&self) -> Result<String, SandboxError> {
        let commands = self.with(|held| async move { held.sandbox.commands().await.map_err(failed) }).await?;
        if commands.is_empty() {
            return Ok("no command ran in the sandbox since it started".into());
        }
        Ok(commands.iter().map(line).collect::<Vec<_>>().join("\n"))
    }
}

/// Starts it. What was refused before is not its doing.
async fn start(
    held: Arc<Held>,
    arguments: &RunCommand,
) -> Result<(CommandInfo, Vec<RefusedInfo>), SandboxError> {
    let before = hosts::refusals(&held).await;
    let command = StartCommand {
        argv: ["/bin/sh", "-c", WITH_BASH, &arguments.command].map(Into::into).to_vec(),
        cwd: held.directory(arguments.cwd.as_deref()),
        timeout_s: arguments.timeout_s,
        ..StartCommand::default()
    };
    let started = held.sandbox.start(&command).await.map_err(failed)?;
    Ok((started, before))
}

/// What was seen of a command.
#[derive(Default)]
struct Seen {
    output: Output,
    /// How it ended, if it has.
    result: Option<CommandResult>,
}

/// Follows a command until its end, or this moment.
async fn watch(events: &mut CommandEvents, until: Instant) -> Result<Seen, SandboxError> {
    let mut seen = Seen::default();
    loop {
        match timeout_at(until, events.next()).await {
            Ok(event) => match event.map_err(failed)? {
                Some(CommandEvent::Output { text, base64, .. }) => {
                    seen.output.add(&output_bytes(text, base64).map_err(failed)?);
                }
                Some(CommandEvent::Ended { result }) => {
                    seen.result = Some(result);
                    return Ok(seen);
                }
                Some(CommandEvent::Started { .. }) => {}
                None => return Ok(seen),
            },
            Err(_) => return Ok(seen),
        }
    }
}

impl Seen {
    /// For a model: the output, how it ended, and what was refused meanwhile.
    fn report(self, id: &str, refusals: &[String]) -> String {
        let mut text = self.output.text();
        if !text.is_empty() && !text.ends_with('\n') {
            text.push('\n');
        }
        let ending = match &self.result {
            Some(result) => ending(result),
            None => format!("{id} continues in the background"),
        };
        // A string can always be written to.
        let _ = write!(text, "[{ending}]");
        for refused in refusals {
            let _ = write!(text, "\n[belljar refused {refused}]");
        }
        text
    }
}

fn ending(result: &CommandResult) -> String {
    let CommandResult { exit_code, signal, timed_out, limit, not_started, error, .. } = result;
    let how = match (error, not_started, exit_code, signal) {
        (Some(error), ..) => format!("failed: {}", error.message),
        (None, Some(why), ..) => format!("not started: {why}"),
        (None, None, Some(code), _) => format!("exit code {code}"),
        (None, None, None, Some(signal)) => format!("ended by {signal}"),
        (None, None, None, None) => "ended".to_string(),
    };
    match (timed_out, limit) {
        (true, _) => format!("{how}; it ran too long"),
        (false, Some(limit)) => format!("{how}; it reached the limit `{limit}`"),
        (false, None) => how,
    }
}

fn line(command: &CommandInfo) -> String {
    let state = match (command.state, &command.result) {
        (CommandState::Running, _) => "running".to_string(),
        (CommandState::Ended, Some(result)) => ending(result),
        (CommandState::Ended, None) => "ended".to_string(),
    };
    let words = match command.argv.as_slice() {
        // As it was asked for.
        [_, _, script, line] if script == WITH_BASH => line.clone(),
        words => words.join(" "),
    };
    format!("{}: {state}: {words}", command.id)
}

/// Models write for bash, and not every root has one.
const WITH_BASH: &str =
    r#"if command -v bash >/dev/null 2>&1; then exec bash -c "$0"; else exec sh -c "$0"; fi"#;
/// Long enough for what was written already.
const AT_ONCE: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_command_is_told_in_a_line() {
        let plain = CommandResult::default();
        for (result, expected) in [
            (CommandResult { exit_code: Some(3), ..plain.clone() }, "exit code 3"),
            (CommandResult { signal: Some("SIGKILL".into()), ..plain.clone() }, "ended by SIGKILL"),
            (
                CommandResult { signal: Some("SIGKILL".into()), timed_out: true, ..plain.clone() },
                "ended by SIGKILL; it ran too long",
            ),
            (
                CommandResult { exit_code: Some(1), limit: Some("memory".into()), ..plain.clone() },
                "exit code 1; it reached the limit `memory`",
            ),
            (
                CommandResult { not_started: Some("no such folder".into()), ..plain },
                "not started: no such folder",
            ),
        ] {
            assert_eq!(ending(&result), expected);
        }
    }
}
