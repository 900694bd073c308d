//! The course of a command, from its start to its end, whoever listens.
//!
//! ```text
//! spawned --bytes--> log ... --ended--> result
//!    \--time is up, or somebody wants its end--> the whole tree is killed --> result
//! ```

use super::command::{Command, Word, Words};
use super::registry::Registry;
use crate::keeper::Kept;
use belljar_api::{ApiError, CommandResult, StreamName};
use belljar_engine::{
    DEAF, ExecOutput, GUEST_GONE, Input, Inputs, Output, Running, Sandbox, TO_KILL_A_TREE, deaf,
};
use belljar_spec::{LimitHit, SandboxError};
use std::future::pending;
use std::sync::Arc;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until, timeout};

/// What a command is started with.
pub(super) struct Start {
    pub(super) command: belljar_spec::Command,
    /// Standard input that is known beforehand.
    pub(super) stdin: Vec<u8>,
    /// More of it comes.
    pub(super) stdin_open: bool,
}

/// Runs it to its end.
pub(super) async fn run(command: Arc<Command>, kept: Arc<Kept>, start: Start, words: Words) {
    let registry = &kept.commands;
    let result = match follow(&command, registry, &kept.sandbox, start, words).await {
        Ok(result) => result,
        Err(error) => {
            if matches!(error.code, GUEST_GONE | DEAF) {
                kept.doubt();
            }
            broken(&command, &error, registry.is_closing())
        }
    };
    command.finish(result);
    registry.ended(command.number);
}

async fn follow(
    command: &Command,
    registry: &Registry,
    sandbox: &Sandbox,
    start: Start,
    words: Words,
) -> Result<CommandResult, SandboxError> {
    let deadline = Instant::now() + sandbox.limits().time_within(start.command.timeout);
    let Running { mut events, inputs } = sandbox.spawn(&start.command).await?;
    let killed = Notify::new();
    let mut speaking = std::pin::pin!(speak(inputs, start, words, &killed));
    let (mut timed_out, mut aborted) = (false, false);
    let mut last_word = None;
    let mut alone = std::pin::pin!(alone(command));
    let ended = loop {
        let output = tokio::select! {
            biased;
            () = command.abort.notified(), if last_word.is_none() => { aborted = true; None }
            () = &mut alone, if last_word.is_none() => { aborted = true; None }
            () = sleep_until(last_word.unwrap_or(deadline)) => {
                if last_word.is_some() {
                    sandbox.kill_deaf();
                    return Err(deaf());
                }
                timed_out = true;
                None
            }
            output = events.next() => Some(output?),
            () = &mut speaking => None,
        };
        if (timed_out || aborted) && last_word.is_none() {
            killed.notify_one();
            last_word = Some(Instant::now() + TO_KILL_A_TREE);
        }
        match output {
            None => {}
            Some(Output::Stdout(bytes)) => wrote(command, registry, StreamName::Stdout, &bytes),
            Some(Output::Stderr(bytes)) => wrote(command, registry, StreamName::Stderr, &bytes),
            Some(Output::Ended(ended)) => break ended,
        }
    };
    Ok(result(ended, command.log().is_truncated(), timed_out, aborted))
}

/// Ready when nobody was attached for as long as it goes on without anybody.
async fn alone(command: &Command) {
    let Some(patience) = command.alone else { return pending().await };
    let mut attached = command.attached.subscribe();
    loop {
        if *attached.borrow_and_update() > 0 {
            let _ = attached.changed().await;
        } else if timeout(patience, attached.changed()).await.is_err() {
            return;
        }
    }
}

/// Says everything that is to be said, until it is to be killed. Never ends: whoever drops this kills the command.
async fn speak(mut inputs: Inputs, start: Start, mut words: Words, killed: &Notify) {
    tokio::select! {
        biased;
        // Half a word may have been said. Nothing is said after it.
        () = killed.notified() => {}
        () = say(&mut inputs, start, &mut words) => {}
    }
    inputs.kill().await;
    pending().await
}

async fn say(inputs: &mut Inputs, start: Start, words: &mut Words) {
    let (mut bytes, mut sent) = (start.stdin, 0);
    let mut ends = !start.stdin_open;
    loop {
        let is_sent = sent == bytes.len();
        if is_sent && std::mem::take(&mut ends) {
            // Whoever reads its output learns that it has gone; so below.
            let _ = inputs.send(Input::End).await;
        }
        tokio::select! {
            biased;
            Some(aside) = words.asides.recv() => drop(inputs.send(aside).await),
            room = inputs.room(), if !is_sent => match room {
                Ok(room) => {
                    let piece = &bytes[sent..bytes.len().min(sent + room)];
                    sent += piece.len();
                    let _ = inputs.send(Input::Bytes(piece.to_vec())).await;
                }
                Err(_) => sent = bytes.len(),
            },
            word = words.stdin.recv(), if is_sent => match word {
                Some(Word::Input(Input::Bytes(more))) => (bytes, sent) = (more, 0),
                Some(Word::Input(other)) => drop(inputs.send(other).await),
                Some(Word::Said(said)) => drop(said.send(())),
                None => return pending().await,
            },
        }
    }
}

/// Keeps what was written; the oldest output of others goes before the newest of this one.
fn wrote(command: &Command, registry: &Registry, stream: StreamName, bytes: &[u8]) {
    while command.wrote(stream, bytes).is_err() {
        if !registry.make_room() {
            command.log().truncate();
            return;
        }
    }
}

fn result(ended: ExecOutput, truncated: bool, timed_out: bool, aborted: bool) -> CommandResult {
    let limit = timed_out.then_some(LimitHit::Timeout).or(ended.limit);
    let limit = limit.or(truncated.then_some(LimitHit::OutputTruncated));
    CommandResult {
        exit_code: ended.exit_code,
        signal: ended.signal,
        timed_out,
        aborted,
        output_truncated: truncated,
        limit: limit.map(|limit| limit.as_str().to_string()),
        not_started: ended.not_started,
        ..CommandResult::default()
    }
}

/// Not the command's own end: it could not be started, or its sandbox ended.
fn broken(command: &Command, error: &SandboxError, closing: bool) -> CommandResult {
    let log = command.log();
    let sandbox_gone = matches!(error.code, GUEST_GONE | "disposed" | DEAF);
    let aborted = closing && sandbox_gone;
    let stopped = stopped();
    let error = if aborted { &stopped } else { error };
    CommandResult {
        aborted,
        output_truncated: log.is_truncated(),
        not_started: (!sandbox_gone).then(|| error.message.clone()),
        error: Some(ApiError::from(error)),
        ..CommandResult::default()
    }
}

/// Somebody wanted it so: nothing is wrong.
fn stopped() -> SandboxError {
    SandboxError::unavailable("sandbox_stopped", "the sandbox was stopped, and all its commands with it")
        .hint("`belljar start` starts it again")
}
