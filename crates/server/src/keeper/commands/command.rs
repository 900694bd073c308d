//! One command: what is known of it, what it wrote, and what can be said to it. Its course is in `course.rs`.

use super::log::Log;
use super::spill::Spill;
use super::text;
use belljar_api::{CommandInfo, CommandResult, CommandState, StreamName};
use belljar_engine::Input;
use belljar_spec::SandboxError;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
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
    log: Mutex<Log>,
    end: OnceLock<End>,
    progress: watch::Sender<Progress>,
    words: mpsc::Sender<Word>,
    asides: mpsc::Sender<Input>,
    stdin_open: AtomicBool,
    /// How long it goes on without anybody.
    pub(super) alone: Option<Duration>,
    /// How many are attached to it.
    pub(super) attached: watch::Sender<u32>,
    pub(super) abort: Notify,
}

/// How it ended.
#[derive(Debug)]
struct End {
    at_ms: i64,
    result: CommandResult,
}

/// How far it is. Whoever follows waits for the next one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Progress {
    pub(crate) cursor: u64,
    pub(crate) ended: bool,
}

/// What is to be said to it.
#[derive(Debug)]
pub(super) struct Words {
    /// In turn, as fast as it reads.
    pub(super) stdin: mpsc::Receiver<Word>,
    /// Signals and sizes, which do not wait for that.
    pub(super) asides: mpsc::Receiver<Input>,
}

/// Something that is said in turn.
#[derive(Debug)]
pub(super) enum Word {
    Input(Input),
    /// Everything before this was said.
    Said(oneshot::Sender<()>),
}

/// What is fixed when it starts.
#[derive(Debug, Clone)]
pub(super) struct Terms {
    pub(super) argv: Vec<String>,
    pub(super) terminal: bool,
    pub(super) stdin_open: bool,
    /// How much of each stream is kept.
    pub(super) kept: u64,
    /// How much of each stream an answer may have.
    pub(super) collected: u64,
    /// How long it goes on without anybody.
    pub(super) alone: Option<Duration>,
}

impl Command {
    pub(super) fn new(number: u64, terms: Terms, spill: Arc<Spill>) -> (Arc<Command>, Words) {
        let (words, stdin) = mpsc::channel(WORDS);
        let (asides, heard) = mpsc::channel(ASIDES);
        let command = Command {
            number,
            argv: remembered(terms.argv),
            terminal: terms.terminal,
            collected: terms.collected,
            started_ms: crate::keeper::now_ms(),
            log: Mutex::new(Log::new(spill, terms.kept)),
            end: OnceLock::new(),
            progress: watch::Sender::default(),
            words,
            asides,
            stdin_open: AtomicBool::new(terms.stdin_open),
            alone: terms.alone,
            attached: watch::Sender::new(0),
            abort: Notify::new(),
        };
        (Arc::new(command), Words { stdin, asides: heard })
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
            state: if end.is_some() { CommandState::Ended } else { CommandState::Running },
            terminal: self.terminal,
            started_ms: self.started_ms,
            ended_ms: end.map(|end| end.at_ms),
            result: end.map(|end| end.result.clone()),
            cursor: self.log().cursor(),
        }
    }

    /// With its output, as much as an answer may have.
    pub(crate) fn told(&self) -> CommandInfo {
        let mut info = self.info();
        if let Some(result) = &mut info.result {
            let log = self.log();
            let mut streams = [Vec::new(), Vec::new()];
            let mut place = log.place(0);
            while let Ok(Some(piece)) = log.read(&mut place, text::PIECE) {
                let kept = &mut streams[usize::from(piece.stream == StreamName::Stderr)];
                let room = usize::try_from(self.collected).unwrap_or(usize::MAX) - kept.len();
                result.output_truncated |= piece.bytes.len() > room;
                kept.extend_from_slice(&piece.bytes[..piece.bytes.len().min(room)]);
            }
            drop(log);
            let [stdout, stderr] = streams.map(text::told);
            (result.stdout, result.stdout_base64) = stdout;
            (result.stderr, result.stderr_base64) = stderr;
        }
        info
    }

    pub(crate) fn result(&self) -> Option<&CommandResult> {
        self.end.get().map(|end| &end.result)
    }

    pub(crate) fn log(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
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

    /// Says something to it. Standard input waits while it does not read; signals and sizes overtake it.
    pub(crate) async fn say(&self, input: Input) -> Result<(), SandboxError> {
        match input {
            Input::Signal(_) | Input::Resize(_) => {
                return self.asides.send(input).await.map_err(|_| self.over());
            }
            Input::Bytes(_) | Input::End => {}
        }
        if !self.stdin_open.load(Ordering::Relaxed) {
            return Err(SandboxError::runtime(
                "stdin_closed",
                format!("the standard input of {} is closed", self.id()),
            )
            .hint("start the command with `stdin_open`"));
        }
        if input == Input::End {
            self.stdin_open.store(false, Ordering::Relaxed);
        }
        self.words.send(Word::Input(input)).await.map_err(|_| self.over())
    }

    /// Ready when it was told everything that was said before this.
    pub(crate) async fn said(&self) -> Result<(), SandboxError> {
        let (said, heard) = oneshot::channel();
        self.words.send(Word::Said(said)).await.map_err(|_| self.over())?;
        heard.await.map_err(|_| self.over())
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
        if self.end.set(End { at_ms: crate::keeper::now_ms(), result }).is_ok() {
            self.progress.send_replace(Progress { cursor, ended: true });
        }
    }

    fn over(&self) -> SandboxError {
        SandboxError::runtime("command_ended", format!("{} has ended", self.id()))
    }
}

/// The words of a command as they are remembered: a thousand commands may have ended, and a line is long enough for people.
fn remembered(argv: Vec<String>) -> Vec<String> {
    if argv.iter().map(String::len).sum::<usize>() <= REMEMBERED {
        return argv;
    }
    let mut left = REMEMBERED;
    let mut kept = Vec::new();
    for mut word in argv {
        if word.len() > left {
            word.truncate(word.floor_char_boundary(left));
            word.push('\u{2026}');
            word.shrink_to_fit();
            kept.push(word);
            break;
        }
        left -= word.len();
        kept.push(word);
    }
    kept
}

/// More than any command that somebody typed.
const REMEMBERED: usize = 16 * 1024;
/// How many pieces of standard input may wait for a command that reads slowly.
const WORDS: usize = 2;
/// How many signals and sizes may wait for their sandbox.
const ASIDES: usize = 16;

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
