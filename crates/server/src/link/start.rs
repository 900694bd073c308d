//! A shim as the daemon that starts it sees it. One task for each waits for its answer and for its end, whatever becomes of the request
//! that it was started for:
//!
//! ```text
//!   `belljar shim DIR` <── plan, a line; standard input stays open as long as a run is wanted
//!     ├─ ready ──> Line; the shim goes on by itself
//!     ├─ run ────> the id of a log; until the caller hangs up
//!     ├─ result ─> its length, and the result piece by piece, as the client takes it
//!     └─ error, or ended without an answer
//! ```
//! Of a result only a few pieces are here at a time: the rest waits in the shim. What a run holds (`Terms::held`) is released when its process
//! has ended and its directory is gone.

use super::line::Line;
use super::runs;
use crate::answer::heard;
use crate::keeper::protocol::{Answer, Plan};
use axum::body::Bytes;
use belljar_fleet::Place;
use belljar_spec::SandboxError;
use belljar_state::{Survives, write_atomic};
use futures_util::{Stream, stream};
use std::fmt::Display;
use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdout, Command};
use tokio::sync::{mpsc, oneshot};

/// A shim that is to be started.
pub(super) struct Start {
    pub(super) program: PathBuf,
    pub(super) place: Place,
    pub(super) plan: Plan,
}

/// What a run needs of the daemon.
pub(crate) struct Terms<H> {
    /// Held until its process has ended, whoever waits.
    pub(crate) held: H,
    /// How long a piece of the result waits for the client to read it.
    pub(crate) patience: Duration,
    /// What is done when the client read nothing for so long.
    pub(crate) on_silence: Box<dyn FnOnce() + Send>,
}

impl<H> Terms<H> {
    pub(crate) fn holding(held: H) -> Terms<H> {
        Terms { held, patience: READ_TIMEOUT, on_silence: Box::new(|| {}) }
    }
}

/// A shim that was started. It is wanted as long as somebody has this, or until its sandbox is ready.
pub(crate) struct Started {
    words: mpsc::Receiver<Word>,
    /// Nothing is ever sent: an error is the end of the task.
    over: oneshot::Receiver<()>,
}

/// What is heard of a shim.
pub(crate) enum Word {
    /// There is no sandbox, or no run.
    Failed(SandboxError),
    /// A sandbox lives.
    Ready(Box<Line>),
    /// An agent runs; its log has this id.
    Run(String),
    /// A run is over, and its result this long. Pieces follow.
    Length(u64),
    Piece(Bytes),
}

impl Started {
    /// The answer of the shim.
    pub(crate) async fn answer(&mut self) -> Result<Word, SandboxError> {
        match self.words.recv().await {
            Some(Word::Failed(error)) => Err(error),
            Some(word) => Ok(word),
            None => Err(run_failed("read the answer of the shim", &"the daemon is ending")),
        }
    }

    /// The result of this many bytes as it comes, to its last byte or an error.
    pub(crate) fn pieces(self, length: u64) -> impl Stream<Item = io::Result<Bytes>> + Send {
        stream::unfold(Some((self, length)), |left| async move {
            let (mut started, length) = left.filter(|(_, length)| *length > 0)?;
            match started.words.recv().await {
                Some(Word::Piece(piece)) => {
                    let length = length.saturating_sub(piece.len() as u64);
                    Some((Ok(piece), Some((started, length))))
                }
                _ => Some((Err(io::ErrorKind::UnexpectedEof.into()), None)),
            }
        })
    }

    /// Tells the shim to end, and waits until it has.
    pub(crate) fn end_blocking(self) {
        drop(self.words);
        let _ = self.over.blocking_recv();
    }
}

/// Why no word reaches the caller.
#[derive(Debug, PartialEq, Eq)]
enum Gone {
    HungUp,
    /// Still there, and reads nothing.
    Silent,
}

