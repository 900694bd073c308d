//! One command: its state, its output, and its input. `run.rs` drives it.

use super::log::Log;
use super::spill::Spill;
use super::text;
use belljar_api::{CommandInfo, CommandResult, CommandState, StreamName, text_and_base64};
use belljar_engine::{Input, InputFilter, Source};
use belljar_spec::{ErrorCode, SandboxError};
use std::future::pending;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, mpsc, oneshot, watch};

/// A command that runs or ran.
#[derive(Debug)]
pub(crate) struct Command {
    pub(crate) number: u64,
    argv: Vec<String>,
    terminal: bool,
    /// How much of each stream an answer may have.
    collected: u64,
    started_ms: i64,
    /// Its process id inside, once it runs.
    pid: OnceLock<u32>,
    log: Mutex<Log>,
    end: OnceLock<End>,
    progress: watch::Sender<Progress>,
    stdin: mpsc::Sender<StdinItem>,
    /// How many pieces of standard input were accepted and not sent, its end aside.
    unsent: Arc<AtomicUsize>,
    controls: mpsc::Sender<Input>,
    stdin_open: AtomicBool,
    /// How long it may run while no client is attached to it.
    pub(super) alone: Option<Duration>,
    /// How many clients are attached to it.
    pub(super) attached: watch::Sender<u32>,
    pub(super) abort: Notify,
}

/// How it ended.
#[derive(Debug)]
struct End {
    at_ms: i64,
    result: CommandResult,
}

/// How far it is. Clients that follow it wait for the next value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Progress {
    pub(crate) started: bool,
    pub(crate) cursor: u64,
    pub(crate) ended: bool,
}

/// The input of a command, as its driver takes it.
#[derive(Debug)]
pub(super) struct CommandInput {
    /// As fast as the command reads.
    stdin: mpsc::Receiver<StdinItem>,
    unsent: Arc<AtomicUsize>,
    /// A piece of standard input is being sent.
    is_sending: bool,
    /// Signals and terminal sizes, which do not wait for that.
    controls: mpsc::Receiver<Input>,
}

/// Standard input, in order.
#[derive(Debug)]
enum StdinItem {
    /// Bytes, or their end.
    Input(Input),
    /// Answered when everything before this was sent.
    Flush(oneshot::Sender<()>),
}

impl Source for CommandInput {
    async fn next(&mut self, filter: InputFilter) -> Input {
        if filter == InputFilter::All && std::mem::take(&mut self.is_sending) {
            self.unsent.fetch_sub(1, Ordering::Relaxed);
        }
        loop {
            tokio::select! {
                biased;
                Some(control) = self.controls.recv() => return control,
                Some(item) = self.stdin.recv(), if filter == InputFilter::All => match item {
                    StdinItem::Input(input) => {
                        self.is_sending = matches!(input, Input::Bytes(_));
                        return input;
                    }
                    StdinItem::Flush(sent) => drop(sent.send(())),
                },
                // The command has both senders, and outlives this.
                else => return pending().await,
            }
        }
    }
}

/// What is fixed when it starts.
#[derive(Debug, Clone)]
pub(super) struct Terms {
    pub(super) argv: Vec<String>,
    pub(super) terminal: bool,
    /// Standard input that is known when it starts.
    pub(super) stdin: Vec<u8>,
    /// More of it follows.
    pub(super) stdin_open: bool,
    /// How much of each stream is kept.
    pub(super) retained: u64,
    /// How much of each stream an answer may have.
    pub(super) collected: u64,
    /// How long it may run while no client is attached to it.
    pub(super) alone: Option<Duration>,
}

impl Command {
    pub(super) fn new(number: u64, terms: Terms, spill: Arc<Spill>) -> (Arc<Command>, CommandInput) {
        let (stdin, stdin_items) = mpsc::channel(STDIN_ITEMS);
        let (controls, sent_controls) = mpsc::channel(CONTROLS);
        let first = [Some(Input::Bytes(terms.stdin)), (!terms.stdin_open).then_some(Input::End)];
        let unsent = Arc::new(AtomicUsize::new(1));
        for input in first.into_iter().flatten() {
            stdin.try_send(StdinItem::Input(input)).expect("a new channel has room for two");
        }
        let command = Command {
            number,
            argv: remembered(terms.argv),
            terminal: terms.terminal,
            collected: terms.collected,
            started_ms: crate::shim::now_ms(),
            pid: OnceLock::new(),
            log: Mutex::new(Log::new(spill, terms.retained)),
            end: OnceLock::new(),
            progress: watch::Sender::default(),
            stdin,
            unsent: Arc::clone(&unsent),
            controls,
            stdin_open: AtomicBool::new(terms.stdin_open),
            alone: terms.alone,
            attached: watch::Sender::new(0),
            abort: Notify::new(),
        };
        (
            Arc::new(command),
            CommandInput { stdin: stdin_items, unsent, is_sending: false, controls: sent_controls },
        )
    }

    pub(crate) fn id(&self) -> String {
        format!("cmd_{}", self.number)
    }

    /// Without its output.
    pub(crate) fn info(&self) -> CommandInfo {
        let end = self.end.get();
        CommandInfo {
            id: self.id(),
            argv: self.argv.clone(),
            pid: self.pid.get().copied(),
            state: if end.is_some() { CommandState::Ended } else { CommandState::Running },
            terminal: self.terminal,
            started_ms: self.started_ms,
            ended_ms: end.map(|end| end.at_ms),
            result: end.map(|end| end.result.clone()),
            cursor: self.log().cursor(),
        }
    }

    /// As it was when it started. A short command may have ended by the time that a client is told of its start.
    pub(crate) fn info_at_start(&self) -> CommandInfo {
        CommandInfo { state: CommandState::Running, ended_ms: None, result: None, cursor: 0, ..self.info() }
    }