impl Start {
    /// Starts it.
    pub(super) fn start<H: Send + 'static>(self, terms: Terms<H>) -> Started {
        let (tell, words) = mpsc::channel(PIECES_AHEAD);
        let (end, over) = oneshot::channel();
        tokio::spawn(async move {
            self.attend(tell, terms).await;
            drop::<oneshot::Sender<()>>(end);
        });
        Started { words, over }
    }

    /// From its start to its end. What is held is released before anybody can know that the run is over: a caller that was told may at once
    /// ask for the next.
    async fn attend<H>(self, tell: mpsc::Sender<Word>, terms: Terms<H>) {
        let Terms { held, patience, on_silence } = terms;
        let mut child = match self.begin(&tell).await {
            Ok(child) => child,
            Err(error) => {
                drop(held);
                let _ = tell.send(Word::Failed(error)).await;
                return;
            }
        };
        let told = self.follow(&mut child, &tell, patience).await;
        let lives = matches!(told, Ok(Word::Ready(_)));
        if !lives {
            self.end(&mut child).await;
        }
        drop(held);
        let last = match told {
            Ok(word) => tell.send_timeout(word, patience).await.map_err(Gone::from),
            Err(gone) => Err(gone),
        };
        if lives {
            if last.is_err() {
                let _ = child.start_kill();
            }
            // A process that its parent does not wait for stays a zombie.
            let _ = child.wait().await;
        }
        if last == Err(Gone::Silent) {
            on_silence();
        }
    }

    /// Starts the process, if the caller still waits.
    async fn begin(&self, tell: &mpsc::Sender<Word>) -> Result<Child, SandboxError> {
        let failed = |error: io::Error| self.failed("start the shim", &error);
        let mut command = Command::new(&self.program);
        // What ends with the daemon, or belongs to it alone, is not for a shim.
        for own in
            ["LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES", "NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"]
        {
            command.env_remove(own);
        }
        match &self.plan {
            Plan::Sandbox(plan) => {
                let mut log = OpenOptions::new();
                log.create(true).truncate(true).write(true).mode(0o600);
                command.stderr(log.open(self.place.log()).map_err(failed)?);
                // Whose programs the sandbox sees, and which shell it has, is what the owner who starts it has, and not the environment that
                // the daemon was started with.
                command.envs(&plan.environment);
            }
            Plan::OneShot(_) | Plan::AgentRun(_) => {
                let directory = self.place.directory().to_path_buf();
                let made = tokio::task::spawn_blocking(move || fs::create_dir_all(directory)).await;
                made.unwrap_or_else(|error| Err(io::Error::other(error))).map_err(failed)?;
            }
        }
        if tell.is_closed() {
            self.clear().await;
            return Err(self.failed("start the shim", &"the client is gone"));
        }
        command.arg0("belljar").arg("shim").arg(self.place.directory()).current_dir("/");
        let spawned = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        match spawned {
            Ok(child) => Ok(child),
            Err(error) => {
                self.clear().await;
                Err(failed(error))
            }
        }
    }

    /// Tells the process what to do and passes on what it says, but for the last word. Ends when the caller hangs up.
    async fn follow(
        &self,
        child: &mut Child,
        tell: &mpsc::Sender<Word>,
        patience: Duration,
    ) -> Result<Word, Gone> {
        tokio::select! {
            biased;
            () = tell.closed() => Err(Gone::HungUp),
            told = self.hear(child, tell, patience) => told,
        }
    }

    async fn hear(
        &self,
        child: &mut Child,
        tell: &mpsc::Sender<Word>,
        patience: Duration,
    ) -> Result<Word, Gone> {
        let (answer, stdout) = match self.answer(child).await {
            Ok(answered) => answered,
            Err(error) => return Ok(Word::Failed(error)),
        };
        match answer {
            Answer::Error(error) => Ok(Word::Failed(heard(&error))),
            Answer::Ready(contact) => {
                let line = Line::new(*contact);
                Ok(line.watch().await.map_or_else(Word::Failed, |()| Word::Ready(Box::new(line))))
            }
            Answer::Run(id) => {
                tell.send(Word::Run(id)).await.map_err(|_| Gone::HungUp)?;
                std::future::pending().await
            }
            Answer::Result(length) => {
                tell.send(Word::Length(length)).await.map_err(|_| Gone::HungUp)?;
                pass(stdout, length, tell, patience).await
            }
        }
    }

    /// The plan goes in, an answer comes out.
    async fn answer(&self, child: &mut Child) -> Result<(Answer, BufReader<ChildStdout>), SandboxError> {
        let mut plan = serde_json::to_vec(&self.plan)
            .map_err(|error| self.failed("write the plan of the shim", &error))?;
        plan.push(b'\n');
        let (Some(stdin), Some(stdout)) = (&mut child.stdin, child.stdout.take()) else {
            return Err(self.failed("start the shim", &"it has no pipes"));
        };
        // One that ended before it read all of it may have said why.
        let _ = stdin.write_all(&plan).await;
        let mut stdout = BufReader::with_capacity(PIECE_BYTES, stdout);
        let mut lines = (&mut stdout).take(MAX_ANSWER_BYTES);
        loop {
            let mut line = Vec::new();
            match lines.read_until(b'\n', &mut line).await {
                Ok(0) => return Err(self.ended()),
                // Lines that are no answer are of a program around the shim.
                Ok(_) => {
                    if let Ok(answer) = serde_json::from_slice(&line) {
                        return Ok((answer, stdout));
                    }
                }
                Err(error) => return Err(self.failed("read the answer of the shim", &error)),
            }
        }
    }

    /// Ends the process and waits for it. A run ends at the end of its standard input. A sandbox that is being made waits for nothing, and
    /// dies with its shim.
    async fn end(&self, child: &mut Child) {
        drop((child.stdin.take(), child.stdout.take()));
        if !self.plan.is_run() {
            let _ = child.start_kill();
        }
        let _ = child.wait().await;
        self.clear().await;
    }

    /// Nothing is left of a run.
    async fn clear(&self) {
        if self.plan.is_run() {
            let place = self.place.clone();
            let _ = tokio::task::spawn_blocking(move || runs::remove(&place)).await;
        }
    }

    fn failed(&self, what: &str, why: &dyn Display) -> SandboxError {
        match self.plan.is_run() {
            true => run_failed(what, why),
            false => broken(&self.place, what, why),
        }
    }

    /// The shim ended without an answer.
    fn ended(&self) -> SandboxError {
        if self.plan.is_run() {
            return run_failed("read the answer of the shim", &"it ended without one");
        }
        let log = fs::read_to_string(self.place.log()).unwrap_or_default();
        let last = log.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("it said nothing");
        let error = SandboxError::runtime(
            "keeper_ended",
            format!("the sandbox's keeper ended before it was ready: {last}"),
        );
        match is_writable(&self.place) {
            Ok(()) => error.hint("`belljar doctor` says which walls work here"),
            Err(why) => {
                error.hint(format!("`{}` cannot be written: {why}", self.place.directory().display()))
            }
        }
    }
}

pub(super) fn broken(place: &Place, what: &str, why: &dyn Display) -> SandboxError {
    let directory = place.directory().display();
    SandboxError::runtime("keeper_unreachable", format!("cannot {what} in {directory}: {why}"))
}

pub(crate) fn run_failed(what: &str, why: &dyn Display) -> SandboxError {
    SandboxError::runtime("run_failed", format!("cannot {what}: {why}"))
}

/// Whether a file can be made in a place: a full or read-only disk is no fault of a backend.
fn is_writable(place: &Place) -> io::Result<()> {
    let probe = place.directory().join("probe");
    write_atomic(&probe, &[0; 4096], Survives::Kill)?;
    fs::remove_file(probe)
}

/// Piece by piece, at the pace of the client. The last piece is given back.
async fn pass(
    mut stdout: BufReader<ChildStdout>,
    length: u64,
    tell: &mpsc::Sender<Word>,
    patience: Duration,
) -> Result<Word, Gone> {
    let mut left = length;
    loop {
        let piece = match stdout.fill_buf().await {
            Ok(bytes) => {
                let most = usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len());
                Bytes::copy_from_slice(&bytes[..most])
            }
            Err(_) => Bytes::new(),
        };
        left -= piece.len() as u64;
        stdout.consume(piece.len());
        // A result that broke off is told as such: it is shorter than its length.
        if left == 0 || piece.is_empty() {
            return Ok(Word::Piece(piece));
        }
        tell.send_timeout(Word::Piece(piece), patience).await?;
    }
}

impl From<mpsc::error::SendTimeoutError<Word>> for Gone {
    fn from(error: mpsc::error::SendTimeoutError<Word>) -> Gone {
        match error {
            mpsc::error::SendTimeoutError::Timeout(_) => Gone::Silent,
            mpsc::error::SendTimeoutError::Closed(_) => Gone::HungUp,
        }
    }
}

/// Of a result, at a time: what a pipe holds.
const PIECE_BYTES: usize = 64 << 10;
/// Pieces that wait for the client.
const PIECES_AHEAD: usize = 2;
/// A contact, a length, or an error with its hint.
const MAX_ANSWER_BYTES: u64 = 1 << 20;
/// A client that takes nothing of a result for so long does not want it.
const READ_TIMEOUT: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests;