    /// With its output, as much as an answer may have.
    pub(crate) fn full_info(&self) -> CommandInfo {
        let mut info = self.info();
        if let Some(result) = &mut info.result {
            let log = self.log();
            let mut streams = [Vec::new(), Vec::new()];
            let mut place = log.place(0);
            while let Ok(Some(piece)) = log.read(&mut place, text::PIECE) {
                let retained = &mut streams[usize::from(piece.stream == StreamName::Stderr)];
                let room = usize::try_from(self.collected).unwrap_or(usize::MAX) - retained.len();
                result.output_truncated |= piece.bytes.len() > room;
                retained.extend_from_slice(&piece.bytes[..piece.bytes.len().min(room)]);
            }
            drop(log);
            let [(stdout, stdout_base64), (stderr, stderr_base64)] = streams.map(text_and_base64);
            (result.stdout, result.stdout_base64) = (Some(stdout), stdout_base64);
            (result.stderr, result.stderr_base64) = (Some(stderr), stderr_base64);
        }
        info
    }

    pub(crate) fn result(&self) -> Option<&CommandResult> {
        self.end.get().map(|end| &end.result)
    }

    pub(crate) fn log(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// It runs.
    pub(super) fn started(&self, pid: u32) {
        // It starts once.
        let _ = self.pid.set(pid);
        self.progress.send_modify(|progress| progress.started = true);
    }

    /// Waits until its process id is known, or it has ended without one.
    pub(crate) async fn has_started(&self) {
        let _ = self.progress().wait_for(|progress| progress.started || progress.ended).await;
    }

    /// To wait for what comes.
    pub(crate) fn progress(&self) -> watch::Receiver<Progress> {
        self.progress.subscribe()
    }

    pub(crate) async fn ended(&self) {
        // The sender is ours.
        let _ = self.progress().wait_for(|progress| progress.ended).await;
    }

    /// Kills it and everything that descends from it.
    pub(crate) fn kill(&self) {
        self.abort.notify_one();
    }

    /// Sends it input. Standard input waits while it does not read; signals and terminal sizes overtake it.
    pub(crate) async fn send(&self, input: Input) -> Result<(), SandboxError> {
        match input {
            Input::Signal(_) | Input::Resize(_) => {
                return self.controls.send(input).await.map_err(|_| self.over());
            }
            Input::Bytes(_) | Input::End => {}
        }
        if !self.stdin_open.load(Ordering::Relaxed) {
            return Err(ErrorCode::CommandEnded
                .error(format!("the standard input of {} is closed", self.id()))
                .hint("start the command with `stdin_open`"));
        }
        if input == Input::End {
            self.stdin_open.store(false, Ordering::Relaxed);
        }
        let place = self.stdin.reserve().await.map_err(|_| self.over())?;
        self.unsent.fetch_add(usize::from(input != Input::End), Ordering::Relaxed);
        place.send(StdinItem::Input(input));
        Ok(())
    }

    /// Waits until all earlier standard input was sent.
    pub(crate) async fn flush_stdin(&self) -> Result<(), SandboxError> {
        let (sent, is_sent) = oneshot::channel();
        self.stdin.send(StdinItem::Flush(sent)).await.map_err(|_| self.over())?;
        is_sent.await.map_err(|_| self.over())
    }

    /// Whether all bytes of standard input that were accepted were also sent.
    pub(crate) fn has_sent_all(&self) -> bool {
        self.unsent.load(Ordering::Relaxed) == 0
    }

    /// Adds output. An error: there is no room.
    pub(super) fn wrote(&self, stream: StreamName, bytes: &[u8]) -> io::Result<()> {
        let mut log = self.log();
        let outcome = log.append(stream, bytes);
        let cursor = log.cursor();
        drop(log);
        self.progress.send_if_modified(|progress| std::mem::replace(&mut progress.cursor, cursor) != cursor);
        outcome
    }

    pub(super) fn finish(&self, result: CommandResult) {
        let mut log = self.log();
        log.close();
        let cursor = log.cursor();
        drop(log);
        if self.end.set(End { at_ms: crate::shim::now_ms(), result }).is_ok() {
            self.progress.send_modify(|progress| (progress.cursor, progress.ended) = (cursor, true));
        }
    }

    fn over(&self) -> SandboxError {
        ErrorCode::CommandEnded.error(format!("{} has ended", self.id()))
    }
}

/// The words of a command as they are remembered: a thousand commands may have ended, and a line is long enough for people.
fn remembered(argv: Vec<String>) -> Vec<String> {
    if argv.iter().map(String::len).sum::<usize>() <= REMEMBERED {
        return argv;
    }
    let mut left = REMEMBERED;
    let mut retained = Vec::new();
    for mut word in argv {
        if word.len() > left {
            word.truncate(word.floor_char_boundary(left));
            word.push('\u{2026}');
            word.shrink_to_fit();
            retained.push(word);
            break;
        }
        left -= word.len();
        retained.push(word);
    }
    retained
}

/// More than any command that a person typed.
const REMEMBERED: usize = 16 * 1024;
/// How many pieces of standard input may wait for a command that reads slowly.
const STDIN_ITEMS: usize = 2;
/// How many signals and terminal sizes may wait for their sandbox.
const CONTROLS: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_words_are_remembered_in_part() {
        let short = vec!["echo".to_string(), "x".repeat(100)];
        assert_eq!(remembered(short.clone()), short);
        let long = remembered(vec!["echo".into(), "\u{fc}".repeat(1 << 20), "never".into()]);
        assert_eq!(long.len(), 2);
        assert!(long[1].len() <= REMEMBERED + 3 && long[1].ends_with('\u{2026}'));
    }
}
